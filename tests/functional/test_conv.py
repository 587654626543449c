import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint

from tests.layers import make_layer
from torchsonic import SonicConv2d
from torchsonic.functional import ORDERS, ModeShape, sonic_conv, spectral_conv
from torchsonic.nn import Execution
from torchsonic.testing import relative_error

PADDINGS = ["circular", "zeros", "reflect"]


def gradients(y, inputs, seed=0):
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(y)
    return torch.autograd.grad(y, inputs, weight)


def test_modes_rebuild_the_layer():
    layer = make_layer(2, padding_mode="reflect")
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    y = sonic_conv(x, layer.modes(), layer.bias, spacing=(0.5, 2.0), padding_mode="reflect")
    torch.testing.assert_close(y, layer(x, spacing=(0.5, 2.0)))


@given(
    st.sampled_from(ORDERS),
    st.sampled_from(PADDINGS),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_kernels_equal_plain_operations_at_any_output_size(order, padding, chunk, recompute, h, w, out_h, out_w):
    layer = make_layer(2, (2, 3), 4, padding_mode=padding, execution=Execution(order, chunk, recompute))
    x = torch.randn(3, 2, h, w, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.parameters()]
    y = layer(x, spacing=(0.8, 1.7), output_size=(out_h, out_w))
    actual = gradients(y, inputs)
    # Inside torch.func the operator is made of ordinary operations.
    parameters = dict(layer.named_parameters())
    plain = vmap(lambda t: functional_call(layer, parameters, (t, (0.8, 1.7), (out_h, out_w))))(x[:, None])[:, 0]
    assert relative_error(y, plain) < 1e-11
    for a, b in zip(actual, gradients(plain, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("size", [(5,), (4,), (3, 4), (2, 3, 2)])
def test_first_and_second_derivatives_pass_gradcheck(variant, padding, size):
    layer = make_layer(len(size), (2, 2), 2, variant=variant, padding_mode=padding, field=8)
    x = torch.randn(2, 2, *size, dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True)

    def call(x, *values):
        return functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(call, (x, *values), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, (x, *values), fast_mode=True)


@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize("size", [(9,), (5, 6), (3, 4, 2)])
def test_gradients_that_can_be_differentiated_equal_those_that_cannot(size, variant):
    layer = make_layer(len(size), variant=variant, limits={"band_order": 2, "magnitude": 1.5})
    x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.parameters()]
    loss = layer(x).square().sum()
    expected = torch.autograd.grad(loss, inputs, retain_graph=True)
    for a, b in zip(torch.autograd.grad(loss, inputs, create_graph=True), expected, strict=True):
        assert relative_error(a, b) < 1e-10


def test_operands_made_of_one_another_get_their_gradient_once():
    modes = make_layer(2).modes()
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)

    def call(x):
        return sonic_conv(x, modes._replace(gain=modes.gain * x.square().mean()), x.mean((0, 2, 3))[:1].expand(4))

    assert torch.autograd.gradcheck(call, (x,), fast_mode=True)
    loss = call(x).square().sum()
    (expected,) = torch.autograd.grad(loss, x, retain_graph=True)
    (differentiable,) = torch.autograd.grad(loss, x, create_graph=True)
    assert relative_error(differentiable, expected) < 1e-10
    assert torch.autograd.gradgradcheck(call, (x,), fast_mode=True)


def test_per_sample_spacing_equals_one_call_per_sample():
    for variant in ("exact", "paper"):
        layer = make_layer(3, variant=variant)
        x = torch.randn(3, 3, 4, 5, 6, dtype=torch.float64, requires_grad=True)
        spacing = torch.rand(3, 3, dtype=torch.float64) + 0.5
        inputs = [x, *layer.parameters()]
        together = layer(x, spacing=spacing)
        apart = torch.cat([layer(x[i : i + 1], spacing=spacing[i].tolist()) for i in range(3)])
        assert relative_error(together, apart) < 1e-12
        for a, b in zip(gradients(together, inputs), gradients(apart, inputs), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_per_sample_gradients_and_forward_mode_work():
    layer = make_layer(2)
    parameters = dict(layer.named_parameters())
    x = torch.randn(3, 3, 5, 6, dtype=torch.float64)

    def loss(parameters, x):
        return functional_call(layer, parameters, (x[None],)).square().sum()

    together = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i in range(3):
        alone = torch.autograd.grad(loss(parameters, x[i]), list(parameters.values()))
        for name, value in zip(parameters, alone, strict=True):
            torch.testing.assert_close(together[name][i], value)
    tangent = torch.randn_like(x)
    _, derivative = jvp(layer, (x,), (tangent,))
    bias = layer.bias
    assert bias is not None
    torch.testing.assert_close(derivative, layer(tangent) - bias[:, None, None])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("variant", ["exact", "paper"])
def test_dual_numbers_carry_the_derivative_along(variant, order):
    layer = make_layer(2, variant=variant, execution={"order": order})
    x, tangent = torch.randn(2, 1, 3, 5, 6, dtype=torch.float64)
    _, expected = jvp(layer, (x,), (tangent,))
    for training, graph in ((True, True), (False, True), (False, False)):
        layer.train(training)
        with forward_ad.dual_level(), torch.set_grad_enabled(graph):
            actual = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, tangent))).tangent
        assert actual is not None
        assert relative_error(actual, expected) < 1e-12
    names, values = zip(*layer.named_parameters(), strict=True)

    def call(*values):
        return functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(call, values, check_forward_ad=True, check_backward_ad=False, fast_mode=True)


@pytest.mark.parametrize("limits", [{}, {"band_order": 2, "magnitude": 1.5, "soft": True}])
def test_custom_operator_passes_opcheck(limits):
    layer = make_layer(2, (2, 3), 2, dtype=torch.float64, limits=limits)
    shape = layer._shape((4, 5), torch.ones(1, 2, dtype=torch.float64), torch.float64)
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    for order in ORDERS[:1] if limits else ORDERS:  # limits do not know the order
        for keep in (False, True):
            arguments = (
                x,
                layer.mix_in,
                layer.mix_out,
                *[t if t is None else t.detach().requires_grad_() for t in shape],
                layer.bias,
                torch.ones(1, 2, dtype=torch.float64),
                [4, 5],
                "circular",
                [0],
                order,
                0,
                "real",
                *layer.limits,
                keep,
                False,
            )
            torch.library.opcheck(torch.ops.torchsonic.spectral_conv.default, arguments)


def test_compiled_calls_take_any_number_of_samples_and_modes():
    compiled = torch.compile(spectral_conv, fullgraph=True, backend="eager", dynamic=True)
    for batch, num_modes in ((2, 3), (3, 4), (4, 4)):
        layer = make_layer(2, num_modes=num_modes)
        spacing = torch.rand(batch, 2, dtype=torch.float64) + 0.5
        x = torch.randn(batch, 3, 4, 5, dtype=torch.float64)
        shape = layer._shape((4, 5), spacing, torch.float64).each(Tensor.detach)
        operands = (x, layer.mix_in.detach(), layer.mix_out.detach(), shape, layer.bias)
        assert relative_error(compiled(*operands, spacing=spacing), layer(x, spacing=spacing)) < 1e-12


def test_gradients_have_the_layout_that_compilers_are_told():
    layer = make_layer(2, limits={"band_order": 2})
    spacing = torch.ones(1, 2, dtype=torch.float64)
    shape = layer._shape((4, 5), spacing, torch.float64).each(Tensor.detach)
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    weights = [layer.mix_in.detach(), layer.mix_out.detach(), *shape]
    transposed = [w if w is None else w.mT.contiguous().mT for w in weights]
    arguments = (layer.bias, spacing, [4, 5], "circular", [0], "modes", 0, "real", *layer.limits, [True] * 11)
    backward, grad_y = torch.ops.torchsonic.spectral_conv_backward.default, torch.ones(2, 4, 4, 5, dtype=torch.float64)
    told = (grad_y, [], x, *transposed, *arguments)
    torch.library.opcheck(backward, told, test_utils=("test_schema", "test_faketensor"))
    actual, expected = backward(*told), backward(grad_y, [], x, *weights, *arguments)
    for a, b in zip(actual, expected, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize("spacing", [1.5, torch.ones(0, 2)], ids=["shared", "per sample"])
def test_empty_batch_gives_empty_output_and_zero_gradients(variant, spacing):
    layer = make_layer(2, variant=variant)
    x = torch.randn(0, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    y = layer(x, spacing=spacing)
    assert y.shape == (0, 4, 4, 5)
    for create_graph in (False, True):
        grads = torch.autograd.grad(y.sum(), [x, *layer.parameters()], create_graph=create_graph, retain_graph=True)
        assert not any(g.any() for g in grads)


def test_frozen_modes_leave_the_other_gradients_as_they_are(monkeypatch):
    layer = make_layer(2)
    x = torch.randn(1, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    expected = gradients(layer(x), [x, layer.mix_in, layer.mix_out])
    for p in layer.mode_parameters():
        p.requires_grad_(False)
    # Their gradients are not even computed.
    monkeypatch.delattr("torchsonic.engine.coupling.TorchCoupling.gradients")
    for a, b in zip(gradients(layer(x), [x, layer.mix_in, layer.mix_out]), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_tracing_with_fake_tensors_leaves_no_trace():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        SonicConv2d(3, 4, num_modes=5, spacing=0.123)(torch.randn(2, 3, 10, 14))
    assert torch.isfinite(SonicConv2d(3, 4, num_modes=5, spacing=0.123)(torch.randn(2, 3, 10, 14))).all()


def test_a_meta_layer_knows_its_output_shape():
    layer = SonicConv2d(3, 4, num_modes=5, stride=2, device="meta")
    assert layer(torch.randn(2, 3, 9, 8, device="meta")).shape == (2, 4, 5, 4)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(reentrant):
    layer = make_layer(2)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.parameters()]
    expected = torch.autograd.grad(layer(x).square().sum(), inputs)
    checkpoint(layer, x, use_reentrant=reentrant).square().sum().backward()
    for tensor, wanted in zip(inputs, expected, strict=True):
        assert tensor.grad is not None
        torch.testing.assert_close(tensor.grad, wanted)


def test_an_ensemble_evaluates_under_vmap():
    models = [make_layer(2, seed=seed).eval() for seed in range(3)]
    parameters, buffers = stack_module_state(models)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    with torch.no_grad():
        together = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(parameters, buffers)
        for one, model in zip(together, models, strict=True):
            torch.testing.assert_close(one, model(x))


def test_underflowing_penalty_has_finite_derivatives_of_every_kind():
    layer = make_layer(2, dtype=torch.float32)
    with torch.no_grad():
        layer.raw_transverse.fill_(-200.0)
    parameters = dict(layer.named_parameters())
    x = torch.randn(1, 3, 5, 6)
    once = grad(lambda p: functional_call(layer, p, (x,)).square().sum())(parameters)
    assert all(torch.isfinite(g).all() for g in once.values())
    first = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()), create_graph=True)
    second = torch.autograd.grad(sum(g.sum() for g in first), list(layer.parameters()))  # type: ignore[arg-type]
    assert all(torch.isfinite(g).all() for g in second)


def test_backward_inside_autocast_is_as_exact_as_outside():
    layer = make_layer(2, dtype=torch.float32)
    x = torch.randn(2, 3, 9, 8)
    expected = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    for a, b in zip(actual, expected, strict=True):
        assert relative_error(a, b) < 1e-5


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"x": torch.zeros(1, 3, 5, 5, dtype=torch.long)}, TypeError, "real floating-point"),
        ({"x": torch.zeros(1, 3, 5, 5, dtype=torch.bfloat16)}, TypeError, "must both be float32 or float64"),
        ({"x": torch.zeros(1, 2, 5, 5)}, ValueError, "expects 3 channels, got 2"),
        ({"x": torch.zeros(3, 5, 5)}, ValueError, r"expects \(batch, channel, 2 axes\), got shape \(3, 5, 5\)"),
        ({"x": torch.zeros(3)}, ValueError, r"expects \(batch, channel, 2 axes\), got shape \(3,\)"),
        ({"spacing": (1.0, 1.0, 1.0)}, ValueError, r"spacing needs 1 or 2 values"),
        ({"bias": torch.zeros(1)}, ValueError, r"bias must have shape \(4,\) to fit mix_in and mix_out, got \(1,\)"),
        ({"output_size": (4, 0)}, ValueError, "output_size"),
        ({"output_size": (4,)}, ValueError, "output_size"),
        ({"execution": {"mode_chunk": 0}}, ValueError, "mode_chunk must be at least 1"),
        ({"padding_mode": "wrap"}, ValueError, "padding_mode"),
        ({"execution": {"order": "best"}}, ValueError, "order"),
        ({"best": 1}, TypeError, "sonic_conv has no option 'best'"),
    ],
)
def test_the_function_refuses_bad_input_by_name(change, error, words):
    arguments = {"x": torch.zeros(1, 3, 5, 5), "modes": make_layer(2, dtype=torch.float32).modes(), **change}
    with pytest.raises(error, match=words):
        sonic_conv(**arguments)


def test_old_keywords_of_the_functions_work_and_name_their_replacement():
    layer, x = make_layer(2, limits={"band_order": 2}), torch.randn(1, 3, 6, 5, dtype=torch.float64)
    operator = layer.reference_operator()
    expected = sonic_conv(x, operator, execution={"order": "modes", "mode_chunk": 2})
    with pytest.warns(FutureWarning) as seen:
        y = sonic_conv(x, operator.modes, cutoff=operator.cutoff, limits=operator.limits, order="modes", mode_chunk=2)
    said = [str(warning.message) for warning in seen]
    assert "order= is deprecated; pass execution={'order': 'modes'} instead" in said
    assert any("cutoff=, limits= of sonic_conv is deprecated; pass torchsonic.functional.ModeOper" in s for s in said)
    assert y.equal(expected)
    spacing, ones = torch.ones(1, 2, dtype=torch.float64), torch.ones(1, 6, dtype=torch.float64)
    shape = ModeShape(torch.ones(1, 6, 2, dtype=torch.float64), ones, ones, ones, ones, ones)
    operands = (x, layer.mix_in, layer.mix_out, shape)
    with pytest.warns(FutureWarning, match="recompute= is deprecated"):
        y = spectral_conv(*operands, spacing=spacing, recompute=True)  # type: ignore[call-arg]
    assert y.equal(spectral_conv(*operands, spacing=spacing, execution={"recompute": True}))
    with pytest.raises(TypeError, match="spectral_conv has no option 'best'"):
        spectral_conv(*operands, spacing=spacing, best=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("mix_in", (6, 3, 3), r"\(6, 2, 3\)"),
        ("mix_out", (4, 7, 2), r"\(4, 6, 2\)"),
        ("direction", (1, 7, 2), r"\(1, 6, 2\)"),
        ("scale", (1, 7), r"\(1, 6\)"),
        ("gain", (3, 6), r"\(1, 6\), or \(2, 6\) with one row per sample"),
        ("cutoff", (6,), r"\(1, 6\)"),
        ("spacing", (3, 2), r"\(1, 2\), or \(2, 2\) with one row per sample"),
        ("spacing", (1, 3), r"\(1, 2\)"),
    ],
)
def test_tensors_that_do_not_belong_together_are_refused(name, shape, wanted):
    layer = make_layer(2, limits={"band_order": 2})
    operands = {
        "mix_in": layer.mix_in,
        "mix_out": layer.mix_out,
        **layer._shape((4, 5), torch.ones(1, 2), torch.float64)._asdict(),
        "spacing": torch.ones(1, 2, dtype=torch.float64),
    }
    operands[name] = torch.ones(shape, dtype=torch.float64)
    modes = ModeShape(*[operands.pop(field) for field in ModeShape._fields])
    with pytest.raises(ValueError, match=f"{name} must have shape {wanted}"):
        spectral_conv(torch.zeros(2, 3, 4, 5, dtype=torch.float64), shape=modes, limits=layer.limits, **operands)
