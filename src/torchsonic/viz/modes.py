"""The modes of a layer, the strongest first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torchsonic.nn import SonicConvNd
from torchsonic.spectral.operator import ModeOperator
from torchsonic.viz import style
from torchsonic.viz.energy import SMALLEST, decay_lengths, mode_energies, wavelengths
from torchsonic.viz.lattice import (
    PLANES,
    Lattice,
    central_slice,
    mode_beams,
    mode_spectra,
    physical_operator,
    reference_lattice,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = {1: 12, 2: 24, 3: 6}
"""How many are shown by default, by the number of axes."""
COLUMNS = 8
DECAY = "\N{SCRIPT SMALL L}"


def strongest_modes(layer: SonicConvNd, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Indices of the modes with the most energy, in order, and their fractions of the layer's; each ``(count,)``.

    A mode of an orbit layer counts with all its rotated copies.
    """
    if count is not None and count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    energy = mode_energies(layer).unflatten(0, (-1, layer.orbit_size)).sum(1)
    order = energy.argsort(descending=True)[:count]
    return order, energy[order] / energy.sum().clamp_min(SMALLEST)


@style.styled
def draw_modes(
    layer: SonicConvNd, *, count: int | None = None, samples: int | None = None, unit: str = "px", title: str = ""
) -> Figure:
    """Draw the strongest modes of a layer: response over frequency and kernel in space.

    Labels give the fraction of the layer's energy, the decay length ℓ and the wavelength λ. Volumes are cut through
    the origin, see :func:`draw_slices`. A mode of an orbit layer is drawn once; lines show its rotated directions.

    Parameters
    ----------
    count
        Number of modes; by default 12, 24 and 6 in 1-D, 2-D and 3-D.
    samples
        See :func:`reference_lattice`.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_modes(torchsonic.SonicConv2d(3, 8), count=4)
    """
    index, shares = strongest_modes(layer, MOST[layer.num_axes] if count is None else count)
    heads = [f"{number}: {share:.1%}" for number, share in zip(index.tolist(), shares.tolist(), strict=True)]
    first = index * layer.orbit_size  # of the turns of a mode, the mode itself
    # A wave of 100 decay lengths is no wave that is seen.
    lengths, waves = decay_lengths(layer)[first].tolist(), wavelengths(layer)[first].tolist()
    words = [
        f"{DECAY} {style.short(length)}, λ {'∞' if wave > 1e2 * length else style.short(wave)} {unit}"
        for length, wave in zip(lengths, waves, strict=True)
    ]
    draw = {1: _draw_lines, 2: _draw_images, 3: _draw_slices}[layer.num_axes]
    operator, lattice = physical_operator(layer), reference_lattice(layer, samples)
    figure = draw(operator.select(first), lattice, heads, words, unit)
    turned = f", each in {layer.orbit_size} rotations" if layer.orbit_size > 1 else ""
    figure.suptitle((title + ": " if title else "") + f"strongest {len(index)} of {layer.num_modes} modes{turned}")
    if turned and layer.num_axes == 2:
        _mark_turns(figure, operator.modes.direction.unflatten(0, (-1, layer.orbit_size))[index], lattice)
    return figure


def _mark_turns(figure: Figure, directions: Tensor, lattice: Lattice) -> None:
    """Lines at the rim of spectra along all rotations ``(count, |G|, 2)`` of each mode."""
    columns, rim = min(COLUMNS, len(directions)), min(float(omega[-1]) for omega in lattice.frequencies)
    for place, turns in enumerate(directions):
        panel = figure.axes[2 * columns * (place // columns) + place % columns]
        for down, right in turns.tolist():
            ends = [0.8 * rim, 0.98 * rim]
            panel.plot([right * end for end in ends], [down * end for end in ends], color="white", linewidth=1.2)


def draw_slices(layer: SonicConvNd, **options: Any) -> Figure:
    """Draw the strongest modes of a 3-D layer: three slices of the response, three of the kernel.

    Parameters
    ----------
    **options
        See :func:`draw_modes`.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_slices(torchsonic.SonicConv3d(1, 8), count=2, samples=9)
    """
    if layer.num_axes != 3:
        raise ValueError(f"slices need a 3-D layer, got {type(layer).__name__}; use draw_modes")
    return draw_modes(layer, **options)


def _draw_lines(
    operator: ModeOperator, lattice: Lattice, heads: Sequence[str], words: Sequence[str], unit: str
) -> Figure:
    spectra, beams = mode_spectra(operator, lattice).abs(), mode_beams(operator, lattice)
    pairs = 2 if len(heads) > 1 else 1
    rows = math.ceil(len(heads) / pairs)
    figure = style.new_figure(5.4 * pairs, 1.15 * rows + 1.0)
    panels = figure.subplots(rows, 2 * pairs, squeeze=False, sharex="col")
    (omega,), (places,) = lattice.frequencies, lattice.places
    for place, (left, right) in enumerate(zip(panels[:, ::2].T.ravel(), panels[:, 1::2].T.ravel(), strict=True)):
        if place >= len(heads):
            left.set_axis_off()
            right.set_axis_off()
            continue
        left.plot(omega, spectra[place], color=style.PALETTE[0])
        right.plot(places, beams[place].real, color=style.PALETTE[0], label="real part")
        right.plot(
            places, beams[place].imag, color=style.PALETTE[1], linewidth=0.9, linestyle="--", label="imaginary part"
        )
        left.set_title(heads[place], fontsize=8.5, loc="left", pad=2)
        right.set_title(words[place], fontsize=8, loc="left", pad=2)
        left.set_ylim(bottom=0)
        style.thin_axes(left)
        style.thin_axes(right)
        if place % rows == rows - 1 or place == len(heads) - 1:
            left.set_xlabel(style.frequency_label("x", unit))
            right.set_xlabel(style.length_label("x", unit))
            left.tick_params(labelbottom=True)
            right.tick_params(labelbottom=True)
    figure.legend(*panels[0, 1].get_legend_handles_labels(), loc="outside lower right", frameon=False, ncols=2)
    return figure


def _draw_images(
    operator: ModeOperator, lattice: Lattice, heads: Sequence[str], words: Sequence[str], unit: str
) -> Figure:
    spectra, beams = mode_spectra(operator, lattice).abs().log1p(), mode_beams(operator, lattice).real
    columns = min(COLUMNS, len(heads))
    rows = math.ceil(len(heads) / columns)
    figure = style.new_figure(max(1.42 * columns + 0.5, 4.2), 2.75 * rows + 1.3)
    panels = figure.subplots(2 * rows, columns, squeeze=False)
    for place, (top, bottom) in enumerate(zip(panels[::2].ravel(), panels[1::2].ravel(), strict=True)):
        if place >= len(heads):
            top.set_axis_off()
            bottom.set_axis_off()
            continue
        style.show_spectrum(top, spectra[place], lattice.frequencies)
        style.show_kernel(bottom, beams[place], lattice.places)
        top.set_title(heads[place], fontsize=8.5, pad=3)
        bottom.set_title(words[place], fontsize=7, pad=2.5)
        if place == (rows - 1) * columns:
            style.frame_pair(top, bottom, lattice, unit)
    return figure


def _draw_slices(
    operator: ModeOperator, lattice: Lattice, heads: Sequence[str], words: Sequence[str], unit: str
) -> Figure:
    spectra, beams = mode_spectra(operator, lattice).abs().log1p(), mode_beams(operator, lattice).real
    figure = style.new_figure(10.4, 1.52 * len(heads) + 0.9)
    panels = figure.subplots(len(heads), 6, squeeze=False)
    for row, (line, direction) in enumerate(zip(panels, operator.modes.direction.tolist(), strict=True)):
        # One scale for the slices of a mode: a slice that misses the beam is pale.
        highest, peak = float(spectra[row].max()), float(beams[row].abs().max())
        for left, right, plane in zip(line[:3], line[3:], PLANES[3], strict=True):
            frequencies, places = ([axes[axis] for axis in plane] for axes in (lattice.frequencies, lattice.places))
            style.show_spectrum(left, central_slice(spectra[row], plane), frequencies, highest=highest)
            style.show_kernel(right, central_slice(beams[row], plane), places, peak=peak)
            if row == len(heads) - 1:
                style.frame_pair(left, right, lattice, unit, plane=plane)
        along = ", ".join(style.short(round(part, 2)) for part in direction)
        head = f"{heads[row]}, {words[row]}, along (z, y, x) = ({along})"
        # Over all columns: a title would widen the first one, so an empty one keeps the room and a text stands there.
        line[0].set_title(" ", fontsize=8.5, pad=3)
        line[0].text(0, 1.04, head, fontsize=8.5, transform=line[0].transAxes).set_in_layout(False)
    return figure
