"""What surrounds images to the Sonic layers of a network: by default a margin of zeros, seen afresh by every layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchsonic.spectral.boundary import PaddingMode

__all__ = ["CIRCULAR", "MARGIN", "border_options"]

MARGIN = 8
"""Pixels along the finest axis."""
CIRCULAR = {"padding": None, "padding_mode": "circular"}
"""The default of networks whose files have format 1."""


def border_options(
    padding: int | Sequence[int] | None,
    padding_mode: PaddingMode,
    spacing: Sequence[float],
    stride: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Options of a Sonic layer, behind a stride, in a network whose images have a margin.

    Parameters
    ----------
    padding
        Pixels of the image: one number for its finest axis, of which coarser ones get as many millimetres, or one per
        axis; ``None`` for a margin as wide as the image.
    spacing
        Of images.
    stride
        Before the layer, per axis; by default none.

    Examples
    --------
    >>> border_options(8, "zeros", (10.0, 1.4, 1.4), (1, 2, 2))
    {'padding': (2, 4, 4), 'padding_mode': 'zeros'}
    """
    if padding_mode == "circular" and padding == MARGIN:  # the default, which only other modes have a use for
        padding = None
    if padding is not None:
        finest = min(spacing)
        widths = padding if isinstance(padding, Sequence) else [padding * finest / step for step in spacing]
        padding = tuple(math.ceil(w / s) for w, s in zip(widths, stride or [1.0] * len(spacing), strict=True))
    return {"padding": padding, "padding_mode": padding_mode}
