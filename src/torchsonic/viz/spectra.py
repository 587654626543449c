"""Which frequencies a network passes: in each of its stages, and in a layer from one channel to another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from torchsonic.nn import SonicConvNd
from torchsonic.spectral.operator import frequency_parts
from torchsonic.viz import style
from torchsonic.viz.energy import pair_energies, radial_profile, shares_of_highest, spectral_energy
from torchsonic.viz.lattice import Lattice, central_slice, named_sonic_layers, physical_operator, reference_lattice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")
COLUMNS = 4
MOST = 16
"""Stages that are shown."""
COARSE = 9
"""Samples on an axis from which the strongest channels are chosen."""
BRIGHTEST = 0.995
"""Part of the samples that colours tell apart; the rest are as bright as they can be."""


def choose_evenly(items: Sequence[T], most: int) -> list[T]:
    """All items, or at most ``most`` of them, evenly chosen and including the first and the last.

    Examples
    --------
    >>> choose_evenly("abcdefg", 3)
    ['a', 'd', 'g']
    """
    if len(items) <= most or most < 2:
        return list(items[:most])
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


@style.styled
def draw_stages(model: nn.Module, *, samples: int | None = None, unit: str = "px") -> Figure:
    r"""Draw the energy of each Sonic layer over frequency, :math:`\sum_{kc}|\hat H_{kc}(\omega)|^2`, highest = 1.

    There is one picture for each layer, in the order of the network, and one plot of the means over directions. Its
    frequency axis is logarithmic if the layers have different ranges, as behind strides. At most 16 layers are shown,
    evenly chosen. Volumes are cut at ``w_z = 0``.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_stages(torchsonic.create_model("synthshape_sonicnet"))
    """
    found = list(named_sonic_layers(model).items())
    layers = choose_evenly(found, MOST)
    part = f" ({MOST} of {len(found)} layers)" if len(found) > MOST else ""
    flat = layers[0][1].num_axes == 1
    columns = min(COLUMNS, len(layers))
    rows = 0 if flat else math.ceil(len(layers) / columns)
    figure = style.new_figure(2.15 * columns * (not flat) + 5.2, max(3.6, 2.35 * rows + 0.6))
    scale = "" if flat else r", relative to the maximum, $\log_{10}$"
    figure.suptitle(f"Spectral energy of the filters{part}{scale}")
    left, right, panels = figure, figure, []
    if not flat:
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[2.15 * columns, 4.6])[0]
        panels = left.subplots(rows, columns, squeeze=False).ravel().tolist()
    profile = right.subplots()
    for place, ((name, layer), colour) in enumerate(zip(layers, style.shades(len(layers)), strict=True)):
        lattice = reference_lattice(layer, samples)
        energy = spectral_energy(layer, lattice)
        middles, means = radial_profile(energy, lattice)
        profile.plot(middles, shares_of_highest(means), color=colour, label=name, marker="o", markersize=2.5)
        if not flat:
            panel, axes = panels[place], lattice.frequencies[-2:]
            image = style.show_decades(panel, shares_of_highest(central_slice(energy), energy), axes)
            panel.set_title(name, fontsize=min(8.5, 210 / len(name)), pad=3)  # no wider than a panel
            style.frame_axes(panel, axes, style.AXIS_NAMES[2], unit, frequency=True)
            if place % columns:
                panel.set_ylabel("")
            if place < len(layers) - columns:
                panel.set_xlabel("")
            if place == len(layers) - 1:
                left.colorbar(image, ax=panels, fraction=0.03, pad=0.02, shrink=0.62 if rows == 1 else 0.9)
    for panel in panels[len(layers) :]:
        panel.set_axis_off()
    _finish_profile(profile, len(layers), unit)
    return figure


@style.styled
def draw_stages_beside(
    models: Mapping[str, nn.Module], *, samples: int | None = None, units: Mapping[str, str] | None = None
) -> Figure:
    """Draw the stages of several networks, one row each, like :func:`draw_stages` but with up to four layers.

    Parameters
    ----------
    models
        Networks for images or volumes, by the title of their row.
    samples
        See :func:`reference_lattice`.
    units
        Unit of length of each network, by the same titles; pixels by default.

    Examples
    --------
    >>> models = {"shapes": torchsonic.create_model("synthshape_sonicnet"), "one": torchsonic.SonicConv2d(2, 2)}
    >>> figure = torchsonic.viz.draw_stages_beside(models)
    """
    found = {title: choose_evenly(list(named_sonic_layers(model).items()), COLUMNS) for title, model in models.items()}
    for title, layers in found.items():
        if layers[0][1].num_axes == 1:
            raise ValueError(f"models must be for images or volumes, but {title!r} is for signals; use draw_stages")
    columns = max(map(len, found.values()))
    figure = style.new_figure(2.15 * columns + 1.4, 2.35 * len(found) + 0.6)
    figure.suptitle(r"Spectral energy of the filters, relative to the maximum, $\log_{10}$")
    panels = figure.subplots(len(found), columns, squeeze=False)
    image = None
    for line, (title, layers) in zip(panels, found.items(), strict=True):
        for panel, (name, layer) in zip(line, layers, strict=False):
            lattice = reference_lattice(layer, samples)
            energy, axes = spectral_energy(layer, lattice), lattice.frequencies[-2:]
            image = style.show_decades(panel, shares_of_highest(central_slice(energy), energy), axes)
            panel.set_title(name, fontsize=7.5, pad=3)
            style.frame_axes(panel, axes, style.AXIS_NAMES[2], (units or {}).get(title, "px"), frequency=True)
            panel.set_ylabel(f"{title}\n{panel.get_ylabel()}" if panel is line[0] else "")
        for panel in line[len(layers) :]:
            panel.set_axis_off()
    if image is not None:
        figure.colorbar(image, ax=panels.ravel().tolist(), fraction=0.03, pad=0.02, shrink=0.8)
    return figure


def _finish_profile(panel: Axes, count: int, unit: str) -> None:
    ends = [float(np.asarray(line.get_xdata())[-1]) for line in panel.lines]
    panel.set_yscale("log")
    if max(ends) > 2.5 * min(ends):
        panel.set_xscale("log")
    else:
        panel.set_xlim(0, None)
    panel.set(xlabel=rf"$|\omega|$ (rad/{unit})", ylabel="mean over directions, maximum = 1")
    style.thin_axes(panel)
    if count > 1:
        panel.legend(frameon=False, fontsize=7 if count > 6 else 8)
    else:
        panel.lines[0].set_color(style.PALETTE[0])


def strongest_channels(layer: SonicConvNd, lattice: Lattice, count: int = 4) -> tuple[list[int], list[int]]:
    """Output and input channels with the most energy, in ascending order."""
    energy = pair_energies(layer, lattice)
    return tuple(sorted(energy.sum(axis).topk(min(count, energy.shape[1 - axis])).indices.tolist()) for axis in (1, 0))  # type: ignore[return-value]


def mixed_responses(layer: SonicConvNd, outputs: Sequence[int], inputs: Sequence[int], lattice: Lattice) -> Tensor:
    r"""Magnitudes :math:`|\hat H_{kc}(\omega)|` of chosen channels, ``(outputs, inputs, *size)``."""
    for name, chosen, count in (("outputs", outputs, layer.out_channels), ("inputs", inputs, layer.in_channels)):
        if not chosen or not all(0 <= channel < count for channel in chosen):
            raise ValueError(f"{name} must be channels from 0 to {count - 1}, got {list(chosen)}")
    operator = physical_operator(layer).between(inputs, outputs)
    parts = frequency_parts(lattice.omega.flatten(0, -2), layer.num_modes * len(outputs))
    magnitudes = torch.cat([operator.symbol(omega).abs() for omega in parts])
    return magnitudes.movedim(0, -1).unflatten(-1, lattice.size)


@style.styled
def draw_mixed(
    layer: SonicConvNd,
    *,
    outputs: Sequence[int] | None = None,
    inputs: Sequence[int] | None = None,
    samples: int | None = None,
    unit: str = "px",
    title: str = "",
) -> Figure:
    """Draw responses from input channels (columns) to output channels (rows) on one scale; volumes at ``w_z = 0``.

    Parameters
    ----------
    outputs, inputs
        Channels; by default the four with the most energy.
    samples
        See :func:`reference_lattice`.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_mixed(torchsonic.SonicConv2d(3, 8), outputs=[0, 7], inputs=[0, 1, 2])
    """
    if outputs is None or inputs is None:
        strongest = strongest_channels(layer, reference_lattice(layer, COARSE))
        outputs, inputs = strongest[0] if outputs is None else outputs, strongest[1] if inputs is None else inputs
    lattice, flat = reference_lattice(layer, samples), layer.num_axes == 1
    if layer.num_axes == 3:  # one slice is shown, at frequency 0 of the first axis
        lattice = Lattice((1, *lattice.size[1:]), lattice.spacing)
    responses = mixed_responses(layer, outputs, inputs, lattice)
    responses = responses[:, :, 0] if layer.num_axes == 3 else responses
    width, height = (2.2, 1.3) if flat else (1.75, 1.75)
    figure = style.new_figure(max(width * len(inputs) + 1.2, 4.0), height * len(outputs) + 0.9)
    figure.suptitle(title + (": " if title else "") + r"$|\hat H_{kc}(\omega)|$ from channel $c$ to channel $k$")
    panels = figure.subplots(len(outputs), len(inputs), squeeze=False, sharex=flat, sharey=flat)
    # A resonance is a single bright sample, beside which the rest would be dark.
    highest = float(responses.max() if flat else responses.flatten().quantile(BRIGHTEST))
    image = None
    for panel, values in zip(panels.ravel(), responses.flatten(0, 1), strict=True):
        if flat:
            panel.plot(lattice.frequencies[0], values, color=style.PALETTE[0])
            panel.set_ylim(0, 1.05 * highest)
            style.thin_axes(panel)
        else:
            image = style.show_spectrum(panel, values, lattice.frequencies[-2:], highest=highest)
    if image is not None:
        style.frame_axes(panels[-1, 0], lattice.frequencies[-2:], style.AXIS_NAMES[2], unit, frequency=True)
        figure.colorbar(image, ax=panels.ravel().tolist(), fraction=0.03, pad=0.02, extend="max")
    for panel, source in zip(panels[0], inputs, strict=True):
        panel.set_title(f"$c$ = {source}", pad=3)
    for panel, output in zip(panels[:, 0], outputs, strict=True):
        panel.set_ylabel(f"$k$ = {output}\n{panel.get_ylabel()}".rstrip())
    for panel in panels[-1] if flat else ():
        panel.set_xlabel(style.frequency_label("x", unit))
    return figure
