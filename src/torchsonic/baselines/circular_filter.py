"""Circular convolutions with filters given by their values on the half spectrum of the grid.

A response ``(C, N_1 .. N_D // 2 + 1)`` has only non-negative wavenumbers on the last axis, like ``rfftn``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def half_size(size: Sequence[int]) -> tuple[int, ...]:
    """Shape of the half spectrum of a grid."""
    return (*size[:-1], size[-1] // 2 + 1)


def make_real(response: Tensor, size: Sequence[int], *, whole: bool = False) -> Tensor:
    """The response of a real operator that is nearest to a given one: ``(C, *half_size)`` to the same shape.

    With ``whole``, of a response on the whole spectrum, ``(C, *size)``: the operator whose output's real part is taken.

    Where the last wavenumber is 0 or that of Nyquist, both signs of the others are stored and must be conjugate to
    each other. Inverse transforms of some devices drop what is not, those of others leave the result undefined.
    """
    axes = tuple(range(1, len(size) + whole))

    def symmetric(plane: Tensor) -> Tensor:
        mirrored = plane.conj()
        if axes:
            mirrored = torch.roll(torch.flip(mirrored, axes), (1,) * len(axes), axes)
        return (plane + mirrored) / 2

    if whole:
        return symmetric(response)
    nyquist = size[-1] // 2 if size[-1] % 2 == 0 else response.shape[-1]
    planes = [symmetric(response[..., :1]), response[..., 1:nyquist]]
    if nyquist < response.shape[-1]:
        planes.append(symmetric(response[..., nyquist:]))
    return torch.cat(planes, dim=-1)


def filter_circularly(x: Tensor, response: Tensor) -> Tensor:
    """Multiply the spectrum of samples ``(B, C, *size)`` by a response ``(C, *half_size)``; the result is real."""
    size = tuple(x.shape[2:])
    axes = tuple(range(2, x.dim()))
    spectrum = torch.fft.rfftn(x, dim=axes)
    return torch.fft.irfftn(spectrum * make_real(response, size), s=size, dim=axes)


def mix_circularly(x: Tensor, response: Tensor) -> Tensor:
    """Multiply the spectra of C channels ``(B, C, *size)`` by matrices ``(K, C, *half_size)``: ``(B, K, *size)``."""
    size = tuple(x.shape[2:])
    axes = tuple(range(2, x.dim()))
    matrices = make_real(response.flatten(0, 1), size).unflatten(0, response.shape[:2])
    spectrum = torch.einsum("kc...,bc...->bk...", matrices, torch.fft.rfftn(x, dim=axes))
    return torch.fft.irfftn(spectrum, s=size, dim=axes)
