r"""What one output pixel looks at, measured by gradient.

.. math:: R(r) = \sqrt{\Big\langle \sum_{kc} \Big(\frac{\partial y_k(r_0)}{\partial x_c(r)}\Big)^2 \Big\rangle}

The mean runs over images. With few output channels the sum over ``k`` is exact, with many it is estimated from random
signs, whose mean it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchsonic.nn.evaluating import evaluating
from torchsonic.nn.physical_layer import knows_spacing
from torchsonic.spectral.spacing import spacing_values

__all__ = ["ReceptiveField", "receptive_field"]

EXACT = 16
"""Output channels up to which every one is differentiated; beyond, so many draws of signs."""


@dataclass(frozen=True)
class ReceptiveField:
    """Sensitivity of one output pixel to each input pixel."""

    values: Tensor
    """``(*size)``, not negative."""
    place: tuple[int, ...]
    """The input pixel at the output pixel's place."""
    spacing: tuple[float, ...]
    """Of the input's pixels."""

    @property
    def axes(self) -> list[Tensor]:
        """Coordinates along each axis, from the output pixel's place."""
        sizes = zip(self.values.shape, self.place, self.spacing, strict=True)
        return [(torch.arange(n, dtype=torch.float64) - at) * step for n, at, step in sizes]

    @property
    def distances(self) -> Tensor:
        """Distance of each input pixel, ``(*size)``."""
        return torch.stack(torch.meshgrid(*self.axes, indexing="ij"), dim=-1).norm(dim=-1)

    def share_beyond(self, radii: Tensor) -> Tensor:
        """Part of the squared sensitivity that lies farther away than each radius."""
        power, distance = self.values.double().square().flatten(), self.distances.flatten()
        beyond = torch.stack([power[distance > radius].sum() for radius in radii])
        return beyond / power.sum().clamp_min(torch.finfo(torch.float64).tiny)

    def reach(self, share: float = 0.9) -> float:
        """Radius within which the given part of the squared sensitivity lies."""
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
        ``(B, C, *size)``, such as the model sees; noise shows what it can see at all.
    spacing
        Of the pixels; told to models that take one. A model that does not, though its layers know one, is refused.
    place
        Output pixel, by default the middle one.
    seed
        Of random signs, where there are many output channels.

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
            f"spacing={spacing} given, but {type(model).__name__} does not pass one on to its layers, which know one; "
            "call torchsonic.set_spacing(model, spacing) first and give none here, which leaves pixels as the unit"
        )
    told = () if spacing is None or not takes_spacing else (spacing,)
    y = (model if features is None else features)(x, *told)
    if y.dim() != x.dim():
        raise ValueError(
            f"{type(model).__name__} gives {tuple(y.shape)} for images {tuple(x.shape)}: a receptive field needs an "
            "output with places; give the part of the network before its mean"
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
