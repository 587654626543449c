import itertools

import pytest
import torch
import torch.nn.functional as F

from tests.baselines.operators import (
    SIZES,
    assert_same_with_gradients,
    average_cells,
    dense_filter,
    make_operator,
    mix,
)
from torchsonic.baselines import NIFF


def response_by_definition(layer, size):
    """Both networks at one frequency after the other, in units of the Nyquist frequency."""
    axes = [torch.fft.fftfreq(n, dtype=torch.float64) * 2 for n in size[:-1]]
    axes.append(torch.fft.rfftfreq(size[-1], dtype=torch.float64) * 2)
    values = []
    for frequency in itertools.product(*axes):
        parts = []
        for network in (layer.real, layer.imaginary):
            hidden = torch.stack(frequency)
            for linear in list(network)[:-1]:
                hidden = F.silu(linear(hidden))
            parts.append(network[-1](hidden))
        values.append(torch.complex(*parts))
    return torch.stack(values, -1).reshape(-1, *map(len, axes))


@pytest.mark.parametrize("size", SIZES)
def test_matches_a_dense_transform(size):
    layer = make_operator("niff", (2, 3), stride=2, spatial_dims=len(size))

    def reference(x):
        return mix(layer, average_cells(dense_filter(x, response_by_definition(layer, size)), layer.stride))

    assert_same_with_gradients(layer, reference, torch.randn(2, 2, *size, dtype=torch.float64))


def test_parameter_count_is_the_papers():
    channels = 6
    assert sum(p.numel() for p in NIFF(channels, channels).parameters()) == 2 * (24 + 36 + 5 * channels)
    assert sum(p.numel() for p in NIFF(channels, 7).parameters()) == 2 * (24 + 36 + 5 * channels) + channels * 7
    assert sum(p.numel() for p in NIFF(channels, channels, spatial_dims=3, hidden=()).parameters()) == 2 * 4 * channels


def test_shifting_the_input_shifts_the_output():
    layer = make_operator("niff")
    x = torch.randn(2, 3, 7, 10, dtype=torch.float64)
    torch.testing.assert_close(layer(x.roll((2, 3), (2, 3))), layer(x).roll((2, 3), (2, 3)))


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="hidden must be at least 1, got 0"):
        NIFF(3, 3, hidden=(8, 0))
