"""Limits of the responses against their definitions, with gradients."""

import copy

import pytest
import torch

from tests.layers import make_layer
from torchsonic import testing
from torchsonic.functional import ModeOperator, ResponseLimits, frequency_grid, sonic_conv
from torchsonic.spectral.limits import limit_backward, limit_response
from torchsonic.spectral.response import on_grid
from torchsonic.testing import dense_conv, relative_error

LIMITS = {
    "band": {"limits": {"band_order": 2}},
    "hard": {"limits": {"magnitude": 1.5}},
    "soft": {"limits": {"magnitude": 1.5, "soft": True}},
    "all": {"limits": {"band_order": 4, "magnitude": 2.0, "soft": True}, "gain": "free"},
    "dc": {"gain": "dc", "limits": {"magnitude": 3.0}},
}


def limited_layer(num_axes, name, **options):
    layer = make_layer(num_axes, num_modes=4, **LIMITS[name], **options)
    with torch.no_grad():
        for parameter in (layer.log_gain, layer.raw_cutoff):
            if parameter is not None:
                parameter.add_(torch.randn_like(parameter))
    return layer


def assert_same_with_gradients(actual, expected, inputs, tolerance=1e-10):
    assert relative_error(actual, expected) < tolerance
    weight = torch.randn_like(actual)
    grads = (torch.autograd.grad(y, inputs, weight, retain_graph=True) for y in (actual, expected))
    for got, wanted in zip(*grads, strict=True):
        assert relative_error(got, wanted) < tolerance


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("size", [(9,), (6, 5), (3, 4, 4)])
def test_limited_layers_equal_the_dense_reference_with_all_gradients(size, name):
    layer = limited_layer(len(size), name)
    spacing = (0.7, 1.6, 2.5)[: len(size)]
    x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
    modes = layer.modes(without_limits=True)
    expected = dense_conv(x, modes, layer.bias, spacing=spacing, cutoff=layer.cutoff(), limits=layer.limits)
    assert_same_with_gradients(layer(x, spacing=spacing), expected, [x, *layer.parameters()])


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("variant", ["exact", "paper"])
def test_vanishing_responses_have_finite_second_derivatives(variant, soft):
    exact = make_layer(2, variant=variant, limits={"band_order": 8, "magnitude": 1.0, "soft": soft}, standardise=False)
    with torch.no_grad():
        exact.raw_cutoff.fill_(-6.0)  # pyright: ignore[reportOptionalMemberAccess]
    x = torch.randn(1, 3, 16, 16, dtype=torch.float64)

    def second_derivatives(layer):
        weights = list(layer.parameters())
        first = torch.autograd.grad(layer(x.to(weights[0])).square().sum(), weights, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), weights)  # type: ignore[arg-type]

    expected = second_derivatives(exact)
    largest = max(g.abs().max().item() for g in expected)
    for got, wanted in zip(second_derivatives(copy.deepcopy(exact).float()), expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=0, atol=1e-4 * largest)


@pytest.mark.parametrize("execution", [{"recompute": True}, {"mode_chunk": 1}, {"order": "channels"}])
def test_every_order_of_evaluation_gives_the_same(execution):
    plain, other = limited_layer(2, "all"), limited_layer(2, "all", execution=execution)
    other.load_state_dict(plain.state_dict())
    x = torch.randn(2, 3, 6, 5, dtype=torch.float64, requires_grad=True)
    y, z = plain(x), other(x)
    assert relative_error(z, y) < 1e-12
    weight = torch.randn_like(y)
    first = torch.autograd.grad(y, [x, *plain.parameters()], weight)
    second = torch.autograd.grad(z, [x, *other.parameters()], weight)
    for got, wanted in zip(second, first, strict=True):
        assert relative_error(got, wanted) < 1e-10


def test_one_spacing_per_sample_has_its_own_cutoffs_in_the_papers_variant():
    layer = limited_layer(2, "all", variant="paper")
    x = torch.randn(2, 3, 6, 8, dtype=torch.float64, requires_grad=True)
    steps = torch.tensor([[0.5, 1.0], [2.0, 0.7]], dtype=torch.float64)
    together = layer(x, spacing=steps)
    apart = torch.cat([layer(x[i : i + 1], spacing=steps[i].tolist()) for i in (0, 1)])
    assert_same_with_gradients(together, apart, [x, *layer.parameters()])


def test_second_derivatives_and_evaluation_cache_know_the_limits():
    layer = limited_layer(2, "all")
    x = torch.randn(1, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    once = torch.autograd.grad(layer(x).square().sum(), layer.raw_cutoff)[0]
    twice = torch.autograd.grad(layer(x).square().sum(), layer.raw_cutoff, create_graph=True)[0]
    assert relative_error(twice, once) < 1e-10
    y = layer(x)
    with torch.no_grad():
        assert relative_error(layer.eval()(x), y) < 1e-12
        assert len(layer._cache) == 1


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.05, 0.3, 1.0, 20.0])
def test_gradients_of_limits_equal_autograd_at_every_size(size, soft):
    limits = ResponseLimits(3, 0.5, soft)
    omega = on_grid([torch.linspace(a, 3, n, dtype=torch.float64)[None] for a, n in ((0, 5), (-3, 4))])
    cutoff = torch.rand(1, 2, dtype=torch.float64).add_(1).requires_grad_()
    raw = (size * torch.randn(1, 2, 5, 4, dtype=torch.complex128)).requires_grad_()
    weight = torch.randn(1, 2, 5, 4, dtype=torch.complex128)
    loss = (weight * limit_response(raw, omega, cutoff, limits)).real.sum()
    wanted, wanted_cutoff = torch.autograd.grad(loss, [raw, cutoff])
    grad, grad_cutoff = limit_backward(weight, raw, omega, cutoff, limits)
    assert relative_error(grad_cutoff, wanted_cutoff) < 1e-8
    assert relative_error(grad.conj(), wanted) < 1e-8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [(8,), (6, 5), (3, 4, 4)])
def test_the_laws_of_the_operator_hold_within_limits(size, dtype):
    layer = limited_layer(len(size), "all", dtype=dtype, spacing=(2.0, 0.5, 1.0)[: len(size)])
    spacing = (0.7, 1.9, 12.0)[: len(size)]
    testing.assert_matches_dense(layer, size, spacing)
    testing.assert_gradients_match_dense(layer, size, spacing)
    testing.assert_shift_equivariant(layer, size, spacing)
    testing.assert_permutes_with_axes(layer, size, spacing)
    testing.assert_unit_free(layer, size, 1e-6)
    grids = [(9, 9, 9), (9, 18, 11), (16, 8, 12)]
    testing.assert_resolution_invariant(layer, [grid[: len(size)] for grid in grids])


def test_a_constant_passes_with_magnitude_one_under_dc_gain():
    layer = make_layer(2, gain="dc")
    modes = layer.modes()
    assert torch.allclose(modes.gain / modes.pole.abs(), torch.ones(6, dtype=torch.float64))


def test_symbol_of_a_limited_layer_is_that_of_its_kernel():
    layer = limited_layer(2, "all")
    omega = frequency_grid((7, 9), 1.0, dtype=torch.float64)
    seen = torch.fft.fftn(layer.kernel((7, 9)), dim=(2, 3)).permute(2, 3, 0, 1)
    assert relative_error(seen, layer.response(omega)) < 1e-10


def test_compiled_operator_knows_the_limits():
    layer = limited_layer(2, "all")
    x = torch.randn(2, 3, 6, 5, dtype=torch.float64, requires_grad=True)
    torch._dynamo.reset()  # behind a recompilation, graphs give up buffers that a second backward pass needs
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_same_with_gradients(compiled(x), layer(x), [x, *layer.parameters()])


def test_layers_with_different_limits_compile_in_one_process():
    x = torch.randn(2, 3, 6, 5, dtype=torch.float64)
    for magnitude, order in ((1.5, 3), (2.0, 4), (2.5, 5)):  # numbers that change become symbols
        layer = make_layer(2, limits={"band_order": order, "magnitude": magnitude, "soft": True})
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert relative_error(compiled(x), layer(x)) < 1e-12


def test_limits_off_leave_state_dict_and_operator_alone():
    assert not {"log_gain", "raw_cutoff"} & set(make_layer(2).state_dict())
    layer = make_layer(2)
    x = torch.randn(1, 3, 6, 5, dtype=torch.float64)
    assert sonic_conv(x, layer.modes(), layer.bias).equal(
        sonic_conv(x, ModeOperator(layer.modes(), None, ResponseLimits()), layer.bias)
    )


def test_dropping_modes_scales_the_others_after_the_limit():
    layer = limited_layer(2, "hard", mode_dropout=0.5).train()
    x = torch.randn(1, 3, 6, 5, dtype=torch.float64)
    torch.manual_seed(1)
    kept = (torch.rand(4) >= 0.5).double()
    assert 0 < kept.sum() < 4
    torch.manual_seed(1)
    y = layer(x)
    with torch.no_grad():
        layer.mix_out.mul_(2 * kept[:, None])
    assert relative_error(y, layer.eval()(x)) < 1e-12


def test_wrong_limits_are_named():
    for options, text in (
        ({"limits": {"soft": True}}, "limits.soft=True needs"),
        ({"limits": {"magnitude": -1.0}}, "limits.magnitude must be"),
        ({"limits": {"band_order": -1}}, "limits.band_order must be"),
        ({"limits": {"cutoff": 1}}, "limits may contain only band_order, magnitude, soft, got 'cutoff'"),
        ({"gain": "rms"}, "gain"),
    ):
        with pytest.raises(ValueError, match=text):
            make_layer(2, **options)
    layer = limited_layer(2, "band")
    with pytest.raises(ValueError, match="without_limits=True"):
        layer.modes()
    with pytest.raises(ValueError, match="go together"):
        sonic_conv(torch.randn(1, 3, 4, 4).double(), layer.reference_operator()._replace(cutoff=None))
