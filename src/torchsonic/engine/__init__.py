"""How the operator is computed: plans, kernels, couplings, transforms, caches and memory.

The mathematics is defined in :mod:`torchsonic.spectral`; results here are tested against its module :mod:`plain`.
"""
