"""A margin of padding: what is exact about it, and what follows it."""

import numpy as np
import pytest
import torch
from torch.func import functional_call, vmap

from tests.layers import make_layer
from torchsonic import SonicConv2d, create_model
from torchsonic.functional import ORDERS, estimated_bytes
from torchsonic.spectral.boundary import Boundary
from torchsonic.testing import relative_error

SIZES = [(11,), (9, 6), (4, 7, 5)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_margin_of_zeros_is_the_circular_layer_on_an_image_padded_by_hand(size, order):
    num_axes = len(size)
    layer = make_layer(num_axes, padding_mode="zeros", padding=3, execution={"order": order})
    wrapping = make_layer(num_axes)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    total = layer.boundary(layer.spacing).band(size, size).size_in
    missing = [m - n for n, m in zip(size, total, strict=True)]
    by_hand = torch.nn.functional.pad(x, [p for m in reversed(missing) for p in (0, m)])
    inside = (..., *[slice(n) for n in size])
    expected = functional_call(wrapping, dict(layer.named_parameters()), (by_hand,))[inside]
    assert relative_error(layer(x), expected) < 1e-12
    assert all(m >= n + 3 for n, m in zip(size, total, strict=True))


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
@pytest.mark.parametrize("out_size", [(8, 6), (4, 3), (7, 9), (16, 12)])
@pytest.mark.parametrize("order", ORDERS)
def test_kernels_equal_the_definition_with_any_margin(padding_mode, out_size, order):
    layer = make_layer(2, padding_mode=padding_mode, padding=(2, 3), execution={"order": order})
    x = torch.randn(2, 3, 8, 6, dtype=torch.float64, requires_grad=True)
    inputs, parameters = [x, *layer.parameters()], dict(layer.named_parameters())
    y = layer(x, output_size=out_size)
    plain = vmap(lambda t: functional_call(layer, parameters, (t, None, out_size)))(x[:, None])[:, 0]
    assert relative_error(y, plain) < 1e-11
    weight = torch.randn_like(y)
    for a, b in zip(*(torch.autograd.grad(t, inputs, weight) for t in (y, plain)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_a_margin_as_wide_as_the_image_leaves_nothing_to_wrap():
    wide, whole = (make_layer(2, padding_mode="zeros", padding=padding) for padding in (100, None))
    x = torch.randn(1, 3, 6, 5, dtype=torch.float64)
    torch.testing.assert_close(wide(x), functional_call(whole, dict(wide.named_parameters()), (x,)))


def test_the_margin_keeps_its_physical_width_where_the_spacing_is_told():
    layer = make_layer(2, padding_mode="zeros", padding=4, spacing=2.0)
    assert layer.boundary(2.0).margin == (4, 4)
    assert layer.boundary((1.0, 4.0)).margin == (8, 2)
    assert layer.boundary(torch.tensor([[1.0, 4.0], [0.5, 8.0]])).margin == (16, 2)
    x = torch.randn(1, 3, 8, 9, dtype=torch.float64)
    torch.testing.assert_close(layer(x, np.array([1.0, 4.0])), layer(x, (1.0, 4.0)))
    assert layer.boundary((2.0, 1e9)).margin == (4, 1)  # a margin is never less than a sample
    assert layer(x, spacing=(2.0, 1e9)).isfinite().all()
    assert layer(x[:0], spacing=torch.ones(0, 2)).shape == (0, 4, 8, 9)
    together, alone = layer(torch.cat([x, x]), torch.tensor([[1.0, 4.0]] * 2)), layer(x, (1.0, 4.0))
    torch.testing.assert_close(together[:1], alone)


@pytest.mark.parametrize(("n", "m"), [(64, 64), (64, 32), (63, 32), (20, 5), (7, 4), (30, 45)])
def test_grids_with_a_margin_keep_the_extent_of_input_and_output_alike(n, m):
    for mode in ("zeros", "reflect"):
        band = Boundary(mode, (16,)).band((n,), (m,))
        (total,), (out,) = band.size_in, band.size_out
        assert total * m == out * n
        assert total >= min(n + 16, 2 * n - 1)


def test_padding_needs_a_mode_that_has_a_margin():
    with pytest.raises(ValueError, match="padding=16 needs padding_mode='zeros' or 'reflect'"):
        SonicConv2d(3, 4, padding=16)
    with pytest.raises(ValueError, match="padding must be 1 or 2 positive numbers"):
        SonicConv2d(3, 4, padding=(1, 2, 3), padding_mode="zeros")


def test_networks_strides_and_estimates_know_the_margin():
    model = create_model("sonicnet2d", in_channels=1, num_classes=2, width=8, stride=2, padding=4, padding_mode="zeros")
    assert model(torch.randn(1, 1, 12, 10)).shape == (1, 2, 12, 10)
    sizes = (2, 8, 8, 4, (32, 32))
    margin = estimated_bytes(*sizes, padding_mode="zeros", padding=4)
    assert estimated_bytes(*sizes) < margin < estimated_bytes(*sizes, padding_mode="zeros")


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
def test_compiled_layers_have_the_same_margin(padding_mode):
    torch._dynamo.reset()
    layer = SonicConv2d(3, 4, num_modes=2, padding=3, padding_mode=padding_mode)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 3, 9, 7, requires_grad=True)
    for spacing in (1.0, 0.5):
        actual, expected = compiled(x, spacing), layer(x, spacing)
        assert relative_error(actual, expected) < 1e-6
        both = (torch.autograd.grad(y.square().sum(), x)[0] for y in (actual, expected))
        assert relative_error(*both) < 1e-5


@pytest.mark.parametrize("stride", [1, 2])
def test_a_sample_does_not_depend_on_the_spacings_of_the_others(stride):
    layer = make_layer(2, padding_mode="zeros", padding=3, stride=stride)
    x, rows = torch.randn(3, 3, 16, 12, dtype=torch.float64), [(1.0, 1.0), (0.5, 0.25), (1.0, 1.0)]
    together = layer(x, torch.tensor(rows, dtype=torch.float64))
    alone = torch.cat([layer(sample[None], row) for sample, row in zip(x, rows, strict=True)])
    assert relative_error(together, alone) < 1e-12
    assert layer(x[:0], torch.ones(0, 2)).shape == (0, *together.shape[1:])


def test_a_margin_of_less_than_a_sample_is_one():
    layer = make_layer(2, padding_mode="zeros", padding=1)
    assert layer.boundary((1e9, 0.5)).margin == (1, 2)
    x = torch.randn(1, 3, 8, 9, dtype=torch.float64)
    training = layer(x, (1e9, 0.5))
    with torch.no_grad():
        assert relative_error(layer.eval()(x, (1e9, 0.5)), training) < 1e-12


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # PyTorch's own, where it breaks a graph
def test_compilers_and_exporters_do_not_guess_a_margin_from_a_spacing_that_they_do_not_know():
    layer = SonicConv2d(3, 4, num_modes=2, padding=3, padding_mode="zeros")
    x, spacing = torch.randn(2, 3, 16, 12), torch.tensor([[0.5, 0.5], [0.25, 1.0]])
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager")
    assert relative_error(compiled(x, spacing), layer(x, spacing)) < 1e-6
    with pytest.raises(ValueError, match=r"the margin of padding=\(3, 3\) follows the spacing.* fixed spacing"):
        torch.export.export(layer, (x, spacing))


def test_a_margin_may_be_a_fraction_of_a_sample():
    """It is a width: half a sample of the reference spacing is two of a grid four times as fine."""
    layer = SonicConv2d(1, 1, padding=(0.5, 2), padding_mode="zeros")
    assert layer.padding == (0.5, 2)
    assert layer.boundary(1.0).margin == (1, 2)
    assert layer.boundary(0.25).margin == (2, 8)


def test_weights_load_that_were_saved_with_a_margin_rounded_to_samples():
    options = {"padding_mode": "zeros", "spacing": (10.0, 1.4)}
    old, new = SonicConv2d(1, 1, padding=(2, 8), **options), SonicConv2d(1, 1, padding=(1.12, 8), **options)
    new.load_state_dict(old.state_dict())
    x = torch.randn(1, 1, 6, 20)
    assert torch.equal(new(x), old(x))
    with pytest.raises(RuntimeError, match="saved with padding"):
        SonicConv2d(1, 1, padding=(2.5, 8), **options).load_state_dict(old.state_dict())
