import itertools
import math

import pytest
import torch

from tests.baselines.operators import SIZES, assert_same_with_gradients, average_cells, dense_mix, make_operator
from torchsonic.baselines import SNO


def chebyshev(degree, x):
    """By the recurrence, not by cosines."""
    values = [1.0, x]
    while len(values) <= degree:
        values.append(2 * x * values[-1] - values[-2])
    return values[degree]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spacing", [None, 0.6])
def test_matches_a_fourier_series(size, spacing):
    layer = make_operator("sno", (2, 3), stride=2, spatial_dims=len(size))
    step = 1.0 if spacing is None else spacing

    def symbol(k):
        # In units of the reference Nyquist frequency; beyond it the value at the edge.
        frequency = [max(-1.0, min(1.0, 2 * i / (n * step))) for i, n in zip(k, size, strict=True)]
        total = 0
        for p in itertools.product(range(layer.degree + 1), repeat=len(size)):
            term = math.prod(chebyshev(degree, x) for degree, x in zip(p, frequency, strict=True))
            total = total + (1j if sum(p) % 2 else 1) * term * layer.coefficients[(slice(None), slice(None), *p)]
        return total

    class Told(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return layer(x, spacing)

    x = torch.randn(2, 2, *size, dtype=torch.float64)
    assert_same_with_gradients(Told(), lambda x: average_cells(dense_mix(x, symbol), layer.stride), x)


@pytest.mark.parametrize("name", ["sno", "continuous_fno"])
def test_samples_of_a_batch_may_have_spacings_of_their_own(name):
    layer = make_operator(name)
    x = torch.randn(4, 3, 6, 7, dtype=torch.float64)
    spacing = torch.tensor([[1.0, 1.0], [0.5, 2.0], [1.0, 1.0], [0.7, 0.7]], dtype=torch.float64)
    each = torch.cat([layer(x[i : i + 1], spacing=tuple(spacing[i].tolist())) for i in range(4)])
    torch.testing.assert_close(layer(x, spacing=spacing), each)
    layer.set_spacing(0.7)
    torch.testing.assert_close(layer(x[3:]), each[3:])


def test_parameter_count_is_that_of_the_docstring():
    assert sum(p.numel() for p in SNO(5, 7, degree=4).parameters()) == 5 * 7 * 25


def test_unit_white_noise_leaves_with_a_variance_of_about_one():
    layer = make_operator("sno", (16, 16), degree=6)
    assert layer(torch.randn(4, 16, 32, 32).double()).var().item() == pytest.approx(1, rel=0.3)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="degree must be at least 0, got -1"):
        SNO(3, 3, degree=-1)
