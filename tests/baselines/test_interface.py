"""What holds for every operator alike."""

import inspect

import pytest
import torch

import torchsonic.baselines
import torchsonic.baselines.operator as module
from tests.baselines.operators import DEPTHWISE, OPERATORS, SIZES, make_operator
from torchsonic.testing import relative_error

EVERY = pytest.mark.parametrize("name", OPERATORS)


def test_operators_are_public():
    assert {kind.__name__ for kind, _ in OPERATORS.values()} <= set(torchsonic.baselines.__all__)
    assert inspect.ismodule(module), "no operator hides the module"


@EVERY
def test_signatures_name_every_argument(name):
    kind, options = OPERATORS[name]
    names = list(inspect.signature(kind).parameters)
    assert names[:3] == ["in_channels", "out_channels", "stride"]
    assert {"spatial_dims", *options} <= set(names)
    assert ("spacing" in names) == issubclass(kind, module.SpacedOperator)
    assert ("pointwise" in names) == (name in DEPTHWISE or name == "fno")


@EVERY
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_output_has_size_over_stride_rounded_up(name, size, stride):
    layer = make_operator(name, stride=stride, spatial_dims=len(size), dtype=torch.float32)
    y = layer(torch.randn(2, 3, *size))
    assert y.shape == (2, 4, *[-(-n // stride) for n in size])
    assert y.dtype == torch.float32
    assert y.isfinite().all()


@EVERY
def test_strides_may_differ_by_axis(name):
    layer = make_operator(name, stride=(2, 1))
    x = torch.randn(2, 3, 9, 8, dtype=torch.float64)
    assert layer(x).shape == (2, 4, 5, 8)
    assert layer.stride == (2, 1)


@EVERY
@pytest.mark.parametrize("size", [(9,), (7, 10), (4, 3, 5)])
def test_gradients_reach_every_parameter(name, size):
    layer = make_operator(name, stride=2, spatial_dims=len(size))
    layer(torch.randn(2, 3, *size, dtype=torch.float64)).square().sum().backward()
    for parameter_name, parameter in layer.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        if parameter_name != "mask":  # bins that must be real keep their imaginary part without effect
            assert parameter.grad.flatten(1).abs().sum(-1).all() if parameter.dim() > 1 else parameter.grad.any()


@EVERY
def test_single_precision_agrees_with_double(name):
    double, single = make_operator(name).eval(), make_operator(name).float().eval()
    x = torch.randn(2, 3, 13, 10, dtype=torch.float64)
    assert relative_error(single(x.float()).double(), double(x)) < 1e-5


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_keeps_the_dtype_of_the_input(name, dtype):
    layer = make_operator(name, dtype=torch.float32, stride=2).eval()
    x = torch.randn(2, 3, 13, 10).to(dtype)
    expected = layer(x.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype == dtype
    assert relative_error(y.float(), expected) < 3e-2


@EVERY
def test_saving_and_loading_restores_the_operator(name):
    first, second = make_operator(name).eval(), make_operator(name, seed=1).eval()
    x = torch.randn(1, 3, 6, 5, dtype=torch.float64)
    assert relative_error(second(x), first(x)) > 0.1
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(second(x), first(x), rtol=0, atol=0)


@EVERY
def test_compiles_in_one_graph(name):
    layer = make_operator(name, dtype=torch.float32, stride=2)
    x = torch.randn(2, 3, 9, 8)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize("name", DEPTHWISE)
def test_channels_are_mixed_only_where_asked_or_needed(name):
    assert make_operator(name, (3, 3), pointwise=False).pointwise is None
    assert make_operator(name, (3, 4), pointwise=False).pointwise.weight.shape == (4, 3, 1, 1)
    mixing = make_operator(name, (3, 3), pointwise=True)
    assert mixing.pointwise.bias is None
    x = torch.zeros(2, 3, 8, 6, dtype=torch.float64)
    x[:, 0] = torch.randn(2, 8, 6, dtype=torch.float64)
    unmixed = make_operator(name, (3, 3), pointwise=False).eval()
    assert unmixed(x)[:, 0].any()
    assert not unmixed(x)[:, 1:].any()
    assert mixing.eval()(x)[:, 1:].any()


@EVERY
def test_wrong_arguments_are_named(name):
    kind, options = OPERATORS[name]
    with pytest.raises(ValueError, match="in_channels must be at least 1, got 0"):
        kind(0, 3)
    with pytest.raises(ValueError, match="spatial_dims must be one of 1, 2, 3, got 4"):
        kind(3, 3, spatial_dims=4)
    with pytest.raises(ValueError, match="stride must be 1 or 2 positive integers, got 0"):
        kind(3, 3, 0)
    layer = kind(3, 3, **options)
    with pytest.raises(ValueError, match=rf"{kind.__name__} expects 3 channels, got 2"):
        layer(torch.zeros(1, 2, 8, 8))
    with pytest.raises(ValueError, match=rf"{kind.__name__} expects \(batch, channel, 2 axes\)"):
        layer(torch.zeros(3, 8, 8))
    with pytest.raises(TypeError, match="real floating-point"):
        layer(torch.zeros(1, 3, 8, 8, dtype=torch.int64))
