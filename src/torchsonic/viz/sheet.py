"""The modes of a layer, the strongest first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torchsonic.nn import SonicConvNd
from torchsonic.spectral.operator import ModeOperator
from torchsonic.viz.lattice import Lattice, mode_beams, mode_spectra, physical_operator, reference_lattice
from torchsonic.viz.slices import draw_slices
from torchsonic.viz.strongest import MOST, mode_words, strongest_modes
from torchsonic.viz.style import (
    AXIS_NAMES,
    PALETTE,
    bare,
    frame_axes,
    frequency_label,
    length_label,
    new_figure,
    show_kernel,
    show_spectrum,
    styled,
    thin_axes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_modes"]

COLUMNS = 8


@styled
def draw_modes(
    layer: SonicConvNd, *, count: int | None = None, samples: int | None = None, unit: str = "px", title: str = ""
) -> Figure:
    """The strongest modes of a layer: response over frequency and kernel in space.

    Each says its part of the layer's energy, its decay length ℓ and its wavelength λ. Volumes are cut through the
    origin, see :func:`draw_slices`.

    Parameters
    ----------
    count
        How many; by default 12, 24 and 6 in one, two and three dimensions.
    samples
        See :func:`reference_lattice`.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_modes(torchsonic.SonicConv2d(3, 8), count=4)
    """
    if layer.num_axes == 3:
        return draw_slices(layer, count=count, samples=samples, unit=unit, title=title)
    index, shares = strongest_modes(layer, MOST[layer.num_axes] if count is None else count)
    lattice = reference_lattice(layer, samples)
    operator = physical_operator(layer).select(index)
    heads = [f"{place}: {share:.1%}" for place, share in zip(index.tolist(), shares.tolist(), strict=True)]
    words = mode_words(layer, index, unit)
    draw = _draw_lines if layer.num_axes == 1 else _draw_images
    figure = draw(operator, lattice, heads, words, unit)
    figure.suptitle((title + ": " if title else "") + f"strongest {len(index)} of {layer.num_modes} modes")
    return figure


def _draw_images(operator: ModeOperator, lattice: Lattice, heads: list[str], words: list[str], unit: str) -> Figure:
    spectra, beams = mode_spectra(operator, lattice).abs().log1p(), mode_beams(operator, lattice).real
    columns = min(COLUMNS, len(heads))
    rows = math.ceil(len(heads) / columns)
    figure = new_figure(max(1.42 * columns + 0.5, 4.2), 2.75 * rows + 1.3)
    panels = figure.subplots(2 * rows, columns, squeeze=False)
    names = AXIS_NAMES[2]
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        top, bottom = panels[2 * row, column], panels[2 * row + 1, column]
        if place >= len(heads):
            top.set_axis_off()
            bottom.set_axis_off()
            continue
        show_spectrum(top, spectra[place], lattice.frequencies)
        show_kernel(bottom, beams[place], lattice.places)
        top.set_title(heads[place], fontsize=8.5, pad=3)
        bottom.set_title(words[place], fontsize=7, pad=2.5)
        if column == 0 and row == rows - 1:
            frame_axes(top, lattice.frequencies, names, unit, frequency=True)
            frame_axes(bottom, lattice.places, names, unit, frequency=False)
        else:
            bare(top)
            bare(bottom)
    return figure


def _draw_lines(operator: ModeOperator, lattice: Lattice, heads: list[str], words: list[str], unit: str) -> Figure:
    spectra, beams = mode_spectra(operator, lattice).abs(), mode_beams(operator, lattice)
    pairs = 2 if len(heads) > 1 else 1
    rows = math.ceil(len(heads) / pairs)
    figure = new_figure(5.4 * pairs, 1.15 * rows + 1.0)
    panels = figure.subplots(rows, 2 * pairs, squeeze=False, sharex="col")
    (omega,), (places,) = lattice.frequencies, lattice.places
    for place in range(rows * pairs):
        column, row = divmod(place, rows)
        left, right = panels[row, 2 * column], panels[row, 2 * column + 1]
        if place >= len(heads):
            left.set_axis_off()
            right.set_axis_off()
            continue
        left.plot(omega, spectra[place], color=PALETTE[0])
        right.plot(places, beams[place].real, color=PALETTE[0], label="real")
        right.plot(places, beams[place].imag, color=PALETTE[1], linewidth=0.9, linestyle="--", label="imaginary")
        left.set_title(heads[place], fontsize=8.5, loc="left", pad=2)
        right.set_title(words[place], fontsize=8, loc="left", pad=2)
        left.set_ylim(bottom=0)
        for panel in (left, right):
            thin_axes(panel)
        if row == rows - 1 or place == len(heads) - 1:
            left.set_xlabel(frequency_label("x", unit))
            right.set_xlabel(length_label("x", unit))
            for panel in (left, right):
                panel.tick_params(labelbottom=True)
    handles, names = panels[0, 1].get_legend_handles_labels()
    figure.legend(handles, [f"{name} part" for name in names], loc="outside lower right", frameon=False, ncols=2)
    return figure
