"""Which frequencies each stage of a network lets through."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from torchsonic.nn import SonicConvNd, sonic_layers
from torchsonic.viz.energy import SMALLEST, radial_profile, spectral_energy
from torchsonic.viz.lattice import reference_lattice
from torchsonic.viz.slices import PLANES, central_slice
from torchsonic.viz.style import (
    AXIS_NAMES,
    PALETTE,
    frame_axes,
    frequency_label,
    new_figure,
    shades,
    show_spectrum,
    styled,
    thin_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_stages", "named_sonic_layers", "shares_of_highest"]

DECADES = 4.0
COLUMNS = 4
MOST = 16


def named_sonic_layers(model: nn.Module) -> dict[str, SonicConvNd]:
    """The Sonic layers of a model by name; a model without one is refused, and one whose numbers are none."""
    layers = {name or type(layer).__name__: layer for name, layer in sonic_layers(model)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no Sonic layer, so there are no modes to show")
    with torch.no_grad():
        for name, layer in layers.items():
            layer.reference_operator().check_finite(name)
    return layers


@styled
def draw_stages(model: nn.Module, *, samples: int | None = None, unit: str = "px") -> Figure:
    r"""Energy of each Sonic layer over frequency, :math:`\sum_{kc}|\hat H_{kc}(\omega)|^2` over its highest value.

    One picture for each layer, in the order of the network, and the mean over directions of all of them beside each
    other; their frequencies are on a logarithmic axis if those of the layers reach differently far, as behind strides.
    Of more than 16 layers, 16 evenly chosen ones are shown. Volumes are cut at ``w_z = 0``.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_stages(torchsonic.create_model("synthshape_sonicnet"))
    """
    layers = list(named_sonic_layers(model).items())
    part = f", {MOST} of {len(layers)} layers" if len(layers) > MOST else ""
    if part:
        layers = [layers[round(place * (len(layers) - 1) / (MOST - 1))] for place in range(MOST)]
    flat = layers[0][1].num_axes == 1
    columns = min(COLUMNS, len(layers))
    rows = 0 if flat else math.ceil(len(layers) / columns)
    figure = new_figure(max(2.15 * columns, 1.0) * (not flat) + 5.2, max(3.6, 2.35 * rows + 0.6))
    figure.suptitle(
        f"Spectral energy of the filters{part}" + ("" if flat else r", $\log_{10}$ of the part of the highest")
    )
    left, right = (
        (None, figure) if flat else figure.subfigures(1, 2, squeeze=False, width_ratios=[2.15 * columns, 4.6])[0]
    )
    profile = right.subplots()
    panels = [] if left is None else left.subplots(rows, columns, squeeze=False).ravel().tolist()
    image = None
    for place, ((name, layer), colour) in enumerate(zip(layers, shades(len(layers)), strict=True)):
        lattice = reference_lattice(layer, samples)
        energy = spectral_energy(layer, lattice)
        middles, means = radial_profile(energy, lattice)
        profile.plot(middles, shares_of_highest(means), color=colour, label=name, marker="o", markersize=2.5)
        if not flat:
            shown = energy if layer.num_axes == 2 else central_slice(energy, PLANES[0])
            panel, axes = panels[place], lattice.frequencies[-2:]
            decades = shares_of_highest(shown, energy).log10()
            image = show_spectrum(panel, decades, axes, lowest=-DECADES, highest=0.0)
            panel.set_title(name, fontsize=7.5 if len(name) > 22 else 8.5, pad=3)
            frame_axes(panel, axes, AXIS_NAMES[2], unit, frequency=True)
            if place % columns:
                panel.set_ylabel("")
            if place < len(layers) - columns:
                panel.set_xlabel("")
    for panel in panels[len(layers) :]:
        panel.set_axis_off()
    if left is not None and image is not None:
        left.colorbar(image, ax=panels, fraction=0.03, pad=0.02, shrink=0.62 if rows == 1 else 0.9)
    _finish_profile(profile, len(layers), unit)
    return figure


def shares_of_highest(values: Tensor, of: Tensor | None = None) -> Tensor:
    """Values over the highest (of others, if given), far below all that is shown where they are zero."""
    highest = (values if of is None else of).max()
    return (values / highest.clamp_min(SMALLEST)).clamp_min(10.0 ** (-3 * DECADES))


def _finish_profile(panel: Axes, count: int, unit: str) -> None:
    panel.set_yscale("log")
    panel.set(xlabel=frequency_label("", unit).replace(r"\omega_{}", r"|\omega|"))
    ends = [float(np.asarray(line.get_xdata())[-1]) for line in panel.lines]
    if max(ends) > 2.5 * min(ends):
        panel.set_xscale("log")
    else:
        panel.set_xlim(0, None)
    panel.set_ylabel("mean over directions, highest = 1")
    thin_axes(panel)
    if count > 1:
        panel.legend(frameon=False, fontsize=7 if count > 6 else 8)
    else:
        panel.lines[0].set_color(PALETTE[0])
