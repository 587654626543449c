"""Fourier transforms by VkFFT, through OpenCL on CPUs and CUDA on NVIDIA GPUs.

Transforms run over the last axes and are not scaled. ``pyvkfft`` and what it needs on each device are optional.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Engine", "RefusalError", "make_engine"]

PLANS_KEPT = 64
NUMBERS = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}


class RefusalError(Exception):
    """VkFFT or a dependency is missing, or VkFFT cannot run a transform; the message says why."""


class Engine:
    """Transforms of real ``(n, *size)`` to half spectra ``(n, *size[:-1], size[-1] // 2 + 1)``, back, and complex."""

    _app_type: Any
    _queue: tuple = ()
    _errors: tuple[type[Exception], ...] = (RuntimeError, ValueError)

    def __init__(self) -> None:
        self._plan = lru_cache(maxsize=PLANS_KEPT)(self._make_plan)
        # A plan has its own buffers, and pyvkfft releases the GIL while it sets a plan's addresses.
        self._lock = threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        *lead, last = x.shape
        return self._run("fft", x, x.new_empty(*lead, last // 2 + 1, dtype=x.dtype.to_complex()), of=x)

    def inverse(self, spectrum: Tensor, size: tuple[int, ...]) -> Tensor:
        out = spectrum.new_empty(spectrum.shape[0], *size, dtype=spectrum.dtype.to_real())
        return self._run("ifft", spectrum, out, of=out)

    def complex(self, z: Tensor, *, inverse: bool) -> Tensor:
        return self._run("ifft" if inverse else "fft", z, z.new_empty(z.shape), of=z)

    def _make_plan(self, shape: tuple[int, ...], dtype: torch.dtype, device: int, **place: Any) -> Any:
        settings = {"ndim": len(shape) - 1, "inplace": False, "norm": 0, "r2c": not dtype.is_complex}
        return self._app_type(shape, NUMBERS[dtype], *self._queue, **place, **settings)

    def _run(self, kind: str, given: Tensor, out: Tensor, *, of: Tensor) -> Tensor:
        """Transform into ``out``, with the plan for the shape and the numbers ``of`` a tensor."""
        shape, dtype = tuple(of.shape), of.dtype
        try:
            with self._lock:
                self._transform(kind, given, out, shape, dtype)
        except self._errors as error:
            raise RefusalError(f"VkFFT does not accept {dtype} of size {shape[1:]}: {error}") from error
        return out

    def _transform(self, kind: str, given: Tensor, out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        raise NotImplementedError


class _OpenCL(Engine):
    """Uses OpenCL's first CPU (PoCL offers every CPU), or else its first device."""

    def __init__(self) -> None:
        import pyopencl as cl  # pyright: ignore[reportMissingImports]
        import pyopencl.array  # pyright: ignore[reportMissingImports]
        from pyvkfft.opencl import VkFFTApp  # pyright: ignore[reportMissingImports]

        super().__init__()
        self._arrays, self._app_type, self._errors = pyopencl.array, VkFFTApp, (cl.Error, *Engine._errors)
        try:
            devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
        except cl.Error as error:
            raise RefusalError(f"OpenCL has no platform: {error}") from error
        if not devices:
            raise RefusalError("OpenCL has no device")
        devices.sort(key=lambda device: device.type != cl.device_type.CPU)
        self._queue = (cl.CommandQueue(cl.Context(devices[:1])),)

    def _transform(self, kind: str, given: Tensor, out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        source = self._arrays.to_device(*self._queue, given.contiguous().numpy())
        result = self._arrays.empty(*self._queue, tuple(out.shape), out.numpy().dtype)
        getattr(self._plan(shape, dtype, 0), kind)(source, result)
        result.get(ary=out.numpy())


class _Cuda(Engine):
    """Works on the tensors' own memory and stream, through CuPy."""

    def __init__(self) -> None:
        import cupy  # pyright: ignore[reportMissingImports]
        from pyvkfft.cuda import VkFFTApp  # pyright: ignore[reportMissingImports]

        super().__init__()
        self._cupy, self._app_type = cupy, VkFFTApp

    def _transform(self, kind: str, given: Tensor, out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        if given.is_complex():  # a copy, since the transform back overwrites what it is given
            given = given.clone(memory_format=torch.contiguous_format)
        stream, index = torch.cuda.current_stream(given.device).cuda_stream, given.device.index
        with self._cupy.cuda.Device(index), self._cupy.cuda.ExternalStream(stream):
            plan = self._plan(shape, dtype, index, stream=stream)
            getattr(plan, kind)(self._cupy.asarray(given.contiguous()), self._cupy.asarray(out))


def make_engine(device: torch.device) -> Engine:
    """The engine for tensors on a device."""
    known = {"cpu": (_OpenCL, "pyvkfft, pyopencl"), "cuda": (_Cuda, "pyvkfft, cupy")}
    if device.type not in known:
        raise RefusalError(f"VkFFT does not support tensors on {device.type}")
    make, needed = known[device.type]
    try:
        return make()
    except (ImportError, OSError) as error:
        raise RefusalError(f'{error} ({needed} needed: pip install "torchsonic[vkfft]")') from error
