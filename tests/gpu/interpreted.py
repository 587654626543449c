"""Laws of the kernels with numbers; run by test_gpu.py under Triton's interpreter, on the CPU."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

import torchsonic
from torchsonic.engine import accelerator, parameters
from torchsonic.engine.call import Operands, Options, run_plain
from torchsonic.engine.fused_parameters import FusedParameters
from torchsonic.functional import ModeShape, ResponseLimits, spectral_conv
from torchsonic.parallel import shard_parameters

# NumPy warns of the logarithm of zero, whose sigmoid is zero.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
LIMITS = (ResponseLimits(), ResponseLimits(2), ResponseLimits(0, 1.2), ResponseLimits(1, 1.2, True))


@pytest.fixture(autouse=True, scope="module")
def _triton():
    before, accelerator._chosen = accelerator._chosen, None
    torchsonic.set_coupling("triton")
    yield
    accelerator._chosen = before


def assert_close(found, wanted, dtype):
    for index, (a, b) in enumerate(zip(found, wanted, strict=True)):
        error = (a - b).abs().max() / b.abs().max().clamp_min(1e-2)
        assert error < TOLERANCE[dtype], (index, error.item())


@st.composite
def calls(draw):
    """What is applied to what, and how; sizes are small, since the interpreter is slow."""
    num_axes = draw(st.sampled_from((1, 2, 2, 3)))
    size = tuple(draw(st.lists(st.integers(1, 8 - num_axes), min_size=num_axes, max_size=num_axes)))
    order, symmetry = draw(st.sampled_from((("modes", "real"), ("channels", "real"), ("channels", "half"))))
    return {
        "size": size,
        "output_size": draw(st.sampled_from((size, tuple(n + draw(st.integers(0, 2)) for n in size)))),
        "limits": draw(st.sampled_from(LIMITS)),
        "symmetry": symmetry,
        "execution": {"order": order, "mode_chunk": draw(st.sampled_from((None, 1)))},
        "per_sample": draw(st.sets(st.sampled_from(("spacing", "direction", "scale", "gain")))),
        **draw(st.sampled_from(({}, {"padding_mode": "zeros", "padding": 2}, {"padding_mode": "reflect"}))),
    }


def operands_of(size, per_sample, limits, *, batch=2, modes=2):
    """Tensors in the order of ``Operands`` up to the cutoff, and the spacing."""

    def rows(name):
        return batch if name in per_sample else 1

    def positive(name=""):
        return torch.rand(rows(name), modes, dtype=torch.float64) + 0.3

    direction = torch.randn(rows("direction"), modes, len(size), dtype=torch.float64)
    tensors = [
        torch.randn(batch, 2, *size, dtype=torch.float64),
        torch.randn(modes, 2, 2, dtype=torch.float64),
        torch.randn(3, modes, 2, dtype=torch.float64),
        torch.nn.functional.normalize(direction, dim=-1),
        *(positive(name) for name in ("scale", "damping", "oscillation", "transverse", "gain")),
        positive() if limits.band_order else None,
    ]
    return tensors, torch.rand(rows("spacing"), len(size), dtype=torch.float64) + 0.5


@settings(max_examples=16, phases=[Phase.explicit, Phase.generate])  # shrinking would take minutes
@given(calls(), st.sampled_from(tuple(TOLERANCE)))
def test_kernels_equal_the_definition_with_all_gradients(call, dtype):
    size, per_sample, execution = (call.pop(name) for name in ("size", "per_sample", "execution"))
    torch.manual_seed(0)
    tensors, spacing = operands_of(size, per_sample, call["limits"])
    cast = [None if t is None else t.to(dtype).requires_grad_() for t in tensors]
    y = spectral_conv(*cast[:3], ModeShape(*cast[3:]), spacing=spacing, execution=execution, **call)
    # Float32 is compared with float64 at the same rounded numbers.
    exact = [None if t is None else t.detach().double().requires_grad_() for t in cast]
    expected = run_plain(Operands(*exact, None, spacing), Options.checked(size, **call))
    grad = torch.randn_like(y)
    found = torch.autograd.grad(y, [t for t in cast if t is not None], grad)
    wanted = torch.autograd.grad(expected, [t for t in exact if t is not None], grad.double())
    assert_close((y, *found), (expected, *wanted), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("num_axes", [1, 2, 3])
@pytest.mark.parametrize("spread", [1.0, 6.0])
def test_fused_parameters_equal_the_definition_with_all_gradients(num_axes, spread, dtype):
    raw = [torch.randn(21, num_axes), *(spread * torch.randn(4, 21)), torch.tensor(2.3)]
    raw[0][3] = 0  # a direction that is lost
    raw = [t.to(dtype).requires_grad_() for t in raw]
    exact = [t.detach().double().requires_grad_() for t in raw]
    spacing = (0.7, 1.3, 2.1)[:num_axes]
    found, wanted = FusedParameters.apply(parameters._plain, spacing, *raw), parameters._plain(exact, spacing)
    grads = [torch.randn_like(t) for t in found]
    found += torch.autograd.grad(found, raw, grads)
    wanted += torch.autograd.grad(wanted, exact, [g.double() for g in grads])
    assert_close(found, wanted, dtype)


def test_fused_parameters_have_second_derivatives():
    raw = [t.double().requires_grad_() for t in (torch.randn(2, 2), *torch.randn(4, 2), torch.tensor(1.5))]
    assert torch.autograd.gradgradcheck(lambda *t: FusedParameters.apply(parameters._plain, (1.0, 2.0), *t), raw)


def test_a_dropped_mode_has_no_gradient():
    layer = torchsonic.SonicConv2d(2, 2, num_modes=2)
    shape = [t.detach() for t in layer._shape((4, 4), torch.ones(1, 2), torch.float32)[:6]]
    shape[5][0, 0] = 0
    shape = [t.requires_grad_() for t in shape]
    x, mixing = torch.randn(1, 2, 4, 4), (layer.mix_in, layer.mix_out)
    spectral_conv(x, *mixing, ModeShape(*shape), spacing=torch.ones(1, 2)).square().sum().backward()
    assert all(t.grad[0, 0].abs().max() == 0 for t in shape)
    assert all(t.grad[0, 1].abs().max() > 0 for t in shape)


@pytest.fixture
def one_process(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("wrap", ["ddp", "fsdp2"])
def test_the_kernels_run_in_distributed_training(wrap, one_process):
    layer, x = torchsonic.SonicConv2d(2, 2, num_modes=2), torch.randn(1, 2, 4, 5)
    layer(x).square().sum().backward()
    wanted = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    wrapped = DistributedDataParallel(layer) if wrap == "ddp" else shard_parameters(layer, mesh)
    wrapped(x).square().sum().backward()
    grads = [p.grad.full_tensor() if wrap == "fsdp2" else p.grad for p in layer.parameters()]
    assert all(torch.allclose(a, b.view_as(a)) for a, b in zip(grads, wanted, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_extreme_parameters_leave_output_and_gradients_finite(seed):
    torch.manual_seed(seed)
    layer, x = torchsonic.SonicConv2d(2, 2, num_modes=4), torch.randn(1, 2, 8, 8, requires_grad=True)
    with torch.no_grad():
        for parameter in layer.mode_parameters()[:5]:
            parameter.add_(30 * torch.randn_like(parameter))
    y = layer(x, spacing=(1e-3, 1.0, 1e3, 0.2)[seed])
    y.sum().backward()
    assert all(t.isfinite().all() for t in (y, x.grad, *[p.grad for p in layer.parameters()]))
