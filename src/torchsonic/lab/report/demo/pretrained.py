"""The pretrained networks on newly drawn shapes, rotated and noisy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchsonic.lab.data import SynthShape, perturb
from torchsonic.lab.metrics.robustness import score_samples
from torchsonic.lab.report.style import class_legend, label_colours, show_image
from torchsonic.viz.style import PALETTE, new_figure, styled, thin_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANGLES = (0.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0)
NOISES = (0.0, 0.1, 0.2, 0.3)
SHOWN_ANGLES = (0.0, 30.0, 75.0)
Networks = Mapping[str, nn.Module]
Curves = dict[str, list[float]]


def _changed(data: SynthShape, kind: str, level: float, chosen: Sequence[int]) -> tuple[Tensor, Tensor]:
    image, label = data.samples(chosen)
    return perturb(image, label, kind, level, seed=int(chosen[0])) if level else (image, label)


def score_levels(
    networks: Networks, kind: str, levels: Sequence[float], scenes: Sequence[int], advance: Callable[[], None]
) -> Curves:
    """Dice of each network at each level of a perturbation."""
    data, found = SynthShape(), {}
    for name, network in networks.items():
        found[name] = []
        for level in levels:
            batches = partial(_changed, data, kind, level)
            dice = score_samples(network, batches, scenes, num_classes=data.num_classes, background=False)
            found[name].append(dice)
            advance()
    return found


@styled
def draw_curves(curves: Mapping[str, tuple[Sequence[float], Curves, str]]) -> Figure:
    """A panel for each test: Dice over its levels, a line for each network."""
    figure = new_figure(4.2 * len(curves), 2.9)
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for (title, (levels, found, unit)), panel in zip(curves.items(), panels, strict=True):
        for (name, dice), colour, marker in zip(found.items(), PALETTE, "osD^v", strict=False):
            panel.plot(levels, dice, color=colour, marker=marker, markersize=4, label=name)
        panel.set(title=title, xlabel=unit, ylabel="Dice", ylim=(0, 1.03), xticks=levels)
        thin_axes(panel)
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, ncols=3, loc="outside lower center")
    return figure


@styled
@torch.no_grad()
def draw_turned(networks: Networks, scene: int) -> Figure:
    """A row for each angle: the turned scene, its classes, and those of each network."""
    figure = new_figure(1.75 * (2 + len(networks)), 1.8 * len(SHOWN_ANGLES) + 0.6)
    panels = figure.subplots(len(SHOWN_ANGLES), 2 + len(networks), squeeze=False)
    for angle, line in zip(SHOWN_ANGLES, panels, strict=True):
        image, truth = _changed(SynthShape(), "rotation", angle, [scene])
        show_image(line[0], image[0])
        line[0].set_ylabel(f"{angle:g} degrees")
        for classes, panel in zip((truth, *(n(image).argmax(1) for n in networks.values())), line[1:], strict=True):
            show_image(panel, label_colours(classes[0]))
    for title, panel in zip(("scene", "truth", *networks), panels[0], strict=True):
        panel.set_title(title)
    class_legend(figure, loc="outside lower center")
    return figure
