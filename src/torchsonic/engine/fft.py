"""Which library runs the operator's Fourier transforms: PyTorch's own, or VkFFT.

Both compute the same over the last axes; the forward transform has the factor ``1/N`` if asked for. Compilers and
dispatch modes always see PyTorch's transforms, whose shapes they know. Nothing here is differentiable.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._python_dispatch import _get_current_dispatch_mode

from torchsonic.arguments import choice
from torchsonic.engine.vkfft import Engine, RefusalError, make_engine
from torchsonic.spectral.tracing import just_numbers

__all__ = ["FFTBackend", "complex_fftn", "fft_backend", "irfftn", "rfftn", "set_fft_backend", "use_fft_backend"]

FFTBackend = Literal["torch", "vkfft"]

_chosen: FFTBackend = "torch"
_engines: dict[str, Engine] = {}
# Reasons for falling back on PyTorch that users were warned of, once each.
_told: set[str] = set()
# Devices and transforms that VkFFT refused, so that it is not asked again.
_refused: set[tuple] = set()


def set_fft_backend(name: FFTBackend) -> None:
    """Choose the library that runs Fourier transforms, in all threads.

    Parameters
    ----------
    name
        ``"torch"``, or ``"vkfft"``, which the paper used and which needs the extra ``vkfft``. If VkFFT is missing or
        cannot run a transform, PyTorch runs it, and one warning says why.

    Examples
    --------
    >>> torchsonic.set_fft_backend("torch")
    >>> torchsonic.fft_backend()
    'torch'
    """
    global _chosen
    _chosen = choice(name, ("torch", "vkfft"), "name")
    _refused.clear()
    _told.clear()


def fft_backend() -> FFTBackend:
    """The chosen backend; see :func:`set_fft_backend`."""
    return _chosen


@contextmanager
def use_fft_backend(name: FFTBackend) -> Iterator[None]:
    """Use a backend within a ``with`` block; see :func:`set_fft_backend`."""
    before = _chosen
    set_fft_backend(name)
    try:
        yield
    finally:
        set_fft_backend(before)


def rfftn(x: Tensor, size: tuple[int, ...], *, scaled: bool = False) -> Tensor:
    """Half spectrum of real ``x`` over its last axes, padded with zeros to ``size``.

    Parameters
    ----------
    scaled
        Divide by the number of samples.

    Returns
    -------
    Tensor
        ``(..., *size[:-1], size[-1] // 2 + 1)``, complex.
    """
    if _chosen == "vkfft" and (found := _try(x, size, lambda engine: _forward(engine, x, size))) is not None:
        return found / math.prod(size) if scaled else found
    dims = tuple(range(-len(size), 0))
    return torch.fft.rfftn(x, s=size, dim=dims, norm="forward" if scaled else "backward")


def irfftn(spectrum: Tensor, size: tuple[int, ...]) -> Tensor:
    """Real samples ``(..., *size)`` of a half spectrum, unscaled; coefficients missing at the end are zero.

    Imaginary parts that the spectrum of a real signal cannot have (at the origin and at Nyquist frequencies) are
    ignored.
    """
    if _chosen == "vkfft":
        found = _try(spectrum, size, lambda engine: _inverse(engine, spectrum, size))
        if found is not None:
            return found
    return torch.fft.irfftn(spectrum, s=size, dim=tuple(range(-len(size), 0)), norm="forward")


def complex_fftn(z: Tensor, num_axes: int, *, inverse: bool = False, scaled: bool = False) -> Tensor:
    """Transform of complex ``z`` over its last axes; ``scaled`` divides by the number of samples."""
    if _chosen == "vkfft":
        size = tuple(z.shape[-num_axes:])
        found = _try(z, size, lambda engine: engine.complex(_flat(z, size), inverse=inverse).reshape(z.shape))
        if found is not None:
            return found / math.prod(size) if scaled else found
    transform = torch.fft.ifftn if inverse else torch.fft.fftn
    return transform(z, dim=tuple(range(-num_axes, 0)), norm="forward" if scaled != inverse else "backward")


def _try(x: Tensor, size: tuple[int, ...], run: Callable[[Engine], Tensor]) -> Tensor | None:
    """The result of VkFFT; ``None`` if it refuses such a tensor now, or did before, or may not read this one."""
    unwatched = just_numbers() and _get_current_dispatch_mode() is None
    if not (unwatched and type(x) in (Tensor, torch.nn.Parameter) and x.numel() > 0):
        return None
    kind = x.device.type
    if {(kind,), (kind, x.dtype, size)} & _refused:
        return None
    try:
        if kind not in _engines:
            _engines[kind] = make_engine(x.device)
        return run(_engines[kind])
    except RefusalError as reason:
        _refused.add((kind, x.dtype, size) if kind in _engines else (kind,))
        if str(reason) not in _told:
            _told.add(str(reason))
            warnings.warn(f"using torch.fft instead of VkFFT: {reason}", UserWarning, stacklevel=3)
        return None


def _flat(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """``(n, *size)``, with conjugation written out."""
    return x.detach().resolve_conj().reshape(-1, *size)


def _forward(engine: Engine, x: Tensor, size: tuple[int, ...]) -> Tensor:
    batch, missing = x.shape[: -len(size)], [n - m for n, m in zip(size, x.shape[-len(size) :], strict=True)]
    whole = pad(x, [p for m in reversed(missing) for p in (0, m)]) if any(missing) else x
    return engine.forward(_flat(whole, size)).reshape(*batch, *size[:-1], size[-1] // 2 + 1)


def _inverse(engine: Engine, spectrum: Tensor, size: tuple[int, ...]) -> Tensor:
    batch, half = spectrum.shape[: -len(size)], (*size[:-1], size[-1] // 2 + 1)
    missing = half[-1] - spectrum.shape[-1]
    whole = _made_real(_flat(pad(spectrum, [0, missing]) if missing else spectrum, half), size)
    return engine.inverse(whole, size).reshape(*batch, *size)


def _made_real(spectrum: Tensor, size: tuple[int, ...]) -> Tensor:
    """Make the self-conjugate planes symmetric, as those of a real signal are.

    PyTorch's transform ignores the asymmetric part. VkFFT packs two halves of a signal into one, which mixes it in.
    """
    spectrum = spectrum.clone()
    other_axes = tuple(range(1, len(size)))
    for index in {0, *((size[-1] // 2,) if size[-1] % 2 == 0 else ())}:
        plane = spectrum[..., index]
        mirrored = plane.flip(other_axes).roll((1,) * len(other_axes), other_axes) if other_axes else plane
        spectrum[..., index] = 0.5 * (plane + mirrored.conj())
    return spectrum
