"""What all operators share: arguments, input checks, pooling for a stride, mixing of channels, spacings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.arguments import check_samples, choice, per_axis, positive
from torchsonic.baselines.circular_filter import half_size, mix_circularly
from torchsonic.engine.call import without_autocast
from torchsonic.nn.norm import CONVOLUTIONS
from torchsonic.nn.physical_layer import SpacedLayer
from torchsonic.spectral.band import frequency_grid
from torchsonic.spectral.spacing import Spacing, as_spacing

AXES = (1, 2, 3)
POOLINGS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class Operator(nn.Module):
    """A map of ``(B, C, N_1 .. N_D)`` to ``(B, K, ceil(N_1 / stride) ..)``.

    Subclasses implement ``_run``.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    stride
        A number or one per axis.
    spatial_dims
        D: 1, 2 or 3.
    """

    draws_own_weights: ClassVar[bool] = True
    shown: ClassVar[Mapping[str, Any]] = {}
    """Attributes that ``repr`` shows, and the values with which it leaves them out."""
    stride: tuple[int, ...]

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Name the arguments that constructors hand on to those of their bases, for ``help``."""
        super().__init_subclass__(**keywords)
        constructors = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
        found: dict[str, inspect.Parameter] = {}
        for constructor in constructors[: constructors.index(Operator.__init__) + 1]:
            _, *own = inspect.signature(constructor).parameters.values()
            for parameter in own:
                if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                    found.setdefault(parameter.name, parameter)
        cls.__signature__ = inspect.Signature(sorted(found.values(), key=lambda parameter: parameter.kind))

    def __init__(
        self, in_channels: int, out_channels: int, stride: int | Sequence[int] = 1, *, spatial_dims: int = 2
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        self.out_channels = positive(out_channels, "out_channels")
        self.num_axes = choice(spatial_dims, AXES, "spatial_dims")
        self.stride = per_axis(stride, self.num_axes, "stride")

    def output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Samples of the output for an input of the given size: ``ceil(size / stride)``."""
        return tuple((n + s - 1) // s for n, s in zip(size, self.stride, strict=True))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: ``(B, C, N_1 .. N_D)`` to ``(B, K, ceil(N_1 / stride) ..)``."""
        self._check(x)
        return self._finish(self._run(x), x.dtype)

    def _run(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _finish(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        return y.to(dtype)

    def _check(self, x: Tensor) -> None:
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)

    def _work_dtype(self, x: Tensor) -> torch.dtype:
        """The dtype of filters: never half precision, which transforms do not support."""
        return torch.promote_types(torch.promote_types(x.dtype, next(self.parameters()).dtype), torch.float32)

    def _pool(self, x: Tensor) -> Tensor:
        """Means of ``stride`` samples on each axis; a last, incomplete cell is the mean of what it has."""
        if max(self.stride) == 1:
            return x
        return POOLINGS[self.num_axes](x, self.stride, ceil_mode=True)

    def _make_pointwise(self, in_channels: int, out_channels: int) -> nn.Module:
        """A 1x1 convolution without bias."""
        return CONVOLUTIONS[self.num_axes](in_channels, out_channels, 1, bias=False)

    def extra_repr(self) -> str:
        words = [f"{self.in_channels}, {self.out_channels}"]
        words += [f"stride={self.stride}"] if max(self.stride) > 1 else []
        words += [f"spatial_dims={self.num_axes}"] if self.num_axes != 2 else []
        values = {name: getattr(self, name) for name in self.shown}
        return ", ".join(words + [f"{name}={value}" for name, value in values.items() if value != self.shown[name]])


class Depthwise(Operator):
    """A filter of its own for each of C channels, then a 1x1 convolution to K channels where one is needed.

    Parameters
    ----------
    pointwise
        Have the 1x1 convolution even where C = K; where they differ it is always there.
    shape, options
        Channels, stride and axes, as of :class:`Operator`.
    """

    pointwise: nn.Module | None

    def __init__(self, *shape: Any, pointwise: bool = False, **options: Any) -> None:
        super().__init__(*shape, **options)
        mixes = pointwise or self.in_channels != self.out_channels
        self.pointwise = self._make_pointwise(self.in_channels, self.out_channels) if mixes else None

    def _finish(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Cast, and mix channels if the layer does; autocast may run the mixing in half precision."""
        y = y.to(dtype)
        return y if self.pointwise is None else self.pointwise(y).to(dtype)


class SpacedOperator(Operator, SpacedLayer):
    """An operator that is told the spacing; subclasses implement ``_filter``, of samples that share one.

    Parameters
    ----------
    spacing
        Reference spacing, a number or one per axis.
    shape, options
        Channels, stride and axes, as of :class:`Operator`.
    """

    def __init__(self, *shape: Any, spacing: float | Sequence[float] = 1.0, **options: Any) -> None:
        super().__init__(*shape, **options)
        self._assume_spacing(spacing)

    def coarsening(self, size: Sequence[int]) -> tuple[float, ...]:
        """Means of whole cells lie exactly ``stride`` samples apart, whatever the size."""
        return tuple(float(s) for s in self.stride)

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Apply the layer.

        Parameters
        ----------
        x
            ``(B, C, N_1 .. N_D)``, real.
        spacing
            Physical step of ``x``: a number, one per axis, or ``(B, D)``, for which samples with the same spacing are
            treated together; by default the layer's.

        Returns
        -------
        Tensor
            ``(B, K, ceil(N_1 / stride) ..)``, dtype of ``x``.
        """
        self._check(x)
        steps = as_spacing(self.told(spacing), self.num_axes, batch=x.shape[0], device=x.device)
        with without_autocast(x.device):
            y = self._pool(self._filter_all(x.to(self._work_dtype(x)), steps))
        return self._finish(y, x.dtype)

    def _filter_all(self, x: Tensor, steps: Tensor) -> Tensor:
        """Filter samples of the spacings ``(1 or B, D)``, those of each distinct one at once."""
        if steps.shape[0] == 1:
            return self._filter(x, steps)
        spacings, group = torch.unique(steps, dim=0, return_inverse=True)
        members = [torch.nonzero(group == i)[:, 0] for i in range(spacings.shape[0])]
        parts = [self._filter(x[index], spacings[i : i + 1]) for i, index in enumerate(members)]
        return torch.cat(parts)[torch.argsort(torch.cat(members))]

    def _filter(self, x: Tensor, steps: Tensor) -> Tensor:
        """``(B, C, *size)`` of one spacing ``(1, D)``, filtered."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        text = super().extra_repr()
        plain = self.reference_spacing == (1.0,) * self.num_axes
        return text if plain else f"{text}, spacing={self.reference_spacing}"


class SymbolOperator(SpacedOperator):
    r"""A dense, circular convolution given by a function of physical frequency.

    .. math:: \hat y(\omega) = \hat H(\omega)\,\hat x(\omega), \qquad \hat H(-\omega) = \overline{\hat H(\omega)}

    Subclasses implement ``symbol``. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``.
    """

    def symbol(self, frequency: Tensor) -> Tensor:
        """``H`` at frequencies ``(P, D)`` in units of the reference Nyquist frequency: ``(K, C, P)``, complex."""
        raise NotImplementedError

    def response(
        self, size: Sequence[int], spacing: Spacing | None = None, *, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """The symbol on the half spectrum of a grid, ``(K, C, N_1 .. N_D // 2 + 1)``, complex."""
        device = next(self.parameters()).device
        omega = frequency_grid(size, self.told(spacing), half=True, dtype=dtype, device=device).flatten(0, -2)
        nyquist = torch.pi / torch.tensor(self.reference_spacing, dtype=dtype, device=device)
        return self.symbol(omega / nyquist).unflatten(-1, half_size(size))

    def _filter(self, x: Tensor, steps: Tensor) -> Tensor:
        return mix_circularly(x, self.response(tuple(x.shape[2:]), steps, dtype=x.dtype))
