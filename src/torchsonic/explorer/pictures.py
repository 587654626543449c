"""Arrays as bytes that the page colours itself: drawing takes a browser less time than encoding takes us."""

from __future__ import annotations

import base64
from typing import Any

import torch
from torch import Tensor

__all__ = ["brightness_picture", "magnitude_picture", "robust_bound", "signed_picture"]


def _picture(levels: Tensor, kind: str, **notes: Any) -> dict[str, Any]:
    """``levels (H, W)`` in 0..255."""
    pixels = levels.round().clamp(0, 255).to(torch.uint8).contiguous()
    rows, columns = pixels.shape
    data = base64.b64encode(pixels.numpy().tobytes()).decode("ascii")
    return {"rows": rows, "columns": columns, "map": kind, "pixels": data, **notes}


def brightness_picture(image: Tensor) -> dict[str, Any]:
    """An image with values in [0, 1], ``(H, W)``."""
    return _picture(image * 255, "grey")


def magnitude_picture(magnitude: Tensor) -> dict[str, Any]:
    """``log(1 + |T|)`` from 0 to its largest value, noted as ``top``; the largest ``|T|`` is noted as ``peak``."""
    shown = torch.log1p(magnitude)
    top = float(shown.max().clamp_min(1e-12))
    return _picture(shown * (255 / top), "heat", top=top, peak=float(magnitude.max()))


def robust_bound(values: Tensor) -> float:
    """The magnitude that all but one value in 500 stay below: a few peaks should not darken a picture."""
    magnitudes = values[::2, ::2].abs().flatten()  # every fourth pixel tells as much
    place = max(1, int(0.998 * magnitudes.numel()))
    return max(float(magnitudes.kthvalue(place).values), 1e-12)


def signed_picture(values: Tensor, bound: float | None = None, *, root: bool = False) -> dict[str, Any]:
    """Values round zero, ``(H, W)``, from ``-bound`` to ``bound``; ``root`` draws the root of magnitudes."""
    bound = max(float(values.abs().max()), 1e-12) if bound is None else bound
    shown = (values / bound).clamp(-1, 1)
    if root:
        shown = shown.sign() * shown.abs().sqrt()
    return _picture(127.5 + 127.5 * shown, "signed", bound=bound)
