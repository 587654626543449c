"""The picture of docs/orientation.md: one scene stored in three ways, and one that turns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchsonic import SonicConv2d, SonicOrbitConv2d
from torchsonic.nn import OrbitPool, SonicConvNd
from torchsonic.viz import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_orientation"]

SIZE, EXTENT = 96, 48.0
BARS = ((-4.0, 0.0, 2.2, 13.0), (2.2, -11.0, 8.0, 2.2), (1.0, -1.0, 6.0, 2.2))
"""Right, down, half width and half height of the bars of a letter, in pixels from the middle."""
KERNEL = 33
GREEN, RED = style.PALETTE[2], style.PALETTE[1]


def _turn(degrees: float) -> Tensor:
    angle = math.radians(degrees)
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]).double()


def _places(orientation: Tensor) -> Tensor:
    """Where the samples of an array lie in space, ``(N, N, 2)``: down and right."""
    along = torch.arange(SIZE, dtype=torch.float64) - (SIZE - 1) / 2
    grid = torch.stack(torch.meshgrid(along, along, indexing="ij"), dim=-1)
    return grid @ orientation.mT


def _scene(places: Tensor) -> Tensor:
    """A soft letter F at places in space."""
    down, right = places.unbind(-1)
    bars = [
        torch.sigmoid(2 * (width - (right - x).abs())) * torch.sigmoid(2 * (height - (down - y).abs()))
        for x, y, width, height in BARS
    ]
    return torch.stack(bars).amax(0)


def _with_beam(layer: SonicConvNd) -> SonicConvNd:
    """A layer whose one mode is a beam to the lower right; its turns are the channels."""
    with torch.no_grad():
        layer.raw_direction.copy_(torch.tensor([[0.45, 1.0]]))
        layer.raw_damping.fill_(-2.0)
        layer.raw_oscillation.fill_(0.4)
        layer.raw_transverse.fill_(-1.5)
        layer.raw_scale.fill_(0.54)
        layer.oscillation_limit.fill_(2.0)
        layer.mix_in.copy_(torch.tensor([[[1.0], [0.0]]]))
        layer.mix_out.zero_()
        layer.mix_out[0, 0, 0] = 1.0
    return layer


def _show(panel: Axes, values: Tensor, places: Tensor | None = None, **options: Any) -> None:
    """An array as it is stored or, given places, where it lies in space."""
    panel.set_xticks([])
    panel.set_yticks([])
    panel.set_aspect("equal")
    if places is None:
        panel.imshow(values, interpolation="nearest", **options)
        return
    down, right = places.unbind(-1)
    panel.pcolormesh(right, down, values, shading="gouraud", rasterized=True, **options)
    panel.set_xlim(-EXTENT / 2, EXTENT / 2)
    panel.set_ylim(EXTENT / 2, -EXTENT / 2)


def _signed(values: Tensor) -> dict[str, Any]:
    most = float(values.abs().max())
    return {"cmap": style.SIGNED, "vmin": -most, "vmax": most}


def _told(panels: Any) -> None:
    layer = _with_beam(SonicConv2d(1, 1, num_modes=1, bias=False, dtype=torch.float64, padding_mode="zeros"))
    swapped = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    ways = {
        "standard axes": torch.eye(2, dtype=torch.float64),
        "axes swapped, one flipped": swapped,
        "oblique scan": _turn(30.0),
    }
    inner = slice((SIZE - int(EXTENT)) // 2, (SIZE + int(EXTENT)) // 2)
    for column, (name, orientation) in zip(panels.T, ways.items(), strict=True):
        places = _places(orientation)
        image = _scene(places)
        with torch.no_grad():
            answer = layer(image[None, None], orientation=orientation)[0, 0]
            layer.set_orientation(orientation)
            kernel = layer.kernel(KERNEL, centred=True)[0, 0]
            layer.set_orientation(None)
        _show(column[0], image[inner, inner], cmap="gray")
        column[0].set_title(name, fontsize=9)
        most = float(kernel.abs().max()) / 2
        _show(column[1], kernel, cmap=style.SIGNED, vmin=-most, vmax=most)
        _show(column[2], answer, places, **_signed(answer))
        middle = int(EXTENT) * 0.16
        for axis, colour in enumerate((RED, GREEN)):  # where the axes of space point in the array
            down, right = (8 * orientation[axis]).tolist()
            column[0].annotate(
                "", (middle + right, middle + down), (middle, middle), arrowprops={"arrowstyle": "->", "color": colour}
            )
    for panel, text in zip(panels[:, 0], ("array", "filter on the array", "output,\nback in space"), strict=True):
        panel.set_ylabel(text, fontsize=9)


def _unknown(panels: Any) -> None:
    options: dict[str, Any] = {"num_modes": 1, "lift": True, "bias": False, "padding_mode": "zeros"}
    layer = SonicOrbitConv2d(1, 8, dtype=torch.float64, **options)
    _with_beam(layer)
    pool = OrbitPool(layer.group, "max")
    half = int(EXTENT) // 2
    inner = slice(SIZE // 2 - half, SIZE // 2 + half)
    for column, degrees in zip(panels.T, (0.0, 45.0), strict=True):
        image = _scene(_places(_turn(degrees).mT))
        with torch.no_grad():
            fields = layer(image[None, None])
            answer = pool(fields)[0, 0, inner, inner]
        parts = fields[0, :, inner, inner]
        mosaic = torch.cat([torch.cat(list(row), dim=1) for row in (parts[:4], parts[4:])])
        _show(column[0], image[inner, inner], cmap="gray")
        column[0].set_title("image" if degrees == 0 else "rotated by 45 degrees", fontsize=9)
        _show(column[1], mosaic, **_signed(mosaic))
        _show(column[2], answer, cmap=style.MAGNITUDE)
    for panel, text in zip(panels[:, 0], ("", "one filter\nin 8 rotations", "maximum of the 8"), strict=True):
        panel.set_ylabel(text, fontsize=9)


@style.styled
def draw_orientation() -> Figure:
    """Left: given the orientation, the filter follows and the output stays. Right: without, the output rotates."""
    figure = style.new_figure(10.4, 6.2)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(3.1, 2.2), wspace=0.03).ravel()
    left.suptitle("Orientation given: one scene, stored in three ways, one output", fontsize=10.5)
    right.suptitle("Orientation unknown: the output rotates with the scene", fontsize=10.5)
    _told(left.subplots(3, 3))
    _unknown(right.subplots(3, 2))
    return figure
