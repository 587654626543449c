"""How the operator is carried out: plans, kernels, couplings, transforms, caches and memory.

Nothing here defines mathematics; that is :mod:`torchsonic.spectral`, whose :mod:`plain` every result is held to.
"""
