import pytest
import torch
from torch import nn

from tests.baselines.operators import assert_same_with_gradients, make_operator
from torchsonic.baselines import Dilated

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


@pytest.mark.parametrize("size", [(9,), (7, 10), (1, 5), (4, 3, 5)])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_is_a_convolution_with_spread_taps(size, dilation):
    layer = make_operator("dilated", spatial_dims=len(size), dilation=dilation, stride=2)
    plain = CONV[len(size)](3, 4, 2 * dilation + 1, stride=2, padding=dilation, bias=False).double()
    for parameter in plain.parameters():
        parameter.requires_grad_(False).zero_()

    def reference(x):
        taps = (..., *[slice(None, None, dilation)] * len(size))
        weight = torch.zeros_like(plain.weight)
        weight[taps] = layer.conv.weight
        return torch.func.functional_call(plain, {"weight": weight}, (x,))

    assert_same_with_gradients(layer, reference, torch.randn(2, 3, *size, dtype=torch.float64))


def test_defaults():
    layer = Dilated(6, 7)
    assert layer.dilation == (2, 2)
    assert [tuple(p.shape) for p in layer.parameters()] == [(7, 6, 3, 3)]


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="dilation must be 1 or 2 positive integers, got 0"):
        Dilated(3, 3, dilation=0)
