"""Modes of volumes, cut along the three planes through the origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from torchsonic.nn import SonicConvNd
from torchsonic.viz.lattice import mode_beams, mode_spectra, physical_operator, reference_lattice
from torchsonic.viz.strongest import MOST, mode_words, strongest_modes
from torchsonic.viz.style import AXIS_NAMES, bare, frame_axes, new_figure, short, show_kernel, show_spectrum, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PLANES", "central_slice", "draw_slices"]

PLANES = ((1, 2), (0, 2), (0, 1))
"""Pairs of array axes: y-x, z-x and z-y."""


def central_slice(volume: Tensor, plane: tuple[int, int]) -> Tensor:
    """The slice ``(n_i, n_j)`` of a centred volume ``(n_0, n_1, n_2)`` through the origin."""
    (axis,) = {0, 1, 2} - set(plane)
    return volume.select(axis, volume.shape[axis] // 2)


@styled
def draw_slices(
    layer: SonicConvNd, *, count: int | None = None, samples: int | None = None, unit: str = "px", title: str = ""
) -> Figure:
    """The strongest modes of a 3-D layer: three slices of the response, three of the kernel.

    Parameters
    ----------
    count
        How many modes, 6 by default.
    samples
        See :func:`reference_lattice`.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_slices(torchsonic.SonicConv3d(1, 8), count=2, samples=9)
    """
    if layer.num_axes != 3:
        raise ValueError(f"slices need a layer of three dimensions, got {type(layer).__name__}; use draw_modes")
    index, shares = strongest_modes(layer, MOST[3] if count is None else count)
    lattice = reference_lattice(layer, samples)
    operator = physical_operator(layer).select(index)
    spectra, beams = mode_spectra(operator, lattice).abs().log1p(), mode_beams(operator, lattice).real
    figure = new_figure(10.4, 1.52 * len(index) + 0.9)
    figure.suptitle((title + ": " if title else "") + f"strongest {len(index)} of {layer.num_modes} modes")
    panels = figure.subplots(len(index), 6, squeeze=False)
    directions = operator.modes.direction.tolist()
    words = mode_words(layer, index, unit)
    for row, (number, share) in enumerate(zip(index.tolist(), shares.tolist(), strict=True)):
        # One scale for the slices of a mode: a slice that misses the beam is pale.
        highest, peak = float(spectra[row].max()), float(beams[row].abs().max())
        last = row == len(index) - 1
        for column, plane in enumerate(PLANES):
            names = [AXIS_NAMES[3][axis] for axis in plane]
            left, right = panels[row, column], panels[row, column + 3]
            frequencies = [lattice.frequencies[axis] for axis in plane]
            places = [lattice.places[axis] for axis in plane]
            show_spectrum(left, central_slice(spectra[row], plane), frequencies, highest=highest)
            show_kernel(right, central_slice(beams[row], plane), places, peak=peak)
            for panel, axes, is_frequency in ((left, frequencies, True), (right, places, False)):
                if last:
                    frame_axes(panel, axes, names, unit, frequency=is_frequency)
                else:
                    bare(panel)
        z, y, x = directions[row]
        along = ", ".join(short(round(part, 2)) for part in (z, y, x))
        head = f"{number}: {share:.1%}, {words[row]}, along (z, y, x) = ({along})"
        # Over all columns: a title would widen the first one, so an empty one keeps the room and a text stands there.
        panels[row, 0].set_title(" ", fontsize=8.5, pad=3)
        panels[row, 0].text(0, 1.04, head, fontsize=8.5, transform=panels[row, 0].transAxes).set_in_layout(False)
    return figure
