"""Products with the mixing matrices, of real signals and of spectra.

``mix_in (M, 2, C)`` holds ``Re B, Im B`` and ``mix_out (K, M, 2)`` holds ``Re C, -Im C``, so that a product with either
is one real matrix product, and chunks of modes are slices.

On CPUs PyTorch's matrix products use MKL, which runs at half speed on AMD processors; oneDNN, which PyTorch uses for
convolutions, does not. It has no batched product, so samples are taken one by one if they are large, and joined to one
matrix if they are small.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from torchsonic.spectral.band import Band

__all__ = ["add_product", "add_spectrum", "correlate", "correlate_spectra", "mix", "mix_modes", "takes_samples_apart"]

# Multiply-adds per sample from which a plan transforms samples one by one, too.
CHUNK_WORK = 16e6
# Multiply-adds per sample from which oneDNN is called for each; below, per batch from which joining the samples pays,
# and the size of a sample up to which it does.
SAMPLE_WORK = 6e6
JOINED_WORK, JOINED_POINTS = 4e6, 1024


@cache
def _onednn_helps() -> bool:
    """Whether MKL is slow on this processor, and PyTorch offers oneDNN's product."""
    info = Path("/proc/cpuinfo")
    processor = info.read_text() if info.exists() else platform.processor()
    return "AuthenticAMD" in processor and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def takes_samples_apart(work: int) -> bool:
    """Whether a plan with products of so many multiply-adds per sample takes samples one by one."""
    return work >= CHUNK_WORK and _onednn_helps()


def _way(signals: Tensor, rows: int) -> Literal["batched", "apart", "joined"]:
    """How to multiply ``rows`` with signals ``(b, c, n)``; dispatch modes see ordinary products."""
    ordinary = type(signals) is Tensor and signals.dtype == torch.float32 and signals.device.type == "cpu"
    if not ordinary or torch._C._len_torch_dispatch_stack() > 0 or not _onednn_helps():
        return "batched"
    batch, channels, points = signals.shape
    work = rows * channels * points
    if work >= SAMPLE_WORK:
        return "apart"
    return "joined" if batch * work >= JOINED_WORK and points <= JOINED_POINTS else "batched"


def _onednn(a: Tensor, b: Tensor) -> Tensor:
    """``a b^T``."""
    return torch.ops.mkldnn._linear_pointwise.default(a, b, None, "none", [], "")


def _joined(signals: Tensor) -> Tensor:
    """``(b, c, n)`` as ``(c, b n)``."""
    return signals.transpose(0, 1).flatten(1)


def _multiply_joined(matrix: Tensor, signals: Tensor) -> Tensor:
    """``(r, c)`` times ``(b, c, n)``, a view of ``(r, b n)``."""
    return _onednn(matrix, _joined(signals).mT).unflatten(1, signals.shape[::2]).transpose(0, 1)


def mix(matrix: Tensor, signals: Tensor) -> Tensor:
    """``(r, c)`` times ``(b, c, *size)``."""
    flat = signals.flatten(2)
    way = _way(flat, matrix.shape[0])
    if way == "joined":
        mixed = _multiply_joined(matrix, flat).contiguous()
    elif way == "apart":
        parts = [_onednn(matrix, sample.mT) for sample in flat.unbind(0)]
        mixed = parts[0][None] if len(parts) == 1 else torch.stack(parts)
    else:
        mixed = torch.bmm(matrix.expand(flat.shape[0], -1, -1), flat)
    return mixed.unflatten(-1, signals.shape[2:])


def _mix_spectrum(matrix: Tensor, spectrum: Tensor) -> Tensor:
    """A real matrix ``(r, c)`` times complex ``(b, c, *band)``, as one real product."""
    return torch.view_as_complex(mix(matrix, torch.view_as_real(spectrum)))


def mix_modes(matrix: Tensor, spectrum: Tensor) -> Tensor:
    """Spectra of the modes' two signals, ``(b, m, 2, *band)``, from a matrix ``(2 m, c)`` and spectra of channels."""
    return _mix_spectrum(matrix, spectrum).unflatten(1, (-1, 2))


def add_product(y: Tensor, matrix: Tensor, signals: Tensor, *, first: bool, bias: Tensor | None = None) -> None:
    """``y (+)= matrix signals (+ bias)`` in place, for ``(b, k, *size)``."""
    flat, signals = y.flatten(2), signals.flatten(2)
    added = bias[None, :, None] if bias is not None and first else None if first else flat
    way = _way(signals, matrix.shape[0])
    if way == "joined":
        product = _multiply_joined(matrix, signals)
        flat.copy_(product if added is None else product.add_(added))
        return
    if way == "apart":
        for index, (target, sample) in enumerate(zip(flat.unbind(0), signals.unbind(0), strict=True)):
            product = _onednn(matrix, sample.mT)
            if added is None:
                target.copy_(product)
            else:
                torch.add(product, added[index % len(added)], out=target)
        return
    weights = matrix.expand(signals.shape[0], -1, -1)
    if added is None:
        torch.bmm(weights, signals, out=flat)
    else:
        torch.baddbmm(added, weights, signals, out=flat)


def add_spectrum(total: Tensor | None, matrix: Tensor, spectrum: Tensor) -> Tensor:
    """``matrix spectrum``, added in place to ``total`` if there is one."""
    if total is None:
        return _mix_spectrum(matrix, spectrum)
    add_product(torch.view_as_real(total), matrix, torch.view_as_real(spectrum), first=False)
    return total


def correlate(a: Tensor, b: Tensor) -> Tensor:
    """``sum_b a b^T``: ``(b, r, *size)`` and ``(b, c, *size)`` give ``(r, c)``."""
    a, b = a.flatten(2), b.flatten(2)
    way = _way(a, b.shape[1])
    if way == "batched":
        return torch.bmm(a, b.mT).sum(0)
    if a.shape[1] < b.shape[1]:  # many rows times few columns is faster
        return correlate(b, a).mT
    if way == "joined":
        return _onednn(_joined(a), _joined(b))
    total = _onednn(a[0], b[0])
    for left, right in zip(a[1:], b[1:], strict=True):
        total += _onednn(left, right)
    return total


def correlate_spectra(a: Tensor, b: Tensor, band: Band) -> Tensor:
    """As :func:`correlate`, in the inner product of half spectra (:mod:`torchsonic.engine.transform`)."""
    left, right = (torch.view_as_real(s).flatten(-2) for s in (a, b))
    # Repeated for real and imaginary parts, since a broadcast over them would not vectorise.
    weight = band.multiplicity(device=b.device, dtype=right.dtype).repeat_interleave(2)
    if a.shape[1] < b.shape[1]:  # weight the fewer signals
        return correlate(left * weight, right)
    return correlate(left, right * weight)
