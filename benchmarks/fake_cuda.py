"""A CUDA device that computes nothing, for counting and for tests on machines without one.

PyTorch's fake tensors have shapes, types and devices but no numbers. Builds without CUDA let them pretend to be on a
CUDA device, but autograd asks for that device's streams and fails. A few lines of C++ supply them. They must be loaded
before PyTorch, so this runs other programs::

    python -m benchmarks.fake_cuda PROGRAM ARGUMENTS      # a module, as after python -m
"""

from __future__ import annotations

import ctypes
import importlib.util
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["absent", "fake_copy", "fake_cuda", "run_on_fake_cuda"]

SOURCE = Path(__file__).with_suffix(".cpp")


def absent() -> str | None:
    """Why there can be no such device here, or ``None``."""
    if sys.platform != "linux":
        return "the fake CUDA device is made for Linux"
    return None if shutil.which("g++") else "the fake CUDA device needs g++"


def run_on_fake_cuda(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module in a process that has the device."""
    program = [sys.executable, "-m", "benchmarks.fake_cuda", module, *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def _load_device() -> None:
    """Compile and load the device; not needed by builds of PyTorch that know CUDA."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    assert "torch" not in sys.modules
    torch = Path(spec.origin).parent
    if list((torch / "lib").glob("libtorch_cuda*")):
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "fake_cuda.so"
        links = [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"]
        compiler = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{torch / 'include'}", str(SOURCE), *links]
        subprocess.run([*compiler, "-o", str(library)], check=True)
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


@contextmanager
def fake_cuda() -> Iterator[None]:
    """Make tensors without numbers, and let torchsonic treat them as if they had some.

    Constants are cached as on a real device, so all of a process share one mode.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    from torchsonic.engine import parameters
    from torchsonic.spectral import tracing

    if not hasattr(fake_cuda, "mode"):
        fake_cuda.mode = FakeTensorMode()  # type: ignore[attr-defined]
    tracers, tracing.TRACERS = tracing.TRACERS, ()
    ordinary, parameters.ORDINARY = parameters.ORDINARY, [*parameters.ORDINARY, FakeTensor]
    try:
        # A mode sees its own thread alone; on accelerators autograd would use another.
        with fake_cuda.mode, torch.autograd.set_multithreading_enabled(False):  # type: ignore[attr-defined]
            yield
    finally:
        tracing.TRACERS, parameters.ORDINARY = tracers, ordinary


def fake_copy(module: Any) -> Any:
    """The module with parameters and buffers on the fake device; call it inside :func:`fake_cuda`."""
    import torch

    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                fake = torch.empty(parameter.shape, dtype=parameter.dtype, device="cuda")
                part._parameters[name] = torch.nn.Parameter(fake, parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device="cuda")
    return module


def main(words: Sequence[str]) -> None:
    _load_device()
    sys.argv = list(words)
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
