"""What the operator is: frequencies, responses, gains, limits, boundaries, and its definition in :mod:`plain`.

Nothing here knows how the operator is carried out; see :mod:`torchsonic.engine`.
"""
