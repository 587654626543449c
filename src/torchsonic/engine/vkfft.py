"""Fourier transforms by VkFFT, through OpenCL on CPUs and CUDA on NVIDIA GPUs.

Transforms run over the last axes and are not scaled. ``pyvkfft`` and what it needs on each device are optional.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

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


class Engine(Protocol):
    """Transforms of real ``(n, *size)`` to half spectra ``(n, *size[:-1], size[-1] // 2 + 1)``, back, and complex."""

    def forward(self, x: Tensor) -> Tensor: ...

    def inverse(self, spectrum: Tensor, size: tuple[int, ...]) -> Tensor: ...

    def complex(self, z: Tensor, *, inverse: bool) -> Tensor: ...


def make_engine(device: torch.device) -> Engine:
    """The engine for tensors on a device."""
    makers: dict[str, Callable[[], Engine]] = {"cpu": _OpenCL, "cuda": _Cuda}
    if device.type not in makers:
        raise RefusalError(f"VkFFT knows no tensors on {device.type}")
    try:
        return makers[device.type]()
    except (ImportError, OSError) as error:
        needed = {"cpu": "pyvkfft, pyopencl", "cuda": "pyvkfft, cupy"}[device.type]
        raise RefusalError(f'{error} ({needed} needed: pip install "torchsonic[vkfft]")') from error


def _half(size: tuple[int, ...]) -> tuple[int, ...]:
    return (*size[:-1], size[-1] // 2 + 1)


class _OpenCL:
    """Uses OpenCL's first CPU (PoCL offers every CPU), or else its first device."""

    def __init__(self) -> None:
        import pyopencl as cl  # pyright: ignore[reportMissingImports]
        import pyopencl.array  # pyright: ignore[reportMissingImports]
        from pyvkfft.opencl import VkFFTApp  # pyright: ignore[reportMissingImports]

        self._cl, self._app_type = cl, VkFFTApp
        try:
            devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
        except cl.Error as error:
            raise RefusalError(f"OpenCL has no platform: {error}") from error
        if not devices:
            raise RefusalError("OpenCL has no device")
        devices.sort(key=lambda device: device.type != cl.device_type.CPU)
        self._queue = cl.CommandQueue(cl.Context(devices[:1]))
        self._plan = lru_cache(maxsize=PLANS_KEPT)(self._make_plan)
        self._lock = threading.Lock()  # a plan has its own buffers

    def _make_plan(self, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        real = not dtype.is_complex
        return self._app_type(shape, NUMBERS[dtype], self._queue, ndim=len(shape) - 1, inplace=False, norm=0, r2c=real)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], *_half(tuple(x.shape[1:])), dtype=x.dtype.to_complex())
        return self._run("fft", x, out, tuple(x.shape), x.dtype)

    def inverse(self, spectrum: Tensor, size: tuple[int, ...]) -> Tensor:
        out = torch.empty(spectrum.shape[0], *size, dtype=spectrum.dtype.to_real())
        return self._run("ifft", spectrum, out, tuple(out.shape), out.dtype)

    def complex(self, z: Tensor, *, inverse: bool) -> Tensor:
        return self._run("ifft" if inverse else "fft", z, torch.empty_like(z), tuple(z.shape), z.dtype)

    def _run(self, kind: str, given: Tensor, out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        arrays = self._cl.array
        try:
            with self._lock:
                source = arrays.to_device(self._queue, given.contiguous().numpy())
                result = arrays.empty(self._queue, tuple(out.shape), out.numpy().dtype)
                getattr(self._plan(shape, dtype), kind)(source, result)
                result.get(ary=out.numpy())
        except (self._cl.Error, RuntimeError, ValueError) as error:
            raise RefusalError(f"VkFFT refuses {dtype} of size {shape[1:]}: {error}") from error
        return out


class _Cuda:
    """Works on the tensors' own memory and stream, through CuPy."""

    def __init__(self) -> None:
        import cupy  # pyright: ignore[reportMissingImports]
        from pyvkfft.cuda import VkFFTApp  # pyright: ignore[reportMissingImports]

        self._cupy, self._app_type = cupy, VkFFTApp
        self._plan = lru_cache(maxsize=PLANS_KEPT)(self._make_plan)
        self._lock = threading.Lock()  # pyvkfft releases the GIL while it sets a plan's addresses

    def _make_plan(self, shape: tuple[int, ...], dtype: torch.dtype, device: int, stream: int) -> Any:
        return self._app_type(
            shape,
            NUMBERS[dtype],
            ndim=len(shape) - 1,
            inplace=False,
            norm=0,
            r2c=not dtype.is_complex,
            stream=stream,
        )

    def forward(self, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0], *_half(tuple(x.shape[1:])), dtype=x.dtype.to_complex())
        return self._run("fft", x.contiguous(), out, tuple(x.shape), x.dtype)

    def inverse(self, spectrum: Tensor, size: tuple[int, ...]) -> Tensor:
        out = spectrum.new_empty(spectrum.shape[0], *size, dtype=spectrum.dtype.to_real())
        # A copy: the transform back overwrites what it is given.
        return self._run(
            "ifft", spectrum.clone(memory_format=torch.contiguous_format), out, tuple(out.shape), out.dtype
        )

    def complex(self, z: Tensor, *, inverse: bool) -> Tensor:
        given = z.clone(memory_format=torch.contiguous_format)
        return self._run("ifft" if inverse else "fft", given, torch.empty_like(given), tuple(z.shape), z.dtype)

    def _run(self, kind: str, given: Tensor, out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        stream = torch.cuda.current_stream(given.device).cuda_stream
        index = given.device.index
        try:
            with self._lock, self._cupy.cuda.Device(index), self._cupy.cuda.ExternalStream(stream):
                plan = self._plan(shape, dtype, index, stream)
                getattr(plan, kind)(self._cupy.asarray(given), self._cupy.asarray(out))
        except (RuntimeError, ValueError) as error:
            raise RefusalError(f"VkFFT refuses {dtype} of size {shape[1:]}: {error}") from error
        return out
