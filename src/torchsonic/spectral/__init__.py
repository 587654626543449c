"""What the operator is: frequencies, responses, gains, limits, boundaries, and the definition itself in :mod:`plain`.

How it is computed is the business of :mod:`torchsonic.engine`.
"""
