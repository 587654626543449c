"""Checks whether the operator works on this machine: laws, gradients, mixed precision, compilation, graphs and speed.

Every check takes a device, returns its findings as a line of text and as numbers, and raises if something is wrong.
:mod:`torchsonic.cli.doctor` shows the findings.
"""

from __future__ import annotations

import copy
import importlib
import importlib.metadata
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

import torchsonic
from torchsonic.engine.accelerator import coupling_on
from torchsonic.integrations import TORCHVISION_REMEDY
from torchsonic.spectral.spacing import widest_float
from torchsonic.testing import (
    assert_permutes_with_axes,
    assert_resolution_invariant,
    assert_shift_equivariant,
    relative_error,
)
from torchsonic.testing.paper_order import PaperOrder

PACKAGES = ("torch", "numpy", "triton", "torchvision", "timm", "pyvkfft")
LAYERS: dict[str, tuple[int, tuple[int, ...], dict[str, Any]]] = {
    "signal": (1, (24,), {}),
    "image": (2, (12, 15), {}),
    "volume": (3, (6, 8, 7), {}),
    "stride": (2, (12, 16), {"stride": 2}),
    "margin": (2, (12, 15), {"padding_mode": "zeros", "padding": 3}),
    "limits": (2, (12, 15), {"limits": {"band_order": 2, "magnitude": 1.5, "soft": True}}),
    "channels": (2, (12, 15), {"execution": {"order": "channels"}}),
    "paper": (2, (12, 15), {"variant": "paper"}),
}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 4e-2}
LARGE, SMALL = (8, 64, 16, (128, 128)), (2, 16, 4, (32, 32))
"""Batch, channels, modes and pixels of the benchmark, and of the quick one."""


class NotHereError(Exception):
    """Why a check was skipped."""


class Finding(NamedTuple):
    """What a check found."""

    check: str
    verdict: Literal["ok", "wrong", "left out"]
    text: str
    numbers: dict[str, float] = {}  # noqa: RUF012 (a default, never changed)


def find_devices() -> list[torch.device]:
    """The CPU and every accelerator that PyTorch can use."""
    found = [torch.device("cpu")]
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind)
        found += [torch.device(kind, index) for index in range(module.device_count() if module.is_available() else 0)]
    return found + ([torch.device("mps")] if torch.backends.mps.is_available() else [])


def check_packages() -> list[Finding]:
    """Versions of the packages we use, and whether the optional ones can be imported."""
    return [_finding(name, lambda name=name: _package(name)) for name in PACKAGES]


def _package(name: str) -> str:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise NotHereError("not installed") from error
    try:
        importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision" in str(error):
            raise RuntimeError(f"{error}: {TORCHVISION_REMEDY}") from error
        raise
    return version


def examine(device: torch.device, *, quick: bool = False) -> Iterator[Finding]:
    """Run all checks on a device, one after the other."""
    size = SMALL if quick else LARGE
    checks: dict[str, Callable[[], Any]] = {
        "device": lambda: describe(device),
        "laws": lambda: check_laws(device),
        "agreement with the CPU": lambda: check_agreement(device),
        "reproducibility": lambda: check_repeatable(device),
        "mixed precision": lambda: check_autocast(device),
        "compile": lambda: check_compile(device, quick),
        "CUDA graph": lambda: check_graph(device),
        "training step": lambda: measure_step(device, *size),
    }
    for name, check in checks.items():
        yield _finding(name, check)


def _finding(name: str, check: Callable[[], Any]) -> Finding:
    """Run a check; an exception is the finding."""
    try:
        found = check()
    except NotHereError as reason:
        return Finding(name, "left out", str(reason))
    except Exception as error:  # a device can fail in many ways, and the other checks should still run
        return Finding(name, "wrong", f"{type(error).__name__}: {error}".splitlines()[0])
    return Finding(name, "ok", *found) if isinstance(found, tuple) else Finding(name, "ok", found)


def describe(device: torch.device) -> str:
    """Name, memory and driver of a device, and its coupling and FFT backends."""
    used = f"coupling {coupling_on(device.type)}, FFT {torchsonic.fft_backend()}"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        library = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: "unknown")()
        name = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {library}, driver {driver}"
        return f"{name}; {used}"
    if device.type == "xpu":
        return f"{torch.xpu.get_device_name(device)}; {used}"
    return f"{platform.processor() or platform.machine()}, threads: {torch.get_num_threads()}; {used}"


def make_layer(kind: str, device: torch.device | None = None) -> tuple[torchsonic.nn.SonicConvNd, Tensor]:
    """A fixed layer of a kind and its input, in float32 on the given device or in float64 on the CPU."""
    num_axes, size, options = LAYERS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        cls = {1: torchsonic.SonicConv1d, 2: torchsonic.SonicConv2d, 3: torchsonic.SonicConv3d}[num_axes]
        layer, x = cls(3, 4, num_modes=5, **options).double(), torch.randn(2, 3, *size, dtype=torch.float64)
    return (layer, x) if device is None else (layer.to(device, torch.float32), x.to(device, torch.float32))


def train(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Output of a step, and gradients of input and parameters; the loss is the sum of squares."""
    x = x.detach().requires_grad_()
    y = module(x)
    loss = y.to(torch.promote_types(y.dtype, torch.float32)).square().sum()
    return [y.detach(), *torch.autograd.grad(loss, [x, *module.parameters()])]


def check_laws(device: torch.device) -> str:
    """Shifts, axes and resolution."""
    dtype = widest_float(device)
    for kind in ("signal", "image", "volume"):
        num_axes, size, _ = LAYERS[kind]
        layer = make_layer(kind)[0].to(device, dtype)
        assert_shift_equivariant(layer, size)
        assert_permutes_with_axes(layer, size)
        assert_resolution_invariant(layer, [tuple(n + 4 for n in size), (12,) * num_axes])
    return f"shift, axis and resolution laws in {str(dtype).removeprefix('torch.')}, 1-D to 3-D"


def check_agreement(device: torch.device) -> tuple[str, dict[str, float]]:
    """Outputs and all gradients against those of the CPU in float64."""
    errors = {}
    for dtype in dict.fromkeys((torch.float32, widest_float(device))):
        name = str(dtype).removeprefix("torch.")
        errors[name] = max(_agreement(kind, device, dtype) for kind in LAYERS)
        if not errors[name] <= TOLERANCE[dtype]:
            raise ArithmeticError(f"relative error {errors[name]:.1e} in {name}, more than {TOLERANCE[dtype]:.0e}")
    return ", ".join(f"{name} {error:.1e}" for name, error in errors.items()), errors


def _agreement(kind: str, device: torch.device, dtype: torch.dtype, autocast: torch.dtype | None = None) -> float:
    layer, x = make_layer(kind)
    wanted = train(layer, x)
    moved = copy.deepcopy(layer).to(device, dtype)
    with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
        found = train(moved, x.to(device, autocast or dtype))
    # A gradient that is zero by its nature, such as that of a direction in one dimension, has no relative error.
    whole = max(float(t.abs().max()) for t in wanted[1:])
    pairs = [(a, b) for a, b in zip(found, wanted, strict=True) if float(b.abs().max()) > 1e-9 * whole]
    return max(relative_error(a, b) for a, b in pairs)


def check_repeatable(device: torch.device) -> str:
    """Two steps on the same input are bit-identical."""
    layer, x = make_layer("image", device)
    if not all(torch.equal(a, b) for a, b in zip(train(layer, x), train(layer, x), strict=True)):
        raise ArithmeticError("two steps on the same input give different results")
    return "bit-identical"


def check_autocast(device: torch.device) -> tuple[str, dict[str, float]]:
    """The error under autocast is no larger than that of rounding the input."""
    if not torch.amp.is_autocast_available(device.type):
        raise NotHereError("this device has no autocast")
    error = _agreement("image", device, torch.float32, torch.bfloat16)
    if not error <= TOLERANCE[torch.bfloat16]:
        raise ArithmeticError(f"relative error {error:.1e} under autocast in bfloat16")
    return f"bfloat16 {error:.1e}", {"bfloat16": error}


def check_compile(device: torch.device, quick: bool = False) -> str:
    """A compiled layer equals the eager one."""
    if quick:
        raise NotHereError("takes half a minute; run without --quick")
    if device.type == "mps" or (device.type == "cpu" and shutil.which("g++") is None):
        raise NotHereError("there is no compiler for this device")
    layer, x = make_layer("image", device)
    wanted, found = train(layer, x), train(torch.compile(layer, fullgraph=True), x)  # type: ignore[arg-type]
    error = max(relative_error(a, b) for a, b in zip(found, wanted, strict=True))
    if not error <= TOLERANCE[torch.float32]:
        raise ArithmeticError(f"relative error {error:.1e}")
    return f"agrees with eager to {error:.1e}"


def check_graph(device: torch.device) -> str:
    """A training step captured in a CUDA graph gives the same numbers."""
    if device.type != "cuda":
        raise NotHereError("only on CUDA and ROCm")
    layer, x = make_layer("image", device)
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        wanted = train(layer, x)
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        found = train(layer, x)
    graph.replay()
    torch.cuda.synchronize(device)
    if not all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True)):
        raise ArithmeticError("a captured step differs from an eager step")
    return "a captured step equals an eager step"


def measure_step(
    device: torch.device, batch: int, channels: int, modes: int, size: tuple[int, ...], seconds: float = 4.0
) -> tuple[str, dict[str, float]]:
    """Milliseconds and peak megabytes of a training step, compared with a 3x3 convolution and the paper's order."""
    layer = torchsonic.SonicConv2d(channels, channels, num_modes=modes, bias=False)
    modules = {
        "sonic": layer,
        "conv3x3": nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        "paper's order": PaperOrder(copy.deepcopy(layer), size),
    }
    x, numbers, words = torch.randn(batch, channels, *size, device=device), {}, []
    for name, module in modules.items():
        module.to(device)
        train(module, x)  # compiles kernels, chooses algorithms
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        numbers[f"{name} ms"] = 1e3 * _best_time(lambda module=module: train(module, x), device, seconds)
        words.append(f"{name} {numbers[f'{name} ms']:.3g} ms")
        if device.type == "cuda":
            numbers[f"{name} MB"] = torch.cuda.max_memory_allocated(device) / 1e6
            words[-1] += f", {numbers[f'{name} MB']:.0f} MB"
    return "; ".join(words), numbers


def _best_time(call: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Shortest of up to thirty calls within the given seconds."""
    best, end = float("inf"), time.perf_counter() + seconds
    for _ in range(30):
        start = time.perf_counter()
        call()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() > end:
            break
    return best
