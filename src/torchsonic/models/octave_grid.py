"""Images much finer or coarser than a network's reference, brought near to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from torchsonic.engine.lowering import lowering
from torchsonic.models.stem import ReferenceGrid
from torchsonic.nn.physical_layer import batch_spacing
from torchsonic.spectral.spacing import ANY_BATCH, Spacing, as_spacing, spacing_values
from torchsonic.spectral.tracing import tracing

__all__ = ["OctaveGrid"]

MOST_REFINEMENT = 2
"""Octaves; a spacing in the wrong unit must not fill the memory."""


class OctaveGrid(ReferenceGrid):
    """Resample an image by the power of two, per axis, that brings its spacing nearest to the reference.

    Levels behind it then hold about the same frequencies whatever the sampling, and cost the same. Most images stay as
    they are: those whose voxels are within a factor of the square root of two of the reference. Samples of a batch
    share one grid, chosen by their mean spacing. ``(B, C, *size)`` to ``(B, C, *grid)``.

    Examples
    --------
    >>> grid = OctaveGrid(spatial_dims=3, spacing=(10.0, 1.4, 1.4))
    >>> grid(torch.randn(1, 1, 8, 64, 63), spacing=(8.0, 0.7, 0.8)).shape
    torch.Size([1, 1, 8, 32, 32])
    """

    def output_size(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[int, ...]:
        """Samples of the grid for an image of the given size and spacing."""
        given = self._spacing if spacing is None else batch_spacing(spacing)
        if not isinstance(given, Tensor):
            steps = spacing_values(given, self.num_axes)
        elif lowering() is not None or tracing():  # whose numbers nobody knows yet
            return tuple(size)
        else:
            steps = as_spacing(given, self.num_axes, batch=ANY_BATCH).mean(0).tolist()
        octaves = [round(math.log2(own / step)) for own, step in zip(self.reference_spacing, steps, strict=True)]
        grid = []
        for n, octave in zip(size, octaves, strict=True):
            coarser, finer = 1 << max(octave, 0), 1 << min(max(-octave, 0), MOST_REFINEMENT)
            grid.append((n + coarser - 1) // coarser * finer)
        return tuple(grid)

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Resample the image; return it and its spacing. One that stays as it is may go on untold."""
        if self.output_size(x.shape[2:], spacing) == tuple(x.shape[2:]):
            return x, spacing
        return super().walk(x, spacing)

    def _check_batch(self, rows: Tensor) -> None:
        """Layers behind are told each sample's own spacing."""
