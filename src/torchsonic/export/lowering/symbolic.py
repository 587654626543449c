"""Bands whose sizes may be symbols of an exporter: nothing asks whether one is even.

As :mod:`torchsonic.spectral.nyquist`, but at a Nyquist bin the other sign gets a share that is a half or zero.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from torchsonic.engine.lowering import number
from torchsonic.spectral.band import Band


class SettledBand(Band):
    """A band that compares its sizes once: an exporter has to think about each comparison of symbols."""

    resampled = cached_property(Band.resampled.fget)  # type: ignore[assignment, arg-type]
    reach = cached_property(Band.reach.fget)  # type: ignore[assignment, arg-type]
    shape = cached_property(Band.shape.fget)  # type: ignore[assignment, arg-type]


def other_sign_share(band: Band, axis: int, dtype: torch.dtype, device=None) -> float | Tensor:
    """Share of the other sign in the bin at ``reach``: a half if the bin has no sign, else zero."""
    return 0.0 if band.resampled[axis] else 0.5 * number(1 - band.size_in[axis] % 2, dtype, device)


def _perhaps_unsigned(band: Band) -> list[int]:
    """Axes whose bin at ``reach`` has no sign, or may have none."""
    return [
        axis
        for axis, size in enumerate(band.size_in)
        if not band.resampled[axis] and (not isinstance(size, int) or size % 2 == 0)
    ]


def one_sided_omega(band: Band, spacing: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """As ``band.omega(..)``, for sizes that may be symbols."""
    work, device = spacing.dtype, spacing.device
    axes = []
    for axis, size in enumerate(band.size_in):
        extent = number(size, work, device) * spacing[:, axis : axis + 1]
        axes.append((band.wavenumbers(axis, device=device, dtype=work) * (2 * math.pi) / extent).to(dtype))
    return axes


def two_sided_omega(band: Band, spacing: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """As ``band.omega(.., both_signs=True)``; axes whose size is a symbol always get the additional entry."""
    axes = one_sided_omega(band, spacing, dtype)
    for axis in _perhaps_unsigned(band):
        axes[axis] = torch.cat([axes[axis], -axes[axis].narrow(-1, band.reach[axis], 1)], dim=-1)
    return axes


def blend_signs(response: Tensor, band: Band) -> Tensor:
    """As :func:`average_signs`, for frequencies from :func:`two_sided_omega`; nothing is written in place."""
    for axis in _perhaps_unsigned(band):
        dim, reach = 2 + axis, band.reach[axis]
        last = response.shape[dim] - 1
        share = other_sign_share(band, axis, response.dtype, response.device)
        kept, other = response.narrow(dim, reach, 1), response.narrow(dim, last, 1)
        parts = [response.narrow(dim, 0, reach), kept + (other - kept) * share]
        if axis < band.num_axes - 1:
            parts.append(response.narrow(dim, reach + 1, last - reach - 1))
        response = torch.cat(parts, dim)
    return response
