"""What each of a mode's five parameters does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from torchsonic.arguments import choice
from torchsonic.spectral.operator import ModeOperator
from torchsonic.spectral.response import Modes
from torchsonic.viz import style
from torchsonic.viz.lattice import Lattice, mode_beams, mode_spectra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class PlaneMode:
    """A mode in 2-D, given by its five parameters; lengths are in the unit of the spacing."""

    angle: float = 30.0
    """Direction in degrees, 0 to the right and 90 up, as in the explorer; the axis y points down."""
    scale: float = 1.0
    """``s``, a length."""
    damping: float = 0.12
    """``-Re a``, positive."""
    oscillation: float = 0.6
    """``Im a``."""
    transverse: float = 1.5
    """``tau``, a length squared."""

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"scale must be positive, got {self.scale}")
        if not self.damping > 0:
            raise ValueError(f"damping (-Re a) must be positive, got {self.damping}")
        if self.transverse < 0:
            raise ValueError(f"transverse must not be negative, got {self.transverse}")

    def as_modes(self) -> Modes:
        """The mode alone, with gain 1."""
        turn = math.radians(self.angle)
        one = torch.ones(1, dtype=torch.float64)
        return Modes(
            direction=torch.tensor([[-math.sin(turn), math.cos(turn)]], dtype=torch.float64),
            scale=self.scale * one,
            pole=torch.complex(-self.damping * one, self.oscillation * one),
            transverse=self.transverse * one,
            gain=one,
            mix_in=one.to(torch.complex128)[:, None],
            mix_out=one.to(torch.complex128)[:, None],
        )


SYMBOLS = {
    "angle": r"orientation $\theta$",
    "scale": r"scale $s$",
    "damping": r"decay $-$Re $a$",
    "oscillation": r"Im $a$",
    "transverse": r"transverse $\tau$",
}
VALUES: Mapping[str, Sequence[float]] = {
    "angle": (0, 30, 60, 90, 180),
    "scale": (0.5, 1, 1.5, 2, 3),
    "damping": (0.6, 0.3, 0.12, 0.06, 0.03),
    "oscillation": (0, 0.3, 0.6, 1.2, 2.0),
    "transverse": (0, 0.3, 1.5, 6, 24),
}


def plane_mode_pictures(mode: PlaneMode, lattice: Lattice) -> tuple[Tensor, Tensor]:
    """``log(1 + |T|)`` and the real part of the kernel of a mode, each ``(*size)``."""
    operator = ModeOperator(mode.as_modes())
    return mode_spectra(operator, lattice)[0].abs().log1p(), mode_beams(operator, lattice)[0].real


@style.styled
def draw_sweep(
    mode: PlaneMode | None = None,
    *,
    values: Mapping[str, Sequence[float]] | None = None,
    size: int = 65,
    spacing: float = 1.0,
    unit: str = "px",
    kind: Literal["image", "surface"] = "image",
) -> Figure:
    """Draw one mode while its parameters vary, one per row: the response and, next to it, the kernel.

    Parameters
    ----------
    mode
        The values of the parameters that do not vary.
    values
        Values of each parameter, by the names of :class:`PlaneMode`; all five by default. Rows may differ in length.
    size, spacing
        Odd number of pixels of the pictures, and their spacing.
    unit
        Unit of all lengths.
    kind
        Responses as images or as surfaces.

    Examples
    --------
    >>> figure = torchsonic.viz.draw_sweep(values={"angle": [0, 45, 90]})
    """
    mode = PlaneMode() if mode is None else mode
    rows = dict(VALUES if values is None else values)
    known = tuple(field.name for field in fields(PlaneMode))
    for name, turned in rows.items():
        choice(name, known, "values")
        if not turned:
            raise ValueError(f"values of {name} must be at least one number, got none")
    choice(kind, ("image", "surface"), "kind")
    if not rows:
        raise ValueError("values must name at least one parameter, got none")
    lattice = Lattice((size, size), (spacing, spacing))
    columns = max(map(len, rows.values()))
    figure = style.new_figure(max(2.35 * columns + 1.2, 5.5), 1.36 * len(rows) + (1.0 if kind == "image" else 1.4))
    figure.suptitle("Response $\\log(1+|T|)$ of one mode over frequency, and its kernel")
    if kind == "surface":  # whose labels hang out of their panel
        figure.get_layout_engine().set(rect=(0.01, 0.04, 0.99, 0.96))  # type: ignore[union-attr]
    grid = figure.add_gridspec(len(rows), 2 * columns + 1, width_ratios=[*[1.0] * (2 * columns), 0.1])
    for row, (name, turned) in enumerate(rows.items()):
        pictures = [plane_mode_pictures(replace(mode, **{name: float(value)}), lattice) for value in turned]
        highest = max(float(response.max()) for response, _ in pictures)
        image: Any = None
        for place, (value, (response, kernel)) in enumerate(zip(turned, pictures, strict=True)):
            left = figure.add_subplot(grid[row, 2 * place], projection="3d" if kind == "surface" else None)
            right = figure.add_subplot(grid[row, 2 * place + 1])
            image = _draw_response(left, response, lattice, highest, kind)
            style.show_kernel(right, kernel, lattice.places)
            left.set_title(f"{style.short(value)}{_unit(name, unit)}", loc="left", pad=3, fontsize=8.5)
            if place == 0:
                _label(left, right, SYMBOLS[name], lattice, unit, kind, last=row == len(rows) - 1)
        figure.colorbar(image, cax=figure.add_subplot(grid[row, -1]))
    return figure


def _label(left: Any, right: Axes, symbol: str, lattice: Lattice, unit: str, kind: str, *, last: bool) -> None:
    """Name the row, and in the last one the axes."""
    if last:
        style.frame_axes(right, lattice.places, ("y", "x"), unit, frequency=False)
    if kind == "surface":
        left.text2D(-0.22, 0.5, symbol, rotation=90, va="center", transform=left.transAxes, fontsize=10)
    if last:
        style.frame_axes(left, lattice.frequencies, ("y", "x"), unit, frequency=True)
    if kind == "surface":  # close to the surface: it fills its panel
        left.tick_params(pad=-5)
        for axis in (left.xaxis, left.yaxis):
            axis.labelpad = -9
            axis.label.set_fontsize(7)
            axis.set_ticks(axis.get_majorticklocs()[1:])  # the low ends would meet in one corner
        return
    below = left.get_ylabel()
    left.set_ylabel(symbol + (f"\n{below}" if below else ""), fontsize=9.5)


def _unit(name: str, unit: str) -> str:
    return {"angle": "°", "scale": f" {unit}", "transverse": f" {unit}²"}.get(name, "")


def _draw_response(panel: Axes, response: Tensor, lattice: Lattice, highest: float, kind: str) -> Any:
    if kind == "image":
        return style.show_spectrum(panel, response, lattice.frequencies, highest=highest)
    y, x = np.meshgrid(*[axis.numpy() for axis in lattice.frequencies], indexing="ij")
    surface = panel.plot_surface(  # type: ignore[attr-defined]
        x, y, response.numpy(), cmap=style.MAGNITUDE, vmin=0, vmax=highest, rcount=65, ccount=65, linewidth=0
    )
    panel.set(zlim=(0, highest), xticks=[], yticks=[], zticks=[])
    panel.view_init(elev=38, azim=-60)  # type: ignore[attr-defined]
    panel.set_box_aspect((1, 1, 0.7), zoom=1.35)  # type: ignore[call-arg]
    return surface
