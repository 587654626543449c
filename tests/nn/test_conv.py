import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from tests.layers import LAYERS, make_layer
from torchsonic import SonicConv1d, SonicConv2d, SonicConv3d
from torchsonic.functional import resample, sonic_conv
from torchsonic.nn import HybridConv
from torchsonic.spectral.boundary import Boundary
from torchsonic.testing import band_limited_field, relative_error


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_parameter_count_is_the_papers(num_axes):
    in_channels, out_channels, num_modes = 5, 7, 6
    layer = LAYERS[num_axes](in_channels, out_channels, num_modes=num_modes, bias=False)
    expected = 2 * out_channels * num_modes + 2 * num_modes * in_channels + (4 + num_axes) * num_modes + 1
    assert sum(p.numel() for p in layer.parameters()) == expected
    assert not any(p.is_complex() for p in layer.parameters())


def test_reads_like_a_convolution():
    layer = SonicConv2d(
        3, 8, num_modes=4, stride=2, bias=False, padding_mode="zeros", device="cpu", dtype=torch.float64
    )
    assert repr(layer) == "SonicConv2d(3, 8, num_modes=4, stride=(2, 2), padding_mode='zeros', bias=False)"
    assert layer(torch.randn(2, 3, 9, 12, dtype=torch.float64)).shape == (2, 8, 5, 6)
    assert layer(torch.randn(3, 9, 12, dtype=torch.float64)).shape == (8, 5, 6)


@pytest.mark.parametrize("size", [(8,), (9,), (11, 6), (8, 8), (5, 4, 6)])
def test_stride_keeps_the_extent_and_does_not_alias(size):
    layer = make_layer(len(size), stride=2)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    full = make_layer(len(size))(x)
    out_size = tuple(-(-n // 2) for n in size)
    assert relative_error(layer(x), resample(full, out_size)) < 1e-12


def test_output_size_evaluates_the_same_field_on_any_grid():
    layer = make_layer(2)
    x = band_limited_field((10, 12), 3, 3)
    expected = layer(x)
    for size in [(7, 8), (20, 13), (10, 30), 16]:
        y = layer(x, output_size=size)
        assert relative_error(resample(y, (10, 12)), expected) < 1e-11


def test_output_spacing_covers_the_same_extent():
    layer = make_layer(2, stride=(2, 3))
    spacing = layer.output_spacing((9, 12), (1.0, 0.5))
    torch.testing.assert_close(spacing, torch.tensor([[9 / 5, 0.5 * 12 / 4]], dtype=torch.float64))


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_zero_padding_is_the_linear_convolution_with_the_kernel(num_axes):
    size = (5, 4, 3)[:num_axes]
    layer = make_layer(num_axes, padding_mode="zeros", field=4)
    x = torch.randn(2, 3, *size, dtype=torch.float64)

    padded = Boundary("zeros").band(size, size).size_in
    kernel = layer.kernel(padded, centred=True)
    conv = getattr(nn.functional, f"conv{num_axes}d")
    reach = [(p // 2, (p - 1) // 2) for p in padded]
    room = nn.functional.pad(x, [r for before_after in reversed(reach) for r in reversed(before_after)])
    # Correlation with the flipped kernel; the origin sits at padded // 2.
    expected = conv(room, kernel.flip(tuple(range(2, 2 + num_axes))))
    bias = layer.bias
    assert bias is not None
    assert relative_error(layer(x), expected + bias.reshape(-1, *[1] * num_axes)) < 1e-12


def test_zero_padding_does_not_wrap():
    layer = make_layer(1, (1, 1), padding_mode="zeros", field=2, bias=False)
    x = torch.zeros(1, 1, 64, dtype=torch.float64)
    x[..., 0] = 1.0
    circular = make_layer(1, (1, 1), field=2, bias=False)
    assert layer(x)[..., -4:].abs().max() < 0.2 * circular(x)[..., -4:].abs().max()


def test_reflection_keeps_a_constant_field_constant():
    layer = make_layer(2, padding_mode="reflect")
    y = layer(torch.ones(1, 3, 6, 7, dtype=torch.float64))
    assert (y - y[..., :1, :1]).abs().max() < 1e-12


@pytest.mark.parametrize("padding", ["circular", "zeros", "reflect"])
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_kernel_is_the_answer_to_an_impulse(num_axes, padding):
    layer = make_layer(num_axes, padding_mode=padding)
    size = (6, 5, 4)[:num_axes]
    kernel = layer.kernel(size, spacing=0.5)
    assert kernel.shape == (4, 3, *size)
    spectrum = torch.fft.fftn(kernel, dim=tuple(range(2, 2 + num_axes)))
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    circular = make_layer(num_axes)
    product = torch.einsum("kc...,bc...->bk...", spectrum, torch.fft.fftn(x, dim=tuple(range(2, 2 + num_axes))))
    expected = torch.fft.ifftn(product, dim=tuple(range(2, 2 + num_axes))).real
    bias = circular.bias
    assert bias is not None
    actual = circular(x, spacing=0.5) - bias.reshape(-1, *[1] * num_axes)
    assert relative_error(actual, expected) < 1e-12
    centred = layer.kernel(size, spacing=0.5, centred=True)
    assert centred[(0, 0, *[n // 2 for n in size])] == kernel[(0, 0, *[0] * num_axes)]


def test_kernels_do_not_depend_on_the_default_device():
    layer = make_layer(2)
    expected = layer.kernel((5, 6)), layer.mode_kernels((5, 6))
    with torch.device("meta"):
        actual = layer.kernel((5, 6)), layer.mode_kernels((5, 6))
    torch.testing.assert_close(actual, expected)


def test_response_is_the_spectrum_of_the_kernel():
    layer = make_layer(2)
    size = (9, 7)  # odd: no bin without sign
    omega = (
        2
        * math.pi
        * torch.stack(
            torch.meshgrid(*[torch.fft.fftfreq(n, 0.5, dtype=torch.float64) for n in size], indexing="ij"), -1
        )
    )
    expected = torch.fft.fftn(layer.kernel(size, spacing=0.5), dim=(2, 3)).permute(2, 3, 0, 1)
    assert relative_error(layer.response(omega), expected) < 1e-12
    with pytest.raises(ValueError, match="the last axis of omega must have size 2"):
        layer.response(torch.zeros(4, 3))


def test_modes_satisfy_their_constraints():
    layer = make_layer(3, spacing=(4.0, 0.5, 1.0))
    with torch.no_grad():
        for p in layer.mode_parameters():
            p.normal_(std=20)
        modes = layer.modes()
    torch.testing.assert_close(modes.direction.norm(dim=-1), torch.ones(6, dtype=torch.float64))
    assert (modes.scale > 0).all()
    assert (modes.pole.real < 0).all()
    assert (modes.transverse >= 0).all()
    assert (modes.pole.imag.abs() <= layer.oscillation_limit.abs()).all()
    assert (modes.gain > 0).all()
    assert torch.isfinite(modes.gain).all()
    shapes = [tuple(t.shape) for t in modes]
    assert shapes == [(6, 3), (6,), (6,), (6,), (6,), (6, 3), (4, 6)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(7, 9), (8, 8)])
def test_autocast_computes_in_float32_and_returns_the_input_type(dtype, size):
    layer = make_layer(2, dtype=torch.float32)
    x = torch.randn(2, 3, *size)
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x.to(dtype))
    assert y.dtype == dtype
    assert relative_error(y, expected) < {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]


@pytest.mark.parametrize("variant", ["exact", "paper"])
def test_what_a_layer_tells_of_itself_is_the_same_under_autocast(variant):
    layer = make_layer(2, dtype=torch.float32, variant=variant)
    x, omega = torch.randn(2, 3, 7, 8), torch.randn(5, 2)

    def told():
        modes = layer.modes()
        convolved = sonic_conv(x, layer.reference_operator(), layer.bias)
        return [*modes, layer.kernel(8), layer.mode_kernels(8), layer.response(omega), convolved]

    expected = told()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = told()
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype
        assert relative_error(a, b) < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_work_and_train(dtype):
    layer = make_layer(2, dtype=torch.float32)
    x = torch.randn(2, 3, 7, 9)
    expected = layer(x)
    half = copy.deepcopy(layer).to(dtype)
    y = half(x.to(dtype))
    assert y.dtype == dtype
    assert relative_error(y, expected) < 0.1
    y.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype and torch.isfinite(p.grad).all() for p in half.parameters())


def test_float64_input_stays_float64_whatever_the_weights():
    layer = make_layer(2, dtype=torch.float32)
    x = torch.randn(2, 3, 7, 9, dtype=torch.float64)
    y = layer(x)
    assert y.dtype == torch.float64
    assert relative_error(y, copy.deepcopy(layer).double()(x)) < 1e-12


def test_mode_dropout_leaves_out_whole_modes_in_training_only():
    layer = make_layer(2, num_modes=1, mode_dropout=0.5, bias=False)
    x = torch.randn(1, 3, 5, 6, dtype=torch.float64)
    full = copy.deepcopy(layer).eval()(x)
    seen = {round((layer(x).norm() / full.norm()).item(), 6) for _ in range(30)}
    assert seen == {0.0, 2.0}
    torch.testing.assert_close(layer.eval()(x), full)


def test_dropout_of_limited_modes_is_as_exact_as_float64():
    layer, other = (make_layer(2, limits={"magnitude": 3.0}, mode_dropout=p) for p in (0.3, 0.0))
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)
    torch.manual_seed(2)
    kept = torch.rand(layer.num_modes) >= 0.3
    assert kept.any()
    with torch.no_grad():
        other.mix_out.mul_(kept[:, None] / torch.tensor(0.7, dtype=torch.float64))
    torch.manual_seed(2)
    assert relative_error(layer(x), other(x)) < 1e-14


def test_a_dropped_mode_gets_no_gradient_and_none_is_nan():
    layer = make_layer(2, num_modes=4, mode_dropout=0.6)
    for _ in range(5):
        layer.zero_grad()
        layer(torch.randn(1, 3, 5, 6, dtype=torch.float64)).square().sum().backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())
    dropped = layer.mix_in.grad.abs().sum((1, 2)) == 0  # type: ignore[union-attr]
    assert dropped.any()
    assert not layer.raw_direction.grad[dropped].any()  # type: ignore[index]


def test_memory_format_and_views_do_not_matter():
    layer = make_layer(2, dtype=torch.float32)
    x = torch.randn(2, 3, 6, 8)
    expected = layer(x)
    for view in (
        x.to(memory_format=torch.channels_last),
        torch.randn(2, 6, 6, 8)[:, ::2].copy_(x),
        x.mT.contiguous().mT,
    ):
        torch.testing.assert_close(layer(view), expected)


def test_layers_copy_and_pickle():
    layer = make_layer(2).eval()
    x = torch.randn(1, 3, 4, 5, dtype=torch.float64)
    with torch.no_grad():
        expected = layer(x)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            torch.testing.assert_close(other(x), expected, rtol=0, atol=0)


def test_parameters_have_no_units():
    millimetres = make_layer(2, spacing=(1.0, 2.0))
    metres = make_layer(2, spacing=(1e-3, 2e-3), seed=5)
    assert set(millimetres.state_dict()) == {"_extra_state", *dict(millimetres.named_parameters())}
    metres.load_state_dict({**millimetres.state_dict(), "_extra_state": metres.get_extra_state()})
    x = torch.randn(1, 3, 6, 5, dtype=torch.float64)
    assert relative_error(metres(x), millimetres(x)) < 1e-12


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((0, 4), {}, ValueError, "in_channels must be at least 1, got 0"),
        ((3, -1), {}, ValueError, "out_channels must be at least 1, got -1"),
        ((3, 4), {"num_modes": 0}, ValueError, "num_modes must be at least 1, got 0"),
        ((3, 4), {"num_modes": 2.5}, TypeError, "num_modes must be an integer, got 2.5"),
        (
            (3, 64, 3),
            {},
            TypeError,
            "SonicConv2d takes no kernel size, .* got a third argument, 3; if you meant .*, pass num_modes=3",
        ),
        ((3, 64, 7, 2), {}, TypeError, "if you meant the number of modes, pass num_modes=7"),
        ((3, 4), {"kernel_size": 3}, TypeError, "SonicConv2d has no option 'kernel_size'"),
        ((3, 4), {"limits": 3}, TypeError, "limits must be a ResponseLimits or a mapping .* got 3"),
        ((3, 4), {"execution": {"chunk": 3}}, ValueError, "execution may contain only order, .* got 'chunk'"),
        ((3, 4), {"stride": 0}, ValueError, "stride must be 1 or 2 positive integers, got 0"),
        ((3, 4), {"stride": (1, 2, 3)}, ValueError, "stride"),
        ((3, 4), {"stride": 1.5}, TypeError, "stride"),
        ((3, 4), {"padding_mode": "replicate"}, ValueError, "padding_mode must be one of circular, zeros, reflect"),
        ((3, 4), {"variant": "fast"}, ValueError, "variant must be one of exact, paper, got 'fast'"),
        ((3, 4), {"mode_dropout": 1.0}, ValueError, r"mode_dropout must be in \[0, 1\), got 1.0"),
        ((3, 4), {"input_noise": 0.1}, ValueError, "input_noise"),
        ((3, 4), {"field": -1.0}, ValueError, "field must be a positive number"),
        ((3, 4), {"field": "a"}, ValueError, "field must be a positive number of pixels, got 'a'"),
        ((3, 4), {"bank": 3}, TypeError, "bank must be 'released' or a mapping with any of highest_frequency.* got 3"),
        ((3, 4), {"mode_dropout": "a"}, ValueError, r"mode_dropout must be in \[0, 1\), got 'a'"),
        ((3, 4), {"input_noise": "a"}, ValueError, "input_noise must be >= 0 .* got 'a'"),
        ((3, 4), {"bank": {"longest": 1.0}}, ValueError, "bank may contain only .*shortest_decay.* got 'longest'"),
        ((3, 4), {"bank": {"shortest_decay": -1}}, ValueError, r"bank\['shortest_decay'\] must be a positive .* -1"),
        ((3, 4), {"bank": {"width_to_length": 0.0}}, ValueError, "must be a positive finite number, got 0.0"),
        ((3, 4), {"bank": {"highest_frequency": -0.5}}, ValueError, "must be a finite number >= 0, got -0.5"),
        ((3, 4), {"bank": {"highest_frequency": math.nan}}, ValueError, "highest_frequency.*got nan"),
        ((3, 4), {"bank": {"shortest_decay": math.inf}}, ValueError, "shortest_decay.*got inf"),
        ((3, 4), {"bank": {"shortest_decay": "short"}}, ValueError, "shortest_decay.*got 'short'"),
        ((3, 4), {"spacing": 0.0}, ValueError, "spacing must be positive"),
        ((3, 4), {"spacing": torch.ones(2, 2)}, ValueError, "spacing must be the same for all samples"),
        ((3, 4), {"execution": {"order": "quick"}}, ValueError, "order must be one of auto, modes, channels"),
        ((3, 4), {"execution": {"mode_chunk": -1}}, ValueError, "execution.mode_chunk must be at least 1"),
        ((3, 4), {"dtype": torch.complex64}, TypeError, "dtype must be a real floating-point type"),
    ],
)
def test_bad_arguments_are_refused_by_name_and_value(arguments, options, error, words):
    with pytest.raises(error, match=words):
        SonicConv2d(*arguments, **options)


@pytest.mark.parametrize(
    ("x", "options", "error", "words"),
    [
        (torch.zeros(2, 4, 5, 5), {}, ValueError, r"expects 3 channels, got 4 in shape \(2, 4, 5, 5\)"),
        (torch.zeros(3, 5), {}, ValueError, "expects .batch, channel, 2 axes."),
        (torch.zeros(1, 1, 3, 5, 5), {}, ValueError, "got shape"),
        (torch.zeros(1, 3, 0, 5), {}, ValueError, r"empty axis: shape \(1, 3, 0, 5\)"),
        (torch.zeros(1, 3, 5, 5, dtype=torch.long), {}, TypeError, "got torch.int64; convert it with x.float"),
        (torch.zeros(1, 3, 5, 5, dtype=torch.complex64), {}, TypeError, "got torch.complex64"),
        ([[1.0]], {}, TypeError, "expects a tensor, got list"),
        (torch.zeros(1, 3, 5, 5), {"spacing": (1.0, 2.0, 3.0)}, ValueError, "spacing needs 1 or 2 values"),
        (torch.zeros(1, 3, 5, 5), {"spacing": (1.0, -2.0)}, ValueError, r"positive and finite, got \[1.0, -2.0\]"),
        (torch.zeros(1, 3, 5, 5), {"spacing": torch.ones(2, 2)}, ValueError, "2 rows for a batch of 1"),
        (torch.zeros(1, 3, 5, 5), {"output_size": (4, 0)}, ValueError, "output_size must be 1 or 2 positive integers"),
        (torch.zeros(1, 3, 5, 5), {"output_size": 4.0}, TypeError, "output_size"),
    ],
)
def test_bad_input_is_refused_by_name_and_value(x, options, error, words):
    with pytest.raises(error, match=words):
        make_layer(2, dtype=torch.float32)(x, **options)


def test_numpy_integers_are_integers():
    layer = SonicConv2d(np.int64(3), np.int32(4), num_modes=np.int64(5), stride=np.int64(2))
    assert layer(torch.randn(1, 3, 8, 8), output_size=(np.int64(5), 5)).shape == (1, 4, 5, 5)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
def test_spacings_of_samples_may_be_an_array(train, batch):
    layer, x = make_layer(2).train(train), torch.randn(batch, 3, 8, 9, dtype=torch.float64)
    spacing = 0.5 + torch.rand(batch, 2, dtype=torch.float64)
    torch.testing.assert_close(layer(x, spacing.numpy()), layer(x, spacing))


def test_mapping_over_the_spacing_says_what_to_do_instead():
    layer, x, spacing = make_layer(2), torch.randn(3, 3, 8, 9, dtype=torch.float64), torch.rand(3, 2) + 0.5
    for module in (layer, HybridConv(3, 4).double()):
        with pytest.raises(ValueError, match=r"vmap cannot map over the spacing.*shape \(B, D\)"):
            torch.func.vmap(lambda sample, step, module=module: module(sample[None], step))(x, spacing)
    apart = torch.cat([layer(sample[None], step) for sample, step in zip(x, spacing, strict=True)])
    torch.testing.assert_close(layer(x, spacing), apart)


def test_a_grid_for_modes_that_do_not_depend_on_it_is_refused():
    with pytest.raises(ValueError, match="leave them out"):
        make_layer(2).modes(size=(8, 8))
    make_layer(2, variant="paper").modes(size=(8, 8), spacing=2.0)


def test_layers_are_usable_in_every_number_of_axes():
    for layer, shape in [(SonicConv1d(2, 3), (1, 2, 9)), (SonicConv3d(2, 3), (1, 2, 4, 5, 6))]:
        assert layer(torch.randn(shape)).shape == (1, 3, *shape[2:])
        assert layer.num_modes == 8
