"""Memory: what a step takes is known before, does not grow with the modes taken in chunks, and advice helps."""

import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from tests.layers import make_layer
from torchsonic.engine import channels_order, couplings, memory_estimate, modes_order
from torchsonic.engine.call import Options, Step
from torchsonic.engine.memory_estimate import largest_fit
from torchsonic.functional import ORDERS, estimated_bytes
from torchsonic.functional.options import group_old
from torchsonic.lab.metrics.cost import peak_bytes

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]


def measured_bytes(layer, batch, size, *, training=True):
    """Peak of a step beyond input, weights and the output's gradient."""
    x = torch.randn(batch, layer.in_channels, *size, requires_grad=training)
    with torch.no_grad():
        grad_y = torch.randn_like(layer(x))

    def step():
        with torch.set_grad_enabled(training):
            y = layer(x)
            if training:
                torch.autograd.grad(y, [x, *layer.parameters()], grad_y)

    step()  # fills caches
    return peak_bytes(step, CPU)


CASES = [
    *[((2, 8, 8, 6, (64, 64)), {"order": order}) for order in ORDERS],
    *[((2, 8, 8, 6, (64, 64)), {"order": order, "mode_chunk": 2}) for order in ORDERS],
    ((1, 4, 6, 8, (20, 18, 22)), {}),
    ((1, 4, 6, 8, (20, 18, 22)), {"mode_chunk": 1}),
    ((1, 4, 6, 8, (20, 18, 22)), {"mode_chunk": 3, "recompute": False}),
    ((2, 6, 4, 4, (48, 50)), {"padding_mode": "zeros"}),
    ((2, 6, 4, 4, (48, 50)), {"padding_mode": "reflect", "recompute": True}),
    ((2, 6, 4, 40, (48, 50)), {"mode_chunk": 4}),
    ((4, 6, 4, 8, (4096,)), {}),
]


STEPS = [(*case, True) for case in CASES] + [(*case, False) for case in CASES[::6]]


@pytest.mark.parametrize(("sizes", "options", "training"), STEPS, ids=str)
def test_the_estimate_agrees_with_what_the_allocator_sees(sizes, options, training):
    batch, in_channels, out_channels, num_modes, size = sizes
    grouped = group_old(options, warn=False)
    layer = make_layer(len(size), (in_channels, out_channels), num_modes, dtype=torch.float32, **grouped)
    found = estimated_bytes(*sizes, training=training, **options)
    assert found == pytest.approx(measured_bytes(layer, batch, size, training=training), rel=0.2)


@pytest.mark.parametrize("order", ORDERS)
def test_memory_does_not_grow_with_the_modes_when_they_are_taken_in_chunks(order):
    peaks, size = [], (64, 60)
    for num_modes in (8, 24, 64):
        layer = make_layer(2, (8, 8), num_modes, dtype=torch.float32, execution={"mode_chunk": 4, "order": order})
        weights = sum(p.numel() * p.element_size() for p in layer.parameters())
        # Weights and their gradients are no part of the law; a few of their size exist at once.
        peaks.append(measured_bytes(layer, 2, size) - 4 * weights)
    assert max(peaks) <= 1.03 * min(peaks), peaks
    whole = measured_bytes(make_layer(2, (8, 8), 64, dtype=torch.float32, execution={"order": order}), 2, size)
    assert whole > 2 * max(peaks)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((16, 17), {"padding_mode": "zeros"}),
        ((16, 17), {"padding_mode": "reflect"}),
        ((16, 18), {"stride": 2}),
        ((16, 18), {"stride": (1, 2)}),
        ((64,), {"stride": 2}),
        ((6, 8, 8), {"stride": 2, "padding_mode": "zeros"}),
    ],
    ids=str,
)
def test_what_is_kept_for_the_backward_pass_holds_nothing_else_in_memory(size, options, order):
    y = make_layer(len(size), execution={"order": order}, **options)(torch.randn(2, 3, *size, dtype=torch.float64))
    kept = [t for t in y.grad_fn.saved_tensors[12:] if t is not None]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    assert sum(storages.values()) == kept_bytes(y)


def test_estimating_costs_no_memory_and_leaves_no_trace():
    huge = (8, 256, 256, 256, (512, 512, 512))
    assert estimated_bytes(*huge) > 1e12
    layer = make_layer(2, dtype=torch.float32)
    assert torch.isfinite(layer(torch.randn(1, 3, 8, 9))).all()


def test_a_layer_on_a_large_volume_fits_in_three_gigabytes():
    """32 channels, 64 modes, 128^3 voxels, forward and backward; `torchsonic bench memory` measures it."""
    given = 2 * 4 * 32 * 128**3  # the input and the output's gradient
    needed = estimated_bytes(1, 32, 32, 64, (128, 128, 128), mode_chunk=2)
    assert given + needed < 3e9


def test_the_largest_fitting_chunk_is_found():
    sizes = (1, 8, 8, 24, (40, 40))
    needed = {chunk: estimated_bytes(*sizes, mode_chunk=chunk) for chunk in (24, 12, 6, 3, 2, 1)}
    assert list(needed.values()) == sorted(needed.values(), reverse=True)
    step = Step(*sizes, Options(sizes[-1]), training=True)
    for chunk, bytes_needed in needed.items():
        assert largest_fit(bytes_needed, step) == (chunk, bytes_needed, True)
    assert largest_fit(1000, step) == (1, needed[1], False)


def failing(kernel, failure):
    """A kernel that runs out of memory, but not on tensors without numbers, which the advice computes with."""

    def run(first, *arguments, **options):
        if isinstance(first, FakeTensor) or isinstance(getattr(first, "x", None), FakeTensor):
            return kernel(first, *arguments, **options)
        raise failure

    return run


def fail_in(monkeypatch, place, failure):
    for order in (modes_order, channels_order):
        monkeypatch.setattr(order, place, failing(getattr(order, place), failure))


CPU_WORDS = (
    "[enforce fail at alloc_cpu.cpp] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
)


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError(CPU_WORDS),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError("no room"),
    ],
    ids=lambda failure: type(failure).__name__,
)
@pytest.mark.parametrize("place", ["forward", "backward"])
def test_running_out_of_memory_names_the_chunk_that_fits(monkeypatch, failure, place):
    layer = make_layer(2, (8, 8), 24, dtype=torch.float32)
    x = torch.randn(1, 8, 40, 40, requires_grad=True)
    enough = estimated_bytes(1, 8, 8, 24, (40, 40), mode_chunk=6) / memory_estimate.USABLE + 1
    monkeypatch.setattr(memory_estimate, "free_bytes", lambda device: int(enough))
    y = layer(x)
    if place == "backward":  # what was kept counts as free: chunks would not keep it
        held = kept_bytes(y)
        monkeypatch.setattr(memory_estimate, "free_bytes", lambda device: int(enough) - held)
    fail_in(monkeypatch, place, failure)
    with pytest.raises(type(failure)) as caught:
        _ = layer(x) if place == "forward" else y.sum().backward()
    said = str(caught.value)
    assert "batch 1, 8 to 8 channels, 24 modes, grid (40, 40)" in said
    assert "mode_chunk=6 would fit" in said
    assert caught.value.__cause__ is failure


def kept_bytes(y):
    """What the backward pass would free: tensors kept beyond the operands."""
    kept = [t for t in y.grad_fn.saved_tensors[12:] if t is not None]
    return sum(t.numel() * t.element_size() for t in kept)


def test_evaluation_without_memory_names_the_chunk_that_fits(monkeypatch):
    layer = make_layer(2, (8, 8), 24, dtype=torch.float32).eval()
    needed = estimated_bytes(1, 8, 8, 24, (40, 40), mode_chunk=12, training=False)
    monkeypatch.setattr(memory_estimate, "free_bytes", lambda device: int(needed / memory_estimate.USABLE) + 1)
    fail_in(monkeypatch, "forward", RuntimeError(CPU_WORDS))
    with torch.no_grad(), pytest.raises(RuntimeError, match="mode_chunk=12 would fit"):
        layer(torch.randn(1, 8, 40, 40))


def test_compiled_layers_get_advice_too(monkeypatch):
    layer = make_layer(2, (8, 8), 24, dtype=torch.float32)
    fail_in(monkeypatch, "forward", RuntimeError(CPU_WORDS))
    with pytest.raises(RuntimeError, match="Out of memory in a Sonic operator: batch 1, 8 to 8 channels"):
        torch.compile(layer, backend="eager", fullgraph=True)(torch.randn(1, 8, 40, 40))


@pytest.mark.parametrize("options", [{}, {"mode_chunk": 8}])
def test_advice_for_evaluation_counts_no_backward_pass(monkeypatch, options):
    layer = make_layer(2, (8, 8), 24, dtype=torch.float32, execution=options).eval()
    fail_in(monkeypatch, "forward", RuntimeError(CPU_WORDS))
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"weights \(forward\)"):
        layer(torch.randn(1, 8, 40, 40))


def test_hopeless_cases_and_silent_devices_are_told_as_they_are(monkeypatch):
    layer, x = make_layer(2, (8, 8), 24, dtype=torch.float32), torch.randn(1, 8, 40, 40)
    fail_in(monkeypatch, "forward", RuntimeError(CPU_WORDS))
    for free, words in (
        (1000, "Even mode_chunk=1 needs"),
        (None, r"mode_chunk=\d+ needs about"),
        (10**9, 'execution={"recompute": True}'),
    ):
        monkeypatch.setattr(memory_estimate, "free_bytes", lambda device, free=free: free)
        with pytest.raises(RuntimeError, match=words):
            layer(x)


def test_advice_finds_the_responses_of_the_failed_call_freed(monkeypatch):
    made = []
    coupling = couplings.TorchCoupling
    monkeypatch.setattr(
        couplings, "TorchCoupling", lambda *a, **o: made.append(weakref.ref(c := coupling(*a, **o))) or c
    )
    monkeypatch.setattr(modes_order, "synthesise_modes", failing(modes_order.synthesise_modes, RuntimeError(CPU_WORDS)))
    left = []
    monkeypatch.setattr(memory_estimate, "free_bytes", lambda device: left.extend(r() for r in made))
    with pytest.raises(RuntimeError, match="Out of memory"):
        make_layer(2, execution={"order": "modes"})(torch.randn(1, 3, 4, 4, dtype=torch.float64))
    assert left
    assert not any(left)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"num_modes": 0}, "num_modes must be at least 1, got 0"),
        ({"size": 64}, "size must be the number of samples on 1 to 3 axes, got 64"),
        ({"size": (4, 4, 4, 4)}, "size must be the number of samples on 1 to 3 axes"),
        ({"output_size": (3,)}, "output_size must be 1 or 2 positive integers"),
        ({"mode_chunk": 0}, "mode_chunk must be at least 1, got 0"),
        ({"symmetry": "none"}, "symmetry must be one of real, half, got 'none'"),
        ({"dtype": torch.bfloat16}, "dtype must be one of torch.float32, torch.float64, got torch.bfloat16"),
    ],
)
def test_estimates_of_nothing_are_refused(change, words):
    sizes = {"batch": 1, "in_channels": 2, "out_channels": 2, "num_modes": 2, "size": (4, 4)}
    with pytest.raises(ValueError, match=words):
        estimated_bytes(**{**sizes, **change})


def test_other_errors_pass_unchanged(monkeypatch):
    fail_in(monkeypatch, "forward", RuntimeError("something else"))
    with pytest.raises(RuntimeError, match=r"^something else$"):
        make_layer(2)(torch.randn(1, 3, 4, 4, dtype=torch.float64))


SCRIPT = """
import re, resource, sys
import torch
from torchsonic import SonicConv3d

torch.set_num_threads(1)
def step(**execution):
    torch.manual_seed(0)
    layer = SonicConv3d(8, 8, num_modes=64, execution=execution)
    x = torch.randn(1, 8, 64, 64, 64, requires_grad=True)
    layer(x).sum().backward()

SonicConv3d(2, 2)(torch.randn(1, 2, 4, 4, 4)).sum().backward()  # libraries load
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + (600 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    step()
except RuntimeError as error:
    said = str(error)
else:
    sys.exit("the limit was not met")
found = re.search(r"mode_chunk=(\\d+) would fit", said)
assert found, said
step(mode_chunk=int(found[1]))
print("chunk", found[1])
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux to limit the memory of a process")
def test_the_advice_works_in_a_process_with_little_memory():
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # glibc returns freed blocks at once; otherwise how much of the limit is fragments changes from run to run.
    allocator = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    environment = {**os.environ, **threads, **allocator}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) < 64
