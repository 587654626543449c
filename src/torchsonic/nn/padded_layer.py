"""Layers that pad their input with a margin, which keeps its physical width on every grid."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.engine.lowering import lowering
from torchsonic.nn.physical_layer import NO_INPUT_OF_AN_EXPORT, SpacedLayer, split_batch
from torchsonic.spectral.boundary import Boundary, PaddingMode, scaled_margin
from torchsonic.spectral.spacing import (
    ANY_BATCH,
    Spacing,
    as_spacing,
    differs_in_batch,
    orientation_of,
    plain_spacing,
    spacing_values,
)


class PaddedLayer(SpacedLayer):
    """A layer that pads its input with a margin of the same physical width on every grid.

    Subclasses set ``padding`` in samples of the reference spacing, whole or not, or ``None`` for a margin as wide as
    the input.
    """

    padding_mode: PaddingMode
    padding: tuple[float, ...] | None

    def boundary(self, spacing: Spacing) -> Boundary:
        """How images of a spacing continue across their edge: the margin keeps its physical width on finer grids.

        If there are several spacings, the finest one counts; ``forward`` handles samples with different margins one by
        one. If an orientation is given, margins belong to the axes of space.
        """
        if self.padding is None:
            return Boundary(self.padding_mode)
        widths = self._margin_widths()
        turn, spacing = orientation_of(spacing), plain_spacing(spacing)
        if turn is not None and not _is_even(widths):
            if lowering() is not None and turn is not self._orientation:
                raise ValueError(
                    f"the margin of padding={self.padding} is not equally wide along all axes, and so follows the "
                    "orientation, which cannot be an input of an exported model; tell it with set_orientation instead"
                )
            widths = (turn[0].square().mT @ turn.new_tensor(widths)).tolist()
        if not isinstance(spacing, Tensor):
            finest = spacing_values(spacing, self.num_axes)
        elif len(spacing) == 0:
            finest = self.reference_spacing
        else:
            finest = as_spacing(spacing, self.num_axes, batch=ANY_BATCH).amin(0).tolist()
        return Boundary(self.padding_mode, scaled_margin(widths, finest))

    def _margin_widths(self) -> list[float]:
        assert self.padding is not None
        return [n * step for n, step in zip(self.padding, self.reference_spacing, strict=True)]

    def _margins_differ(self, given: Spacing) -> bool:
        """Whether samples need margins of different widths, and so grids of different sizes."""
        if self.padding is None or not differs_in_batch(given):
            return False
        if not isinstance(plain_spacing(given), Tensor):  # only orientations differ, which even margins do not follow
            if _is_even(self._margin_widths()):
                return False
        elif lowering() is not None or torch.compiler.is_exporting():
            raise ValueError(f"the margin of padding={self.padding} {NO_INPUT_OF_AN_EXPORT}")
        return len({self.boundary(one) for one in split_batch(given, self.num_axes)}) > 1


def _is_even(widths: Sequence[float]) -> bool:
    """Whether a margin is equally wide along all axes, but for rounding."""
    return max(widths) - min(widths) <= 1e-9 * max(widths)
