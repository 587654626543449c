"""The physical step between samples, as users pass it: one number, one per axis, or one row per sample.

It may be combined with the orientation of the array in a :class:`Sampling`; see
:mod:`torchsonic.spectral.orientation`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchsonic.spectral.constants import constant

__all__ = [
    "ANY_BATCH",
    "Sampling",
    "Spacing",
    "as_spacing",
    "check_count",
    "differs_in_batch",
    "joint_spacing",
    "orientation_of",
    "plain_spacing",
    "refuse_impossible",
    "spacing_values",
    "widest_float",
]


@dataclass(frozen=True, eq=False)
class Sampling:
    """A spacing together with an orientation ``(1, D, D)`` or ``(B, D, D)``; layers take it instead of a spacing.

    If the spacing is ``None``, every layer assumes its own.
    """

    spacing: Spacing | None
    orientation: Tensor


Spacing = float | Sequence[float] | Tensor | Sampling
ANY_BATCH = -1
DEVICES_WITHOUT_FLOAT64 = {"mps"}


def plain_spacing(spacing: Spacing) -> Any:
    """The spacing alone."""
    return spacing.spacing if isinstance(spacing, Sampling) else spacing


def differs_in_batch(spacing: Spacing) -> bool:
    """Whether samples may differ in spacing or orientation."""
    turn = orientation_of(spacing)
    return isinstance(plain_spacing(spacing), Tensor) or (turn is not None and turn.shape[0] > 1)


def joint_spacing(steps: Tensor) -> tuple[float, ...] | Tensor:
    """Rows ``(B, D)`` as plain numbers if all are equal, because layers keep their responses by numbers."""
    return tuple(steps[0].tolist()) if len(steps) and bool((steps == steps[0]).all()) else steps


def orientation_of(spacing: Spacing) -> Tensor | None:
    """The orientation that came with a spacing, ``(1, D, D)`` or ``(B, D, D)``."""
    return spacing.orientation if isinstance(spacing, Sampling) else None


def widest_float(device: torch.device) -> torch.dtype:
    """The widest real type that a device computes in."""
    return torch.float32 if device.type in DEVICES_WITHOUT_FLOAT64 else torch.float64


def _moved(values: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Move and cast; the cast happens where both types exist."""
    if device.type in DEVICES_WITHOUT_FLOAT64:
        return values.to(dtype).to(device)
    return values.to(device).to(dtype)


def as_spacing(spacing: Spacing, num_axes: int, *, batch: int | None = None, device=None) -> Tensor:
    """Turn a spacing into a tensor with one row per sample, or a single row.

    Parameters
    ----------
    spacing
        A positive number, ``num_axes`` of them, or a tensor ``(batch, num_axes)`` with one spacing per sample.
    num_axes
        Number of spatial axes D.
    batch
        Number of samples that a per-sample spacing must match, or ``ANY_BATCH``; ``None`` refuses per-sample spacings.

    Returns
    -------
    Tensor
        ``(1, D)`` or ``(batch, D)``, float64 (float32 where the device has no float64).
    """
    if batch is not None and batch != ANY_BATCH and (turn := orientation_of(spacing)) is not None:
        check_count("orientation", turn.shape[0], batch)  # len(turn) would tie an exported file to it
    spacing = plain_spacing(spacing)
    if isinstance(spacing, np.ndarray) and spacing.ndim == 2:
        spacing = torch.as_tensor(spacing)
    # Not PyTorch's default device, which may be "meta": callers that name none want to read the numbers.
    device = torch.device(device or (spacing.device if isinstance(spacing, Tensor) else "cpu"))
    dtype = widest_float(device)
    if not isinstance(spacing, Tensor):
        # A copy: the constant is shared, and callers may modify what they get.
        return constant((spacing_values(spacing, num_axes),), device, dtype).clone()
    if spacing.is_complex() or spacing.dtype == torch.bool:
        raise TypeError(f"spacing must be real numbers, got a tensor of {spacing.dtype}")
    if spacing.requires_grad:
        raise ValueError("spacing is a constant and gets no gradient; pass spacing.detach()")
    steps = _moved(spacing, device, dtype)
    if steps.dim() < 2 and steps.numel() == 1:
        steps = steps.expand(num_axes)
    if steps.dim() > 2 or steps.shape[-1] != num_axes:
        raise ValueError(_wrong_count(num_axes, f"shape {tuple(steps.shape)}"))
    if steps.dim() == 1:
        steps = steps[None]
    elif batch is None and steps.shape[0] > 1:
        raise ValueError(f"spacing must be the same for all samples here, got shape {tuple(steps.shape)}")
    elif batch is not None and batch != ANY_BATCH and steps.shape[0] != 1 and steps.shape[0] != batch:
        raise ValueError(f"spacing has {steps.shape[0]} rows for a batch of {batch} samples; pass one row per sample")
    if spacing.device.type == "cpu" and not torch.compiler.is_compiling():  # elsewhere the host would have to wait
        refuse_impossible(steps if steps.device.type == "cpu" else spacing)
    return steps


def check_count(name: str, count: int, batch: int) -> None:
    """Refuse several matrices if there are not as many samples."""
    if count != 1 and count != batch:
        raise ValueError(f"{name} has {count} matrices for a batch of {batch} samples; pass one, or one per sample")


def refuse_impossible(steps: Tensor) -> None:
    """Refuse steps that are not positive and finite; a compiler, which does not know them, has to leave it to later."""
    if not bool((torch.isfinite(steps) & (steps > 0)).all()):
        raise ValueError(f"spacing must be positive and finite, got {steps.tolist()}")


def _wrong_count(num_axes: int, given: str) -> str:
    return f"spacing needs 1 or {num_axes} values (one per spatial axis) or shape (batch, {num_axes}), got {given}"


def spacing_values(spacing: Spacing, num_axes: int) -> tuple[float, ...]:
    """One positive number per axis; per-sample spacings are refused."""
    spacing = plain_spacing(spacing)
    if isinstance(spacing, Tensor):
        return tuple(as_spacing(spacing, num_axes)[0].tolist())
    try:
        if isinstance(spacing, str):
            raise TypeError
        single = isinstance(spacing, numbers.Real) and not isinstance(spacing, bool)
        steps = (float(spacing),) * num_axes if single else tuple(float(s) for s in spacing)  # type: ignore
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"spacing must be a number, {num_axes} numbers or a tensor (batch, {num_axes}), got {spacing!r}"
        ) from error
    if len(steps) == 1:
        steps = steps * num_axes
    if len(steps) != num_axes:
        raise ValueError(_wrong_count(num_axes, f"{len(steps)} values"))
    if not torch.compiler.is_compiling() and not all(math.isfinite(s) and s > 0 for s in steps):
        raise ValueError(f"spacing must be positive and finite, got {list(steps)}")
    return steps
