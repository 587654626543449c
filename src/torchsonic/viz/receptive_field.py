r"""What one output pixel depends on, measured by gradients.

.. math:: R(r) = \sqrt{\Big\langle \sum_{kc} \Big(\frac{\partial y_k(r_0)}{\partial x_c(r)}\Big)^2 \Big\rangle}

The mean is over images. With few output channels the sum over ``k`` is exact; with many it is estimated with random
signs, without bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchsonic.nn.network_spacing import evaluating
from torchsonic.nn.physical_layer import knows_spacing
from torchsonic.spectral.spacing import spacing_values
from torchsonic.viz import style
from torchsonic.viz.energy import SMALLEST, shares_of_highest
from torchsonic.viz.lattice import PLANES, central_slice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

LINES = ("-", "--", ":", "-.")
EXACT = 16
"""Output channels up to which every one is differentiated; beyond, so many draws of signs."""


@dataclass(frozen=True)
class ReceptiveField:
    """Sensitivity of one output pixel to each input pixel."""

    values: Tensor
    """``(*size)``, not negative."""
    place: tuple[int, ...]
    """The input pixel at the output pixel's position."""
    spacing: tuple[float, ...]
    """Spacing of the input's pixels."""

    @property
    def axes(self) -> list[Tensor]:
        """Coordinates along each axis, relative to the output pixel."""
        sizes = zip(self.values.shape, self.place, self.spacing, strict=True)
        return [(torch.arange(n, dtype=torch.float64) - at) * step for n, at, step in sizes]

    @property
    def distances(self) -> Tensor:
        """Distance of each input pixel, ``(*size)``."""
        return torch.stack(torch.meshgrid(*self.axes, indexing="ij"), dim=-1).norm(dim=-1)

    def share_beyond(self, radii: Tensor) -> Tensor:
        """Fraction of the squared sensitivity beyond each radius."""
        power, distance = self.values.double().square().flatten(), self.distances.flatten()
        beyond = torch.stack([power[distance > radius].sum() for radius in radii])
        return beyond / power.sum().clamp_min(SMALLEST)

    def reach(self, share: float = 0.9) -> float:
        """Radius that contains the given fraction of the squared sensitivity."""
        if not 0 < share <= 1:
            raise ValueError(f"share must be in (0, 1], got {share}")
        distance, order = self.distances.flatten().sort()
        power = self.values.double().square().flatten()[order].cumsum(0)
        # The last sum may miss the whole by rounding.
        index = int((power < share * power[-1] * (1 - 1e-12)).sum())
        return float(distance[min(index, len(distance) - 1)])


def receptive_field(
    model: nn.Module,
    images: Tensor,
    *,
    spacing: float | Sequence[float] | None = None,
    place: Sequence[int] | None = None,
    seed: int = 0,
) -> ReceptiveField:
    """Measure the effective receptive field of a network.

    Parameters
    ----------
    model
        ``(B, C, *size)`` to ``(B, K, *any)``; a classifier is measured at the features before its mean.
    images
        ``(B, C, *size)``, typical inputs of the model, or noise to see what it can depend on at all.
    spacing
        Spacing of the pixels, for models that take one; models that do not pass it on to their layers are refused.
    place
        Output pixel; by default the central one.
    seed
        Seed of the random signs, used if there are many output channels.

    Examples
    --------
    >>> field = torchsonic.viz.receptive_field(torch.nn.Conv2d(1, 1, 3, padding=1), torch.randn(2, 1, 9, 9))
    >>> int((field.values > 0).sum())
    9
    """
    size = tuple(images.shape[2:])
    steps = spacing_values(1.0 if spacing is None else spacing, len(size))
    with evaluating(model), torch.enable_grad():
        x = images.detach().clone().requires_grad_()
        y = _features(model, x, spacing)
        at = tuple(n // 2 for n in y.shape[2:]) if place is None else _checked(place, y)
        outputs = y[(slice(None), slice(None), *at)]
        power = _squared_gradients(outputs, x, seed)
    strides = [n / m for n, m in zip(size, y.shape[2:], strict=True)]
    middle = tuple(round(index * stride) for index, stride in zip(at, strides, strict=True))
    return ReceptiveField(power.sqrt().cpu(), middle, steps)


def _features(model: nn.Module, x: Tensor, spacing: float | Sequence[float] | None) -> Tensor:
    features = getattr(model, "forward_features", None)
    takes_spacing = getattr(model, "takes_spacing", False)
    if spacing is not None and not takes_spacing and knows_spacing(model):
        raise ValueError(
            f"spacing={spacing} given, but {type(model).__name__} does not pass it on to its layers; call "
            "torchsonic.set_spacing(model, spacing) first and pass no spacing here, which leaves pixels as the unit"
        )
    told = () if spacing is None or not takes_spacing else (spacing,)
    y = (model if features is None else features)(x, *told)
    if y.dim() != x.dim():
        raise ValueError(
            f"{type(model).__name__} returns {tuple(y.shape)} for images {tuple(x.shape)}, but a receptive field needs "
            "an output with spatial axes; pass the part of the network before its mean"
        )
    return y


def _checked(place: Sequence[int], y: Tensor) -> tuple[int, ...]:
    size = tuple(y.shape[2:])
    if len(place) != len(size) or not all(0 <= index < n for index, n in zip(place, size, strict=True)):
        raise ValueError(f"place must lie within the output of {size}, got {tuple(place)}")
    return tuple(place)


def _squared_gradients(outputs: Tensor, x: Tensor, seed: int) -> Tensor:
    """Sum over output and input channels, mean over the batch, of squared derivatives of ``(B, K)``: ``(*size)``."""
    channels = outputs.shape[1]
    if channels <= EXACT:
        weights = torch.eye(channels)
    else:
        signs = torch.randint(0, 2, (EXACT, channels), generator=torch.Generator().manual_seed(seed))
        weights = 2.0 * signs - 1.0
    total = torch.zeros(x.shape[2:], device=x.device, dtype=x.dtype)
    for weight in weights.to(outputs):
        (gradient,) = torch.autograd.grad((outputs * weight).sum(), x, retain_graph=True)
        total += gradient.square().sum(1).mean(0)
    return total if channels <= EXACT else total / EXACT


@style.styled
def draw_receptive_fields(fields: Mapping[str, ReceptiveField], *, unit: str = "px") -> Figure:
    """Draw what the central output pixel of each network depends on, and at which distances.

    Pictures show the sensitivity relative to its highest value, on a logarithmic scale of four decades; volumes are cut
    through the pixel, with one network per row. The curve is the fraction of the squared sensitivity beyond a
    distance.

    Examples
    --------
    >>> conv = torch.nn.Conv2d(1, 4, 3, padding=1)
    >>> field = torchsonic.viz.receptive_field(conv, torch.randn(1, 1, 17, 17))
    >>> figure = torchsonic.viz.draw_receptive_fields({"a 3x3 convolution": field})
    """
    if not fields:
        raise ValueError("fields must contain at least one receptive field, got none")
    dimensions = {field.values.dim() for field in fields.values()}
    if len(dimensions) > 1:
        raise ValueError(f"fields must all have the same number of dimensions, got {sorted(dimensions)}")
    (axes,) = dimensions
    rows, columns = (len(fields), 3) if axes == 3 else (1, len(fields))
    width = (2.1 if axes == 1 else 2.75) * columns
    figure = style.new_figure(width + 4.3, max(3.5, 2.5 * rows + 0.4))
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[width, 4.0])[0]
    left.suptitle("Sensitivity" + ("" if axes == 1 else r", $\log_{10}$"))
    panels = left.subplots(rows, columns, squeeze=False).reshape(len(fields), -1)
    image = None
    for place, (line, (name, field)) in enumerate(zip(panels, fields.items(), strict=True)):
        if axes == 1:
            line[0].semilogy(field.axes[0], shares_of_highest(field.values.double()), color=_colour(place))
            line[0].set(ylim=(10**-style.DECADES, 1.5), xlabel=style.length_label("x", unit))
            line[0].set_title(name, pad=4)
            style.thin_axes(line[0])
            continue
        for panel, plane in zip(line, PLANES[axes], strict=True):
            image = _draw_plane(panel, field, plane, unit)
        line[0].set_title(name, pad=4, loc="left")
    if image is not None:
        left.colorbar(image, ax=panels.ravel().tolist(), fraction=0.03, pad=0.02, shrink=0.8)
    _draw_distances(right.subplots(), fields, unit)
    return figure


def _colour(place: int) -> str:
    return style.PALETTE[place % len(style.PALETTE)]


def _draw_plane(panel: Axes, field: ReceptiveField, plane: tuple[int, int], unit: str) -> AxesImage:
    shown = central_slice(shares_of_highest(field.values.double()), plane, field.place).log10()
    axes, names = [field.axes[axis] for axis in plane], [style.AXIS_NAMES[field.values.dim()][axis] for axis in plane]
    image = style.show_map(panel, shown, axes, lowest=-style.DECADES, highest=0.0)
    style.frame_axes(panel, axes, names, unit, frequency=False)
    return image


def _draw_distances(panel: Axes, fields: Mapping[str, ReceptiveField], unit: str) -> None:
    farthest = max(float(field.distances.max()) for field in fields.values())
    radii = torch.linspace(0, farthest, 200, dtype=torch.float64)
    for place, (name, field) in enumerate(fields.items()):
        label = f"{name}: 90 % within {field.reach(0.9):.3g} {unit}"
        share = field.share_beyond(radii).clamp_min(1e-12)
        panel.semilogy(radii, share, LINES[place % len(LINES)], color=_colour(place), label=label)
    panel.set(xlabel=f"distance $r$ ({unit})", ylim=(1e-6, 1.5), xlim=(0, farthest))
    panel.set_ylabel("fraction of squared sensitivity beyond $r$")
    style.thin_axes(panel)
    panel.legend(frameon=False, loc="upper right", fontsize=7.5)
