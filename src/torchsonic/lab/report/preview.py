"""Picture sheets of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from torchsonic.lab.data import PERTURBATIONS, HalliGalli, SynthShape, perturb
from torchsonic.lab.report import style
from torchsonic.lab.runs.synthetic import TEST_NOISE
from torchsonic.viz.style import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

SAMPLES = 8
RESOLUTIONS = (16, 32, 64, 128, 256)


def _synthshape(seed: int) -> Figure:
    data = SynthShape(seed=seed)
    figure = new_figure(11.0, 17.0)
    samples, levels, grids = figure.subfigures(3, 1, squeeze=False, height_ratios=[3.2, 9.6, 3.9]).ravel()
    _draw_samples(samples, data)
    _draw_levels(levels, data)
    _draw_resolutions(grids, data)
    return figure


def _draw_samples(figure: SubFigure, data: SynthShape) -> None:
    figure.suptitle("SynthShape: samples and labels", fontweight="bold")
    image, label = data.samples(range(SAMPLES))
    for place, (top, bottom) in enumerate(figure.subplots(2, SAMPLES).T):
        style.show_image(top, image[place])
        style.show_image(bottom, style.label_colours(label[place]))
        top.set_title(f"sample {place}", fontsize="small")
    style.class_legend(figure, loc="outside lower center")


def _draw_levels(figure: SubFigure, data: SynthShape) -> None:
    figure.suptitle("One sample under each perturbation, at all levels", fontweight="bold")
    image, label = data.samples([_richest(data)])
    for (name, perturbation), line in zip(PERTURBATIONS.items(), figure.subplots(len(PERTURBATIONS), 6), strict=True):
        for place, level in enumerate(perturbation.levels):
            shown, moved = perturb(image, label, name, level)
            style.show_image(line[2 * place], shown[0])
            style.show_image(line[2 * place + 1], style.label_colours(moved[0]))
            line[2 * place].set_title(f"{level:g}", fontsize="small")
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")


def _richest(data: SynthShape) -> int:
    """The sample with most kinds of shapes."""
    _, labels = data.samples(range(SAMPLES))
    return max(range(SAMPLES), key=lambda place: len(labels[place].unique()))


def _draw_resolutions(figure: SubFigure, data: SynthShape) -> None:
    figure.suptitle("One scene on several grids", fontweight="bold")
    chosen = [_richest(data)]
    for size, (top, bottom) in zip(RESOLUTIONS, figure.subplots(2, len(RESOLUTIONS)).T, strict=True):
        image, label = data.samples(chosen, (size, size))
        style.show_image(top, image[0])
        style.show_image(bottom, style.label_colours(label[0]))
        top.set_title(f"{size} x {size}", fontsize="small")


def _halligalli(seed: int) -> Figure:
    data = HalliGalli(seed=seed)
    indices = list(range(200))
    _, truth = data.scenes(indices)
    figure = new_figure(11.0, 7.4)
    figure.suptitle("HalliGalli: does exactly one pair of corners match? The framed patch is labelled.")
    for answer, block in zip((1, 0), figure.subfigures(2, 1, squeeze=False).ravel(), strict=True):
        chosen = [index for index in indices if truth[index] == answer][:SAMPLES]
        word = {1: "exactly one pair", 0: "no pair, two pairs, or three or four equal shapes"}[answer]
        block.suptitle(f"class {answer}: {word}", fontweight="bold", color=style.ANSWERS[answer][1])
        image, label = data.samples(chosen)
        noisy = perturb(image, label, "noise", TEST_NOISE)[0]
        panels = block.subplots(2, SAMPLES)
        for line, pictures in zip(panels, (image, noisy), strict=True):
            for panel, picture in zip(line, pictures, strict=True):
                style.show_image(panel, torch.as_tensor(picture))
                style.mark_patch(panel)
        for line, name in zip(panels, ("clean", f"noise {TEST_NOISE:g}"), strict=True):
            line[0].set_ylabel(name)
    return figure


SHEETS: Mapping[str, Callable[[int], Figure]] = {"synthshape": _synthshape, "halligalli": _halligalli}
"""What draws the sheet of a task, by a seed."""
