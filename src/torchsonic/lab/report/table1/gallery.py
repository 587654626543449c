"""Pictures of what models answer."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from torchsonic.lab.report.style import (
    ANSWERS,
    class_legend,
    label_colours,
    mark_patch,
    new_figure,
    plain,
    show_image,
)
from torchsonic.lab.report.table1.examples import Answers, Segmentation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_answers", "draw_segmentations"]

TITLE_WIDTH = 14
WRONG = "#ffffff"


def draw_segmentations(rows: Sequence[Segmentation]) -> Figure | None:
    """A row for each perturbation: input, truth, and each model's classes with the Dice of that image."""
    names = list(rows[0].predictions) if rows else []
    if not names:
        return None
    figure = new_figure(1.35 * (2 + len(names)) + 1.0, 1.5 * len(rows) + 0.8)
    panels = figure.subplots(len(rows), 2 + len(names), squeeze=False)
    for row, line in zip(rows, panels, strict=True):
        show_image(line[0], row.image)
        show_image(line[1], label_colours(row.truth))
        line[0].set_ylabel(row.title, rotation=0, ha="right", va="center")
        for name, panel in zip(names, line[2:], strict=True):
            if name in row.predictions:
                show_image(panel, label_colours(row.predictions[name]))
                panel.set_xlabel(f"{row.dice(name):.2f}", fontsize="small", labelpad=2)
            else:
                panel.set_axis_off()
                panel.text(0.5, 0.5, "cannot\nbe told", ha="center", va="center", color="0.4", fontsize="small")
    for title, panel in zip(("input", "truth", *names), panels[0], strict=True):
        panel.set_title(_wrap(title), fontsize="medium")
    class_legend(figure, loc="outside lower center")
    return figure


def draw_answers(parts: Sequence[Answers]) -> Figure | None:
    """Samples side by side; under each the right answer and each model's, the wrong ones struck through."""
    names = list(parts[0].answers) if parts else []
    if not names:
        return None
    samples = len(parts[0].truth)
    height = 1.25 + 0.42 * (1 + len(names)) + 0.3
    figure = new_figure(1.25 * samples + 1.9, height * len(parts))
    for part, block in zip(parts, figure.subfigures(len(parts), 1, squeeze=False).ravel(), strict=True):
        block.suptitle(part.title, fontsize="medium", fontweight="bold")
        ratios = [3.0, *[1.0] * (1 + len(names))]
        panels = block.subplots(2 + len(names), samples, squeeze=False, gridspec_kw={"height_ratios": ratios})
        for column in range(samples):
            show_image(panels[0, column], part.image[column])
            mark_patch(panels[0, column])
            right = int(part.truth[column])
            _tile(panels[1, column], right, right=True)
            for panel, name in zip(panels[2:, column], names, strict=True):
                answer = int(part.answers[name][column])
                _tile(panel, answer, right=answer == right)
        for panel, name in zip(panels[1:, 0], ("truth", *names), strict=True):
            score = "" if name == "truth" else f"  {_share(part, name)}"
            words = _wrap(name) + score
            panel.set_ylabel(words, rotation=0, ha="right", va="center", fontsize="small")
    return figure


def _wrap(name: str) -> str:
    return "\n".join(textwrap.wrap(plain(name), TITLE_WIDTH))


def _share(part: Answers, name: str) -> str:
    return f"{int((part.answers[name] == part.truth).sum())}/{len(part.truth)}"


def _tile(panel: Axes, answer: int, *, right: bool) -> None:
    """An answer in its colour; a wrong one is hollow and says so."""
    word, colour = ANSWERS[answer]
    background = np.array([[[int((colour if right else WRONG)[p : p + 2], 16) / 255 for p in (1, 3, 5)]]])
    show_image(panel, background)
    panel.set_aspect("auto")
    for spine in panel.spines.values():
        spine.set(color=colour, linewidth=1.2)
    text, ink = (word, "white") if right else (f"{word}: wrong", colour)
    panel.text(0, 0, text, ha="center", va="center", color=ink, fontsize="small")
