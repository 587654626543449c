"""Laws of the GPU path that need no numbers; run by test_gpu.py on a CUDA device that computes nothing."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import triton
from torch._dynamo.backends.common import aot_autograd
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_init, _fsdp_param_group, _fsdp_state
from torch.distributed.tensor import Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from triton.backends.compiler import GPUTarget

import torchsonic
from benchmarks.fake_cuda import fake_copy, fake_cuda
from benchmarks.operations import OperationCounter
from torchsonic import doctor
from torchsonic.engine import accelerator, compiled, kernels
from torchsonic.engine.couplings import Couplings
from torchsonic.parallel import shard_parameters

LAYERS = {
    "image": (torchsonic.SonicConv2d, (16, 20), {}),
    "odd, with limits": (torchsonic.SonicConv2d, (15, 9), {"limits": {"band_order": 2, "magnitude": 1.0}}),
    "signal": (torchsonic.SonicConv1d, (24,), {}),
    "volume": (torchsonic.SonicConv3d, (6, 8, 10), {}),
    "stride": (torchsonic.SonicConv2d, (16, 20), {"stride": 2}),
    "margin": (torchsonic.SonicConv2d, (16, 20), {"padding_mode": "zeros", "padding": 4}),
    "mirror": (torchsonic.SonicConv2d, (16, 20), {"padding_mode": "reflect", "padding": 4}),
    "paper": (torchsonic.SonicConv2d, (16, 20), {"variant": "paper"}),
    "dropout": (torchsonic.SonicConv2d, (16, 20), {"mode_dropout": 0.5}),
    "channels first": (torchsonic.SonicConv2d, (16, 20), {"execution": {"order": "channels"}}),
    "chunks": (torchsonic.SonicConv2d, (16, 20), {"execution": {"mode_chunk": 3}}),
}
SYNCHRONISING = {"_local_scalar_dense", "nonzero", "item", "equal", "masked_select", "is_nonzero"}


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    monkeypatch.setattr(accelerator, "_chosen", None)
    with fake_cuda():
        yield


def make(kind, size, options, *, batch=3, channels=4, modes=5):
    with _disable_current_modes():
        layer = kind(channels, channels, num_modes=modes, **options)
    return fake_copy(layer), torch.empty(batch, channels, *size, device="cuda", requires_grad=True)


def make_large(**options):
    """C 64, M 16, 128 px, batch 8, as in docs/gpu.md."""
    return make(torchsonic.SonicConv2d, (128, 128), options, batch=8, channels=64, modes=16)


def step(layer, x, **told):
    y = layer(x, **told)
    return y, *torch.autograd.grad(y, [x, *layer.parameters()], torch.empty_like(y), allow_unused=True)


class Recorder(TorchDispatchMode):
    """Operations with the devices of their tensors, apart from views of nothing."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        devices = {t.device.type for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)}
        name = func.overloadpacket.__name__
        if name != "device":
            self.seen.append((name, frozenset(devices)))
        return result


@pytest.mark.parametrize("case", LAYERS)
def test_a_step_stays_on_the_device_and_repeats_itself(case):
    """So it needs no synchronisation and can be captured in a CUDA graph."""
    layer, x = make(*LAYERS[case])
    step(layer, x)  # fills caches
    with Recorder() as first:
        found = step(layer, x)
    with Recorder() as second:
        step(layer, x)
    assert {t.device.type for t in found if t is not None} == {"cuda"}
    assert {device for _, devices in first.seen for device in devices} == {"cuda"}
    assert not {name for name, _ in first.seen} & SYNCHRONISING
    assert first.seen == second.seen
    names = [name for name, _ in first.seen]
    assert names.count("couple") >= 1
    assert names.count("couple_adjoint") >= 1


def test_spacings_per_sample_on_the_device_need_no_synchronisation():
    layer, x = make(*LAYERS["volume"])
    spacing = torch.empty(3, 3, device="cuda", dtype=torch.float64)
    step(layer, x, spacing=spacing)
    with Recorder() as seen:
        step(layer, x, spacing=spacing)
    assert {device for _, devices in seen.seen for device in devices} == {"cuda"}


@pytest.mark.parametrize("bias", [True, False])
def test_a_training_step_has_few_launches_and_moves_few_bytes(bias):
    layer, x = make_large(bias=bias)
    step(layer, x)
    with OperationCounter() as counter:
        step(layer, x)
    print(f"bias={bias}: {counter.operations.total()} launches, {counter.bytes / 1e6:.0f} MB")
    assert counter.operations.total() <= 35  # the goal is 60
    assert counter.bytes <= (620e6 if bias else 600e6)


@pytest.mark.parametrize(("recompute", "most"), [(True, 1.005), (False, 2.01)])
def test_what_is_kept_for_the_backward_pass(recompute, most):
    layer, x = make_large(execution={"recompute": recompute})
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = layer(x)
    inputs = x.nbytes
    print(f"recompute={recompute}: {sum(kept.values()) / inputs:.3f} of the input")
    assert y.device.type == "cuda"
    assert 1 <= sum(kept.values()) / inputs <= most


@pytest.fixture
def two_processes(monkeypatch):
    """The first of two processes, whose messages go nowhere. FSDP2 asks for streams, which are the CPU's here."""
    streams = SimpleNamespace(**{**vars(torch.cpu), "current_device": lambda: 0})
    for part in (_fsdp_collectives, _fsdp_init, _fsdp_param_group, _fsdp_state):
        monkeypatch.setattr(part, "_get_device_handle", lambda device: streams)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *device: (8, 0))
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    with _disable_current_modes():
        mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (2,))
    yield mesh
    torch.distributed.destroy_process_group()


def test_fsdp2_gathers_parameters_couples_and_shares_gradients_out_on_the_device(two_processes):
    layer, x = make(*LAYERS["image"])
    shard_parameters(layer, two_processes)
    layer(x).sum().backward()
    with Recorder() as seen:
        layer(x).sum().backward()
    names = [name for name, _ in seen.seen]
    order = ("_allgather_base_", "couple", "_allgather_base_", "couple_adjoint", "_reduce_scatter_base_")
    places = [names.index(order[0])]
    for name in order[1:]:
        places.append(names.index(name, places[-1] + 1))
    assert {device for _, devices in seen.seen for device in devices} == {"cuda"}
    assert not set(names) & SYNCHRONISING
    for parameter in layer.parameters():
        assert (parameter.grad.device.type, parameter.grad.placements) == ("cuda", (Shard(0),))


def test_the_coupling_can_be_chosen():
    layer, x = make(*LAYERS["image"])
    torchsonic.set_coupling("torch")
    with OperationCounter() as counter:
        step(layer, x)
    assert "couple" not in counter.operations
    torchsonic.set_coupling("triton")
    with OperationCounter() as counter:
        step(layer, x)
    assert counter.operations["couple"] == 2  # also backward, which does not keep W where channels are transformed
    assert counter.operations["couple_adjoint"] == 1
    assert counter.operations["physical"] == counter.operations["physical_adjoint"] == 1


def test_kernels_are_launched_on_the_device_of_their_tensors(monkeypatch):
    """Triton itself would take the current device."""
    entered = []

    def device_index(index):
        entered.append(index)
        return nullcontext()

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_index", device_index)
    step(*make(*LAYERS["chunks"]))
    assert entered
    assert set(entered) == {0}


def test_without_triton_there_is_one_warning(monkeypatch):
    monkeypatch.setattr(accelerator, "_installed", lambda: False)
    accelerator._warn_once.cache_clear()
    layer, x = make(*LAYERS["image"])
    with pytest.warns(UserWarning, match=r"torchsonic\[triton\]"):
        step(layer, x)
    step(layer, x)  # warnings are errors here


def test_autocast_leaves_the_kernels_in_float32(monkeypatch):
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: True)
    layer, x = make(*LAYERS["image"])
    with torch.autocast("cuda", dtype=torch.bfloat16):
        hidden = torch.nn.functional.conv2d(x, torch.empty(4, 4, 1, 1, device="cuda"))
        with Recorder() as seen:
            y = layer(hidden)
    assert hidden.dtype == y.dtype == torch.bfloat16
    assert "couple" in [name for name, _ in seen.seen]
    grads = torch.autograd.grad(y, [x, *layer.parameters()], torch.empty_like(y))
    assert {g.dtype for g in grads} == {torch.float32}


@pytest.mark.parametrize("order", ["modes", "channels"])
def test_the_compiled_operator_declares_what_is_kept(order):
    layer, x = make(*LAYERS["image"])
    operands, options = captured_call(layer, x)
    options = options._replace(order=order)
    plan = kernels.find_plan(operands, operands.step(options))
    with torch.no_grad():
        _, kept = kernels.order_of(plan).forward(operands.mixing, Couplings(operands, options, plan), plan, keep=True)
    declared = compiled._empty_kept(operands, options)
    assert [(t.shape, t.dtype, t.device) for t in declared] == [(t.shape, t.dtype, t.device) for t in kept[0]]


def captured_call(layer, x):
    """Operands and options of a layer's call."""
    found = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("torchsonic.nn.conv.convolve", lambda *call, recompute: found.append(call) or call[0].x)
        layer(x)
    return found[0]


def test_compilers_see_the_kernels_and_what_they_write(monkeypatch):
    """The graph holds Triton's kernel itself, so that a compiler can order, fuse and allocate around it."""
    target = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 80, 32))
    monkeypatch.setattr(triton.runtime.driver, "_active", target)
    z, omega, modes = (torch.empty(s, device="cuda") for s in ((2, 3, 2, 4, 3, 2), (1, 8), (1, 3, 9)))
    graphs = []

    def run(z, omega, modes):
        out = torch.empty_like(z)
        torch.ops.torchsonic.couple(z, out, omega, modes, [1, 4, 3], [-1, 2, 2, 2], False, 0, 0.0, False)
        return out

    backend = aot_autograd(fw_compiler=lambda graph, inputs: graphs.append(graph) or graph.forward)
    with _disable_current_modes():
        torch.compile(run, backend=backend, fullgraph=True)(z, omega, modes)
    (node,) = [n for n in graphs[0].graph.nodes if "triton_kernel_wrapper" in str(n.target)]
    assert node.kwargs["tensors_to_clone"] == ["out"]


@pytest.mark.parametrize("kind", doctor.LAYERS)
def test_the_doctors_steps_run_on_the_device(kind):
    """What it compares with the CPU; numbers there are none to compare here."""
    with _disable_current_modes():
        layer, x = doctor.make_layer(kind)
    found = doctor.train(fake_copy(layer), torch.empty(x.shape, dtype=x.dtype, device="cuda"))
    assert {t.device.type for t in found} == {"cuda"}
