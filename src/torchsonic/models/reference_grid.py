"""Resample an image of any spacing to the network's own grid, or to one close to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchsonic.arguments import check_samples, choice
from torchsonic.engine.lowering import is_symbolic, lowering
from torchsonic.functional.resample import resample
from torchsonic.nn.physical_layer import SpacedLayer, of_samples, scale_spacing
from torchsonic.nn.rearranged import run_grouped
from torchsonic.spectral.spacing import ANY_BATCH, Spacing, as_spacing, plain_spacing, spacing_values
from torchsonic.spectral.tracing import tracing

# Relative. A field of a whole number of cells must not gain one by rounding, of spacings in single precision either.
ROUNDING = 1e-6
# A spacing in the wrong unit must not fill the memory; grids of so few samples cannot, however small the image.
MOST_REFINEMENT, SMALL_GRID = 4, 512**2
MOST_OCTAVES = 2


def run_per_grid(
    run: Callable[[Tensor, Spacing | None], Tensor],
    choose: Callable[[Sequence[int], Spacing], tuple[int, ...]],
    x: Tensor,
    spacing: Spacing | None,
    given: Spacing,
) -> Tensor:
    """``run(x, spacing)``, once for each grid that samples need, so that none depends on the others.

    Parameters
    ----------
    choose
        The grid of one sample, from its size and spacing.
    given
        Spacing and orientation of the samples if ``spacing`` leaves them to the layers.
    """
    if not isinstance(plain_spacing(given), Tensor) or lowering() is not None or tracing():
        return run(x, spacing)
    size = tuple(x.shape[2:])
    steps = [tuple(row) for row in as_spacing(given, len(size), batch=len(x)).tolist()]
    grids = {row: choose(size, row) for row in steps}
    if len(set(grids.values())) <= 1:
        return run(x, spacing)
    return run_grouped(lambda members: run(x[members], of_samples(given, members)), [grids[row] for row in steps])


def reference_size(layer: SpacedLayer, size: Sequence[int], given: Spacing) -> tuple[int, ...]:
    """Samples at a layer's stride times its reference spacing, for an input of the given size and spacing."""
    reference, given = layer.reference_spacing, plain_spacing(given)
    if isinstance(given, Tensor):
        if lowering() is not None:
            raise ValueError(
                "the stem's grid depends on the spacing (grid='reference'), so an exported model cannot take it as an "
                "input; export with a fixed spacing, or build the model with grid='input' and stem='deep'"
            )
        # Samples of a batch share one grid, on which none of them may lose what it would have alone.
        rows = as_spacing(given, len(size), batch=ANY_BATCH)
        steps = rows.amax(0).tolist() if len(rows) else reference
    else:
        steps = spacing_values(given, len(size))
    if tuple(steps) == reference:
        return SpacedLayer.output_size(layer, size)
    if lowering() is not None and is_symbolic(tuple(size)):
        raise ValueError(
            f"with grid='reference', sizes can be dynamic only at the reference spacing {reference}, got spacing "
            f"{tuple(steps)}; export with fixed sizes, or build the model with grid='input' and stem='deep'"
        )
    whole = zip(size, steps, reference, layer.stride, strict=True)
    counts = tuple(max(1, math.ceil((1 - ROUNDING) * n * step / (ref * by))) for n, step, ref, by in whole)
    refined = any(count > MOST_REFINEMENT * n for n, count in zip(size, counts, strict=True))
    if refined and math.prod(counts) > SMALL_GRID:
        raise ValueError(
            f"spacing {tuple(steps)} is so far above the reference {reference} that grid='reference' would enlarge an "
            f"image of {tuple(size)} to {counts}; use grid='input' and stem='deep'"
        )
    return counts


class ReferenceGrid(SpacedLayer):
    """Resample an image exactly onto the network's own grid; ``(B, C, *size)`` to ``(B, C, *grid)``.

    Later layers may depend on pixels: two samplings of one band-limited image look the same to them.

    Parameters
    ----------
    spacing
        Spacing of the network's grid. Images without a given spacing are assumed to have it and stay unchanged.

    Examples
    --------
    >>> to_grid = torchsonic.models.ReferenceGrid()
    >>> to_grid(torch.randn(1, 3, 128, 96), spacing=(0.5, 1.0)).shape
    torch.Size([1, 3, 64, 96])
    """

    takes_orientation = True  # it resamples along the axes of the array, whatever their directions

    def __init__(self, *, spatial_dims: int = 2, spacing: float | Sequence[float] = 1.0) -> None:
        super().__init__()
        self.num_axes = choice(spatial_dims, (1, 2, 3), "spatial_dims")
        self.stride = (1,) * spatial_dims
        self._assume_spacing(spacing)

    def output_size(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[int, ...]:
        """Samples of the network's grid for an image of the given size and spacing."""
        return reference_size(self, size, self.told(spacing))

    def output_spacing(self, size: Sequence[int], spacing: Spacing | None = None) -> Tensor:
        """Spacing of the network's grid, ``(1, D)`` or ``(B, D)``: at most the reference, to fit the extent."""
        steps = as_spacing(self.told(spacing), self.num_axes, batch=ANY_BATCH)
        return steps * torch.tensor(self.coarsening(size, spacing), dtype=steps.dtype, device=steps.device)

    def coarsening(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[float, ...]:
        """Output spacing over input spacing; the image and the network's grid cover the same extent."""
        return tuple(n / m for n, m in zip(size, self.output_size(size, spacing), strict=True))

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Resample the image; return it and its spacing."""
        check_samples(x, self.num_axes, None, type(self).__name__)
        given = self.told(spacing)
        size = tuple(x.shape[2:])
        if isinstance(plain_spacing(given), Tensor) and lowering() is None:
            self._check_batch(size, as_spacing(given, self.num_axes, batch=x.shape[0]))
        out_size = self.output_size(size, given)
        y = x if out_size == size else resample(x, out_size)
        return y, scale_spacing(given, [n / m for n, m in zip(size, out_size, strict=True)])

    def _check_batch(self, size: Sequence[int], rows: Tensor) -> None:
        """Refuse samples whose spacings ``(B, D)`` need different grids; see :func:`run_per_grid`."""
        if len({self.output_size(size, tuple(row)) for row in rows.tolist()}) > 1:
            raise ValueError(
                f"samples of a batch have different spacings, between {rows.amin(0).tolist()} and "
                f"{rows.amax(0).tolist()}, and so no common grid for a stem that depends on pixels; call the model "
                "once per spacing, or build it with stem='deep'"
            )

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Resample an image of the given spacing."""
        return self.walk(x, spacing)[0]

    def extra_repr(self) -> str:
        return f"spacing={self.reference_spacing}"


class OctaveGrid(ReferenceGrid):
    """Resample an image by the power of two, per axis, that brings its spacing closest to the reference.

    Later levels then see about the same frequencies at every sampling, at the same cost. Most images stay unchanged:
    those whose voxel size is within a factor of the square root of two of the reference. Compiled and exported, a
    spacing ``(B, D)`` changes no grid. ``(B, C, *size)`` to ``(B, C, *grid)``.

    Examples
    --------
    >>> grid = OctaveGrid(spatial_dims=3, spacing=(10.0, 1.4, 1.4))
    >>> grid(torch.randn(1, 1, 8, 64, 63), spacing=(8.0, 0.7, 0.8)).shape
    torch.Size([1, 1, 8, 32, 32])
    """

    def output_size(self, size: Sequence[int], spacing: Spacing | None = None) -> tuple[int, ...]:
        """Samples of the grid for an image of the given size and spacing."""
        given = plain_spacing(self.told(spacing))
        if not isinstance(given, Tensor):
            steps = spacing_values(given, self.num_axes)
        elif lowering() is not None or tracing():  # whose numbers nobody knows yet
            return tuple(size)
        else:
            rows = as_spacing(given, self.num_axes, batch=ANY_BATCH)
            self._check_batch(size, rows)
            steps = rows[0].tolist() if len(rows) else self.reference_spacing
        octaves = [round(math.log2(own / step)) for own, step in zip(self.reference_spacing, steps, strict=True)]
        grid = []
        for n, octave in zip(size, octaves, strict=True):
            coarser, finer = 1 << max(octave, 0), 1 << min(max(-octave, 0), MOST_OCTAVES)
            grid.append((n + coarser - 1) // coarser * finer)
        return tuple(grid)

    def walk(self, x: Tensor, spacing: Spacing | None) -> tuple[Tensor, Spacing | None]:
        """Resample the image; return it and its spacing, which may stay ``None`` if the image is unchanged."""
        if self.output_size(x.shape[2:], spacing) == tuple(x.shape[2:]):
            return x, spacing
        return super().walk(x, spacing)
