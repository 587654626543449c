import math

import pytest
import torch
import torch.nn.functional as F

from tests.baselines.operators import SIZES, assert_same_with_gradients, average_cells, dense_mix, make_operator
from torchsonic.baselines import ContinuousFNO


def network_by_definition(layer, frequency):
    parts = []
    for network in (layer.real, layer.imaginary):
        hidden = frequency
        for linear in list(network)[:-1]:
            hidden = F.silu(linear(hidden))
        parts.append(network[-1](hidden))
    return torch.complex(*parts).reshape(layer.out_channels, layer.in_channels)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spacing", [None, 0.7])
def test_matches_a_fourier_series(size, spacing):
    layer = make_operator("continuous_fno", (2, 3), stride=2, spatial_dims=len(size), spacing=1.4)
    step = 1.4 if spacing is None else spacing

    def symbol(k):
        omega = torch.tensor([2 * math.pi * i / (n * step) for i, n in zip(k, size, strict=True)], dtype=torch.float64)
        frequency = omega * 1.4 / math.pi
        return (network_by_definition(layer, frequency) + network_by_definition(layer, -frequency).conj()) / 2

    class Told(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return layer(x, spacing)

    x = torch.randn(2, 2, *size, dtype=torch.float64)
    assert_same_with_gradients(Told(), lambda x: average_cells(dense_mix(x, symbol), layer.stride), x)


def test_parameter_count_is_that_of_the_docstring():
    assert sum(p.numel() for p in ContinuousFNO(5, 7).parameters()) == 2 * (16 * 2 + 16 + 272 + 17 * 35)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="hidden must be at least 1, got 0"):
        ContinuousFNO(3, 3, hidden=(8, 0))
