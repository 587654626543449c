"""Half precision anywhere round a layer never reaches a Fourier transform, and float64 never a device without it."""

import copy

import pytest
import torch
from torch.func import functional_call, grad, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.layers import make_layer
from torchsonic.functional import frequency_grid, resample
from torchsonic.nn import SonicConvNd
from torchsonic.spectral import spacing as spacings
from torchsonic.testing import relative_error

HALVES = [torch.bfloat16, torch.float16]
# Weights, input, autocast.
SETTINGS = [
    *[(torch.float32, torch.float32, half) for half in HALVES],
    *[(torch.float32, half, half) for half in HALVES],
    *[(half, half, None) for half in HALVES],
    *[(half, half, half) for half in HALVES],
    *[(half, torch.float32, None) for half in HALVES],
]
SIZES = [(8,), (7,), (6, 8), (5, 7), (4, 3, 5)]
WIDE = {torch.float32, torch.complex64, torch.float64, torch.complex128}


class Watch(TorchDispatchMode):
    """Notes the types that Fourier transforms get, and those of everything that is made."""

    def __init__(self):
        super().__init__()
        self.transformed, self.made = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name().startswith(("aten::_fft_", "torchsonic::resample")):
            self.transformed.add(args[0].dtype)
        made = func(*args, **(kwargs or {}))
        # A number of Python is a tensor without axes, which stays on the host.
        self.made |= {t.dtype for t in tree_leaves(made) if isinstance(t, torch.Tensor) and t.dim() > 0}
        return made


def within(autocast):
    return torch.autocast("cpu", dtype=autocast, enabled=autocast is not None)


def train(layer: SonicConvNd, x):
    x = x.clone().requires_grad_()
    layer(x).float().square().mean().backward()
    assert x.grad is not None
    return x.grad


def differentiate_twice(layer, x):
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(layer(x).float().square().mean(), x, create_graph=True)
    first.float().square().sum().backward()


def evaluate_twice(layer, x):
    layer.eval()
    with torch.no_grad():
        torch.testing.assert_close(layer(x), layer(x), rtol=0, atol=0)
    assert len(layer._cache) == 1


def differentiate_each_sample(layer, x):
    def loss(parameters, sample):
        return functional_call(layer, parameters, (sample[None],)).float().square().mean()

    vmap(grad(loss), in_dims=(None, 0))(dict(layer.named_parameters()), x)


def push_forward(layer, x):
    jvp(layer, (x,), (torch.ones_like(x),))


def look_at_kernels(layer, x):
    layer.kernel(x.shape[2:])
    layer.mode_kernels(x.shape[2:])


def resize(layer, x):
    resample(x, 9)


WAYS = [
    train,
    differentiate_twice,
    evaluate_twice,
    differentiate_each_sample,
    push_forward,
    look_at_kernels,
    resize,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_transform_sees_half_precision(way):
    for weights, given, autocast in SETTINGS:
        for size in SIZES if way is train else SIZES[2:4]:
            layer = make_layer(len(size), dtype=weights)
            x = torch.randn(2, 3, *size, dtype=given)
            with Watch() as watch, within(autocast):
                way(layer, x)
            assert watch.transformed
            assert watch.transformed <= WIDE, (weights, given, autocast, size)


@pytest.mark.parametrize(("weights", "given", "autocast"), SETTINGS)
def test_gradients_have_the_types_of_their_parameters(weights, given, autocast):
    for options in ({}, {"execution": {"recompute": True, "mode_chunk": 2}}, {"variant": "paper"}):
        layer = make_layer(2, dtype=weights, **options)
        with within(autocast):
            grad_x = train(layer, torch.randn(2, 3, 5, 6, dtype=given))
        assert grad_x.dtype == given
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None
            assert parameter.grad.dtype == weights, name
            assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize(("weights", "given", "autocast"), [SETTINGS[2], SETTINGS[4], SETTINGS[5]])
def test_no_transform_sees_half_precision_when_compiled(monkeypatch, weights, given, autocast):
    seen = set()
    for name in ("rfftn", "irfftn"):
        plain = getattr(torch.fft, name)

        def watched(x, *arguments, plain=plain, **options):
            seen.add(x.dtype)
            return plain(x, *arguments, **options)

        monkeypatch.setattr(torch.fft, name, watched)
    torch._dynamo.reset()
    layer = make_layer(2, dtype=weights)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 5, 6, dtype=given)
    with within(autocast):
        grad_x = train(compiled, x)  # type: ignore[arg-type]
        assert relative_error(grad_x, train(copy.deepcopy(layer), x)) < 2e-2
    assert seen == {torch.float32, torch.complex64}
    assert all(p.grad is not None and p.grad.dtype == weights for p in layer.parameters())


@pytest.mark.parametrize("half", HALVES)
def test_second_derivatives_inside_autocast_are_as_exact_as_outside(half):
    layer = make_layer(2, dtype=torch.float32)
    x = torch.randn(2, 3, 5, 6)

    def first():
        t = x.clone().requires_grad_()
        return torch.autograd.grad(layer(t).square().mean(), [t, *layer.parameters()], create_graph=True)

    expected = first()
    with torch.autocast("cpu", dtype=half):
        actual = first()
    for a, b in zip(actual, expected, strict=True):
        assert relative_error(a, b) < 1e-5


@pytest.mark.parametrize("half", HALVES)
def test_half_precision_costs_its_own_rounding_and_no_more(half):
    """Against float64 with the same rounded numbers: input and weights are exact, only the output is rounded."""
    for size in SIZES:
        layer = make_layer(len(size), dtype=half)
        x = torch.randn(2, 3, *size, dtype=half)
        exact = copy.deepcopy(layer).double()(x.double())
        assert relative_error(layer(x), exact) <= torch.finfo(half).eps  # half a unit in the last place, at most


@pytest.mark.parametrize("variant", ["exact", "paper"])
def test_devices_without_float64_are_asked_for_none(monkeypatch, variant):
    """The CPU plays such a device."""
    monkeypatch.setattr(spacings, "DEVICES_WITHOUT_FLOAT64", {"cpu"})
    for options in ({}, {"padding_mode": "zeros"}, {"gain": "free", "limits": {"band_order": 2, "magnitude": 2.0}}):
        layer = make_layer(2, dtype=torch.float32, variant=variant, field=8, spacing=(0.3, 2.0), **options)
        x = torch.randn(2, 3, 5, 6)
        each = torch.tensor([[0.5, 1.0], [2.0, 3.0]], dtype=torch.float64)  # on the host
        with Watch() as watch:
            for spacing in (None, 0.7, (0.3, 4.0), each):
                layer.train()
                torch.autograd.grad(layer(x, spacing=spacing).square().mean(), list(layer.parameters()))
                layer.eval()
                with torch.no_grad():
                    layer(x, spacing=spacing, output_size=(7, 4))
            look_at_kernels(layer, x)
            layer.response(torch.zeros(1, 2))
            differentiate_twice(layer, x)
            frequency_grid((4, 5), 0.5)
        assert watch.made <= {torch.float32, torch.complex64, torch.bool, torch.int64}
