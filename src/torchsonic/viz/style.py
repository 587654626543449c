"""One look for all figures.

Colours can be told apart by colour-blind readers: cividis for magnitudes, a blue-red map through white for signed
values, the Okabe-Ito palette for categories. Figures are made through matplotlib's objects and never touch a window
or the state of ``pyplot``. Image axes have the first array axis downwards, as images are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from torch import Tensor

    from torchsonic.viz.lattice import Lattice

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MAGNITUDE = "cividis"
SIGNED = "RdBu_r"
MINUS = "\N{MINUS SIGN}"
SATURATION = 0.25
DECADES = 4.0
"""Below the highest value, on logarithmic scales."""
# Names of the last axes, in array order: (x), (y, x), (z, y, x).
AXIS_NAMES = {1: ("x",), 2: ("y", "x"), 3: ("z", "y", "x")}
SETTINGS: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 8.0,
    "figure.titlesize": 11.0,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.4,
    "axes.unicode_minus": True,
}

F = TypeVar("F", bound=Callable[..., Any])


def styled(draw: F) -> F:
    """Let a function draw with the common settings without changing those of the caller."""

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        try:
            from matplotlib import rc_context, rcdefaults
        except ImportError as error:
            raise ImportError('figures need matplotlib; run: pip install "torchsonic[viz]"') from error
        with rc_context():
            rcdefaults()  # a user's own style would change what is measured against stored pictures
            with rc_context(SETTINGS):
                figure = draw(*args, **kwargs)
                # Ticks are made when the figure is rendered, under the caller's settings again.
                for panel in figure.axes:
                    panel.tick_params(which="major", labelsize=SETTINGS["xtick.labelsize"], width=0.6, length=2.5)
                return figure

    return drawn  # type: ignore[return-value]


def new_figure(width: float, height: float) -> Figure:
    """A figure that no window shows, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def shades(count: int) -> list[Any]:
    """Ordered colours, dark to light, for things that follow each other such as the stages of a network."""
    from matplotlib import colormaps

    return [colormaps[MAGNITUDE](place) for place in np.linspace(0.0, 0.88, max(count, 1))]


def length_label(name: str, unit: str) -> str:
    """Label of an axis of lengths."""
    return f"${name}$ ({unit})"


def frequency_label(name: str, unit: str) -> str:
    """Label of an axis of frequencies."""
    return rf"$\omega_{{{name}}}$ (rad/{unit})"


def _edges(values: NDArray[np.float64]) -> tuple[float, float]:
    """Outer edges of the cells round evenly spaced places."""
    half = (values[1] - values[0]) / 2 if len(values) > 1 else 0.5
    return float(values[0] - half), float(values[-1] + half)


def bare(panel: Axes) -> None:
    """Leave the ticks away, as images have them unless they are framed: another panel of the same kind has them."""
    panel.set(xticks=[], yticks=[])


def _show(panel: Axes, picture: ArrayLike, axes: Sequence[ArrayLike], **options: Any) -> AxesImage:
    (top, bottom), (left, right) = (_edges(np.asarray(a, dtype=np.float64)) for a in axes)
    bare(panel)
    extent = (left, right, bottom, top)
    return panel.imshow(np.asarray(picture), extent=extent, interpolation="nearest", **options)


def show_spectrum(
    panel: Axes, picture: ArrayLike, axes: Sequence[ArrayLike], *, highest: float | None = None, lowest: float = 0.0
) -> AxesImage:
    """Show magnitudes ``(n_1, n_2)`` over frequencies; the panel is square whatever the sampling."""
    image = _show(panel, picture, axes, cmap=MAGNITUDE, vmin=lowest, vmax=highest, aspect="auto")
    panel.set_box_aspect(1)
    return image


def show_decades(panel: Axes, shares: Tensor, axes: Sequence[ArrayLike]) -> AxesImage:
    """Show parts of the highest value over frequencies, on a logarithmic scale."""
    return show_spectrum(panel, shares.log10(), axes, lowest=-DECADES, highest=0.0)


def show_map(panel: Axes, picture: ArrayLike, axes: Sequence[ArrayLike], *, lowest: float, highest: float) -> AxesImage:
    """Show magnitudes ``(n_1, n_2)`` over places, true to scale."""
    return _show(panel, picture, axes, cmap=MAGNITUDE, vmin=lowest, vmax=highest, aspect="equal")


def show_kernel(panel: Axes, picture: ArrayLike, axes: Sequence[ArrayLike], *, peak: float | None = None) -> AxesImage:
    """Show signed values ``(n_1, n_2)`` over places, true to scale, white at zero.

    Kernels have a sharp peak at the origin; colours saturate at a quarter of it, so that the beam is seen as well.
    """
    largest = float(np.abs(np.asarray(picture)).max()) if peak is None else peak
    bound = SATURATION * largest or 1.0
    return _show(panel, picture, axes, cmap=SIGNED, vmin=-bound, vmax=bound, aspect="equal")


def frame_axes(panel: Axes, axes: Sequence[ArrayLike], names: Sequence[str], unit: str, *, frequency: bool) -> None:
    """Label both axes of an image with their names and units, and tick their ends and the origin."""
    label = frequency_label if frequency else length_label
    for values, name, side in zip(axes, names, ("y", "x"), strict=True):
        ends = np.asarray(values, dtype=np.float64)
        ticks = [float(ends[0]), 0.0, float(ends[-1])]
        getattr(panel, f"set_{side}ticks")(ticks, [short(tick) for tick in ticks])
        getattr(panel, f"set_{side}label")(label(name, unit), labelpad=1)


def frame_pair(left: Axes, right: Axes, lattice: Lattice, unit: str, *, plane: tuple[int, int] = (0, 1)) -> None:
    """Label an image over the frequencies of a lattice, and one over its places, cut along two of its axes."""
    names = [AXIS_NAMES[len(lattice.size)][axis] for axis in plane]
    for panel, axes in ((left, lattice.frequencies), (right, lattice.places)):
        frame_axes(panel, [axes[axis] for axis in plane], names, unit, frequency=panel is left)


def turn_clockwise(panel: Any, down: str, right: str) -> None:
    """Give a circle the directions of an image, whose first axis points down."""
    panel.set_theta_direction(-1)
    names = [f"+{right}", f"+{down}", f"{MINUS}{right}", f"{MINUS}{down}"]
    panel.set_thetagrids([0, 90, 180, 270], names)
    panel.grid(linewidth=0.4, alpha=0.6)


def short(value: float) -> str:
    """A number in two digits, or all before the point, with a true minus."""
    text = f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"
    return text.replace("-", MINUS)


def thin_axes(panel: Axes) -> None:
    """Hide the parts of axes that carry no numbers."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", linewidth=0.5, alpha=0.4)
    panel.set_axisbelow(True)
