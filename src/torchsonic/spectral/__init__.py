"""What the operator is: frequencies, responses, gains, limits, boundaries, and the definition itself in :mod:`plain`.

Nothing here knows how the operator is computed; see :mod:`torchsonic.engine`.
"""
