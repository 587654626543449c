"""Common look of figures: the Okabe-Ito palette, which colour-blind readers can tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torchsonic.lab.data.synthetic.shapes import KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

CLASSES = ("#15181c", "#56B4E9", "#F0E442", "#009E73", "#D55E00", "#CC79A7")
ANSWERS = {0: ("other", "#D55E00"), 1: ("one pair", "#0072B2")}
# Colour and marker of an operator, the same in all reports; a longer name stands before one that it holds.
OPERATORS = {
    "gfnet": ("#56B4E9", "P"),
    "niff": ("#009E73", "v"),
    "s4nd": ("#E69F00", "D"),
    "vit": ("#CC79A7", "^"),
    "replk": ("#000000", "X"),
    "dilated": ("#777777", "*"),
    "resnet50_sonic": ("#332288", "h"),
    "sonicnet": ("#0072B2", "o"),
    "sonic": ("#0072B2", "o"),
    "resnet50": ("#D55E00", "s"),
    "convnet": ("#D55E00", "s"),
}


def label_colours(label: Tensor) -> NDArray[np.float64]:
    """Classes ``(H, W)`` as colours ``(H, W, 3)``."""
    return np.array([_rgb(colour) for colour in CLASSES])[label.numpy()]


def _rgb(colour: str) -> list[float]:
    return [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def show_image(panel: Axes, picture: Tensor | NDArray[np.float64]) -> None:
    """Show an image ``(3, H, W)`` or colours ``(H, W, 3)``, each pixel a square."""
    shown = picture.movedim(0, -1).clamp(0, 1).numpy() if isinstance(picture, Tensor) else picture
    panel.imshow(shown, interpolation="nearest")
    panel.set(xticks=[], yticks=[])
    for spine in panel.spines.values():
        spine.set(linewidth=0.4, color="0.5")


def show_colour(panel: Axes, colour: str, *, edge: str) -> None:
    """Fill a panel with one colour and frame it in another."""
    show_image(panel, np.array([[_rgb(colour)]]))
    panel.set_aspect("auto")
    for spine in panel.spines.values():
        spine.set(color=edge, linewidth=1.2)


def class_legend(figure: Figure | SubFigure, **place: Any) -> None:
    """Which colour is which class."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, edgecolor="0.5") for colour in CLASSES]
    width = figure.bbox.width / figure.figure.dpi  # of a part, too; a name and its patch take about 1.2 inches
    figure.legend(handles, KINDS, ncols=min(len(KINDS), max(2, int(width / 1.2))), frameon=False, **place)


def mark_patch(panel: Axes) -> None:
    """Frame the two central pixels of an image of 64, with a little room round them."""
    from matplotlib.patches import Rectangle

    panel.add_patch(Rectangle((29.5, 29.5), 4, 4, fill=False, edgecolor="#F0E442", linewidth=1.1))


def plain(text: str) -> str:
    """A text in which a dollar sign is one and no formula begins."""
    return text.replace("$", r"\$")
