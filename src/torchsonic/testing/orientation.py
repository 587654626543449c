"""Laws of layers and networks that take the orientation of an array in space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from torchsonic.arguments import choice
from torchsonic.functional import all_storages
from torchsonic.spectral.orientation import Matrix, as_orientation
from torchsonic.spectral.spacing import spacing_values
from torchsonic.testing.laws import TOLERANCE, _require_close, _require_effect
from torchsonic.testing.turns import _check_result, _check_size, _interpolate, _smooth_field


def assert_storages_agree(
    model: Callable[..., Tensor],
    x: Tensor,
    *,
    spacing: float | Sequence[float] = 1.0,
    result: Literal["image", "numbers"] = "image",
    tolerance: float | None = None,
) -> None:
    """Every way to store an array gives the same result, in the axes of that array, if the orientation is given.

    Parameters
    ----------
    model
        Called as ``model(x, spacing=..., orientation=...)``.
    x
        ``(B, C, *size)``; any size.
    spacing
        Spacing along the axes of ``x``.
    result
        ``"image"`` for fields ``(B, K, *size)``, ``"numbers"`` for results without axes, such as class logits.
    tolerance
        By default that of the dtype of ``x``, ``torchsonic.testing.TOLERANCE``.
    """
    choice(result, ("image", "numbers"), "result")
    steps = spacing_values(spacing, x.dim() - 2)
    bound = TOLERANCE[x.dtype] if tolerance is None else tolerance
    plain = model(x, spacing=steps)
    _check_result(plain, result, x.dim() - 2)
    _require_effect(plain, model(torch.zeros_like(x), spacing=steps), bound)
    for storage in all_storages(x.dim() - 2):
        stored = model(storage.apply(x), spacing=[steps[axis] for axis in storage.order], orientation=storage.matrix())
        expected = storage.apply(plain) if result == "image" else plain
        flipped = [axis for axis, flip in enumerate(storage.flips) if flip]
        _require_close(f"axes stored in the order {storage.order}, {flipped} flipped", stored, expected, bound)


def assert_orientation_is_exact(
    model: Callable[..., Tensor],
    size: Sequence[int],
    channels: int,
    orientation: Matrix,
    *,
    spacing: float | Sequence[float] = 1.0,
    width: float = 2.5,
    tolerance: float = 1e-6,
) -> None:
    """A smooth field gives the same result on a straight and on an oblique grid if the orientation is given.

    The field is confined to the middle of the grids, and the model's kernels must decay within them.

    Parameters
    ----------
    size, channels, spacing
        Size (at least 24 samples per axis), channels and spacing of both grids.
    orientation
        ``(D, D)``: directions of the axes of the oblique grid.
    width
        Width of the field's bumps, in units of the coarsest spacing.
    """
    _check_size(size)
    told = spacing_values(spacing, len(size))
    steps = torch.tensor(told, dtype=torch.float64)
    turn = as_orientation(orientation, len(size), batch=1)[0].cpu()
    sample, points = _smooth_field(size, steps, channels, width=width, dtype=torch.float64)
    x = sample(torch.eye(len(size), dtype=torch.float64))
    plain = model(x, spacing=told)
    _require_effect(plain, model(torch.zeros_like(x), spacing=told), tolerance)
    # Sample n of the oblique grid lies at R n, and so sees the field turned by R^-1.
    oblique = model(sample(turn.mT), spacing=told, orientation=turn)
    expected = _interpolate(plain, points @ turn.mT, steps)
    _require_close("oblique grid", _interpolate(oblique, points, steps), expected, tolerance)
