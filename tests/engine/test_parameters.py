import pytest
import torch

from tests.layers import make_layer
from torchsonic.engine import parameters
from torchsonic.testing import relative_error


def raw_parameters(num_axes, dtype=torch.float64):
    layer = make_layer(num_axes, (2, 2), 7, dtype=dtype, spacing=(0.5, 2.0, 3.0)[:num_axes])
    with torch.no_grad():
        layer.raw_direction[0] = 0.0  # has no direction
        layer.raw_damping[1] = -60.0  # underflows
        layer.raw_transverse[2] = -60.0
        layer.raw_scale[3] = 40.0
    return [p.detach().requires_grad_() for p in layer._raw(dtype)], layer.reference_spacing


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_few_operations_give_what_the_definition_gives_with_all_gradients(num_axes):
    raw, spacing = raw_parameters(num_axes)
    few, plain = parameters.physical_with_gain(raw, spacing), parameters._plain(raw, spacing)
    weights = [torch.randn_like(t) for t in plain]
    for a, b in zip(few, plain, strict=True):
        assert relative_error(a, b) < 1e-13
    actual, expected = (torch.autograd.grad(found, raw, weights) for found in (few, plain))
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("num_axes", [2, 3])
def test_few_operations_can_be_differentiated_twice(num_axes):
    layer = make_layer(num_axes, (2, 2), 3)
    raw = [p.detach().requires_grad_() for p in layer._raw(torch.float64)]

    def call(*raw):
        return parameters.physical_with_gain(raw, layer.reference_spacing)

    assert torch.autograd.gradcheck(call, raw, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, raw, fast_mode=True)


@pytest.mark.parametrize("num_axes", [2, 3])
def test_extreme_parameters_have_finite_gradients_in_single_precision(num_axes):
    raw, spacing = raw_parameters(num_axes, torch.float32)
    found = parameters.physical_with_gain(raw, spacing)
    for grad in torch.autograd.grad(found, raw, [torch.ones_like(t) for t in found]):
        assert grad.isfinite().all()
