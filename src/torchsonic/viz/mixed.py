"""What a layer does from one channel to another: its modes mixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchsonic.nn import SonicConvNd
from torchsonic.spectral.operator import frequency_parts
from torchsonic.viz.energy import pair_energies
from torchsonic.viz.lattice import Lattice, physical_operator, reference_lattice
from torchsonic.viz.style import (
    AXIS_NAMES,
    PALETTE,
    bare,
    frame_axes,
    frequency_label,
    new_figure,
    show_spectrum,
    styled,
    thin_axes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_mixed", "mixed_responses", "strongest_channels"]

COARSE = 9
"""Samples on an axis from which the strongest channels are chosen."""
BRIGHTEST = 0.995
"""Part of the samples that colours tell apart; the rest are as bright as they can be."""


def strongest_channels(layer: SonicConvNd, lattice: Lattice, count: int = 4) -> tuple[list[int], list[int]]:
    """Output and input channels with most energy, in the order of their numbers."""
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


@styled
def draw_mixed(
    layer: SonicConvNd,
    *,
    outputs: Sequence[int] | None = None,
    inputs: Sequence[int] | None = None,
    samples: int | None = None,
    unit: str = "px",
    title: str = "",
) -> Figure:
    """Responses from input channels (columns) to output channels (rows), one scale for all; volumes at ``w_z = 0``.

    Parameters
    ----------
    outputs, inputs
        Channels; by default the four with most energy.
    samples
        See :func:`reference_lattice`.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_mixed(torchsonic.SonicConv2d(3, 8), outputs=[0, 7], inputs=[0, 1, 2])
    """
    lattice = reference_lattice(layer, samples)
    strongest = (
        strongest_channels(layer, reference_lattice(layer, COARSE)) if outputs is None or inputs is None else ([], [])
    )
    outputs = strongest[0] if outputs is None else outputs
    inputs = strongest[1] if inputs is None else inputs
    if layer.num_axes == 3:  # one slice is shown, at frequency 0 of the first axis
        slab = Lattice((1, *lattice.size[1:]), lattice.spacing)
        responses = mixed_responses(layer, outputs, inputs, slab)[:, :, 0]
    else:
        responses = mixed_responses(layer, outputs, inputs, lattice)
    flat = layer.num_axes == 1
    figure = new_figure(
        max((2.2 if flat else 1.75) * len(inputs) + 1.2, 4.0), (1.3 if flat else 1.75) * len(outputs) + 0.9
    )
    figure.suptitle(title + (": " if title else "") + r"$|\hat H_{kc}(\omega)|$ from channel $c$ to channel $k$")
    panels = figure.subplots(len(outputs), len(inputs), squeeze=False, sharex=flat, sharey=flat)
    # A resonance is a single bright sample, beside which the rest would be dark.
    highest = float(responses.max() if flat else responses.flatten().quantile(BRIGHTEST))
    image = None
    for row, output in enumerate(outputs):
        for column, source in enumerate(inputs):
            panel, values = panels[row, column], responses[row, column]
            corner = row == len(outputs) - 1 and column == 0
            if flat:
                panel.plot(lattice.frequencies[0], values, color=PALETTE[0])
                panel.set_ylim(0, 1.05 * highest)
                thin_axes(panel)
                if row == len(outputs) - 1:
                    panel.set_xlabel(frequency_label("x", unit))
            else:
                axes = lattice.frequencies[-2:]
                image = show_spectrum(panel, values, axes, highest=highest)
                if corner:
                    frame_axes(panel, axes, AXIS_NAMES[2], unit, frequency=True)
                else:
                    bare(panel)
            if row == 0:
                panel.set_title(f"$c$ = {source}", pad=3)
            if column == 0:
                before = panel.get_ylabel()
                panel.set_ylabel(f"$k$ = {output}" + (f"\n{before}" if before else ""))
    if image is not None:
        figure.colorbar(image, ax=panels.ravel().tolist(), fraction=0.03, pad=0.02, extend="max")
    return figure
