"""Physical frequency grids.

Conventions of the whole package:

* Arrays are ``(batch, channel, axis_1 .. axis_D)``; everything that runs over axes is in that order.
* ``omega = 2 pi k / (size * spacing)`` is in radians per unit of physical length; ``k`` is an integer wavenumber.
* Coefficients are those of the trigonometric interpolant, ``x(r) = sum_k X_k exp(i omega_k r)``:
  the forward transform carries the factor ``1/N``, the inverse none. They do not depend on the sampling.
* Real fields are stored as half spectra: the last axis holds ``k >= 0`` only.
* The boundary is circular; other boundaries are extensions made before the transform.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

from torchsonic.functional.fixed import pi

__all__ = [
    "ANY_BATCH",
    "Band",
    "Spacing",
    "as_spacing",
    "constant",
    "frequency_axes",
    "frequency_grid",
    "inside_function_transform",
    "spacing_values",
    "tracing",
    "widest_float",
]

Spacing = float | Sequence[float] | Tensor
ANY_BATCH = -1
DEVICES_WITHOUT_FLOAT64 = {"mps"}
TRACERS = tuple(getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL"))


def widest_float(device: torch.device) -> torch.dtype:
    """The widest real type that a device computes in."""
    return torch.float32 if device.type in DEVICES_WITHOUT_FLOAT64 else torch.float64


def _moved(values: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Values on a device; they change their type on that side which knows both."""
    if device.type in DEVICES_WITHOUT_FLOAT64:
        return values.to(dtype).to(device)
    return values.to(device).to(dtype)


def as_spacing(spacing: Spacing, num_axes: int, *, batch: int | None = None, device=None) -> Tensor:
    """Turn a spacing given as number, sequence or tensor into a tensor.

    Parameters
    ----------
    spacing
        A positive number, ``num_axes`` of them, or a tensor ``(batch, num_axes)`` with one spacing per sample.
    num_axes
        Number of spatial axes D.
    batch
        Number of samples a per-sample spacing must match, or ``ANY_BATCH``; ``None`` refuses per-sample spacing.

    Returns
    -------
    Tensor
        ``(1, D)`` or ``(batch, D)``, float64 (float32 where the device has no float64).
    """
    if isinstance(spacing, np.ndarray) and spacing.ndim == 2:
        spacing = torch.as_tensor(spacing)
    # Not the default device: callers that name none want the numbers, and there are none on a meta device.
    device = torch.device(device or (spacing.device if isinstance(spacing, Tensor) else "cpu"))
    dtype = widest_float(device)
    if not isinstance(spacing, Tensor):
        return constant((spacing_values(spacing, num_axes),), device, dtype)
    if spacing.is_complex() or spacing.dtype == torch.bool:
        raise TypeError(f"spacing must be real numbers, got a tensor of {spacing.dtype}")
    if spacing.requires_grad:
        raise ValueError("spacing is a constant of the sampling and gets no gradient; pass spacing.detach()")
    steps = _moved(spacing, device, dtype)
    if steps.dim() < 2 and steps.numel() == 1:
        steps = steps.expand(num_axes)
    if steps.dim() > 2 or steps.shape[-1] != num_axes:
        raise ValueError(_wrong_count(num_axes, f"shape {tuple(steps.shape)}"))
    if steps.dim() == 1:
        steps = steps[None]
    elif batch is None and steps.shape[0] > 1:
        raise ValueError(f"spacing must be the same for all samples here, got shape {tuple(steps.shape)}")
    elif batch is not None and batch != ANY_BATCH and steps.shape[0] != 1 and steps.shape[0] != batch:
        raise ValueError(f"spacing has {steps.shape[0]} rows for a batch of {batch} samples; give one row per sample")
    if not torch.compiler.is_compiling() and not bool((torch.isfinite(steps) & (steps > 0)).all()):
        raise ValueError(f"spacing must be positive and finite, got {steps.tolist()}")
    return steps


def _wrong_count(num_axes: int, given: str) -> str:
    return f"spacing needs 1 or {num_axes} values (one per spatial axis) or shape (batch, {num_axes}), got {given}"


def spacing_values(spacing: Spacing, num_axes: int) -> tuple[float, ...]:
    """One positive number per axis, from anything that is the same for all samples."""
    if isinstance(spacing, Tensor):
        return tuple(as_spacing(spacing, num_axes)[0].tolist())
    try:
        if isinstance(spacing, str):
            raise TypeError
        single = isinstance(spacing, numbers.Real) and not isinstance(spacing, bool)
        steps = (float(spacing),) * num_axes if single else tuple(float(s) for s in spacing)  # type: ignore
    except (TypeError, ValueError) as error:
        raise TypeError(f"spacing must be a number, {num_axes} numbers or a tensor, got {spacing!r}") from error
    if len(steps) == 1:
        steps = steps * num_axes
    if len(steps) != num_axes:
        raise ValueError(_wrong_count(num_axes, f"{len(steps)} values"))
    if not torch.compiler.is_compiling() and not all(math.isfinite(s) and s > 0 for s in steps):
        raise ValueError(f"spacing must be positive and finite, got {list(steps)}")
    return steps


def inside_function_transform() -> bool:
    """Whether ``torch.func`` (grad, vmap, jvp) or forward-mode AD is at work; they need operations that they know."""
    transforming = torch._C._functorch.peek_interpreter_stack() is not None  # type: ignore[attr-defined]
    return transforming or forward_ad._current_level >= 0


def tracing() -> bool:
    """Whether a tracer is at work, whose tensors mean nothing later; modes that only watch are none."""
    return torch.compiler.is_compiling() or any(torch._C._get_dispatch_mode(key) is not None for key in TRACERS)


def _may_share_tensors() -> bool:
    """Whether a tensor made now may be kept for later calls: not one that a tracer, a mode or a transform made."""
    return not (
        torch.compiler.is_compiling()
        or torch.is_inference_mode_enabled()
        or inside_function_transform()
        or _get_current_dispatch_mode() is not None
    )


def _made_once(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Share what a function of hashable arguments returns, where that is safe. Nobody modifies such tensors."""
    cached = lru_cache(maxsize=256)(make)

    @wraps(make)
    def get(*arguments) -> Tensor:
        return (cached if _may_share_tensors() else make)(*arguments)

    return get


@_made_once
def constant(values: tuple, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of fixed numbers."""
    return torch.tensor(values, device=device, dtype=dtype)


@dataclass(frozen=True)
class Band:
    """The frequencies that an input grid and an output grid of the same extent have in common.

    On an axis where both sizes agree these are the ordinary FFT bins, and on an even size the Nyquist bin has no
    sign. Where they differ the band is symmetric, ``|k| <= min(size_in, size_out) // 2``: both signs of the
    smaller grid's Nyquist frequency are kept, so that a response may treat them differently.

    Parameters
    ----------
    size_in, size_out
        Number of samples on each axis, D integers each.
    """

    size_in: tuple[int, ...]
    size_out: tuple[int, ...]

    @property
    def num_axes(self) -> int:
        return len(self.size_in)

    @property
    def resampled(self) -> tuple[bool, ...]:
        return tuple(a != b for a, b in zip(self.size_in, self.size_out, strict=True))

    @property
    def reach(self) -> tuple[int, ...]:
        """Largest wavenumber on each axis."""
        return tuple(min(a, b) // 2 for a, b in zip(self.size_in, self.size_out, strict=True))

    @property
    def shape(self) -> tuple[int, ...]:
        """Stored coefficients on each axis; the last axis is halved."""
        full = [2 * h + 1 if moved else n for h, moved, n in zip(self.reach, self.resampled, self.size_in, strict=True)]
        return (*full[:-1], self.reach[-1] + 1)

    @property
    def unsigned_axes(self) -> tuple[int, ...]:
        """Axes whose Nyquist bin (at index ``reach``) stands for both signs."""
        return tuple(d for d, n in enumerate(self.size_in) if not self.resampled[d] and n % 2 == 0)

    def wavenumbers(self, axis: int, *, device=None, dtype=torch.float64) -> Tensor:
        """Integer wavenumbers of one axis in storage order, ``(shape[axis],)``."""
        length = self.shape[axis]
        index = torch.arange(length, device=device)
        if axis < self.num_axes - 1:
            num_negative = self.reach[axis] if self.resampled[axis] else length // 2
            index = torch.where(index < length - num_negative, index, index - length)
        return index.to(dtype)

    def omega(self, spacing: Tensor, *, dtype=torch.float32, both_signs: bool = False) -> list[Tensor]:
        """Angular frequencies of each axis for spacings ``(G, D)``: D tensors ``(G, shape[axis])``.

        With ``both_signs``, every unsigned axis gets one more entry: its Nyquist frequency with the other sign.
        """
        return [
            (_unit_omega(self, axis, spacing.device, spacing.dtype, both_signs) / spacing[:, axis : axis + 1]).to(dtype)
            for axis in range(self.num_axes)
        ]

    def multiplicity(self, *, device=None, dtype=torch.float32) -> Tensor:
        """How many frequencies of the full spectrum each last-axis bin stands for, ``(shape[-1],)``: 1 or 2."""
        return _multiplicity(self, device, dtype)


@_made_once
def _unit_omega(band: Band, axis: int, device, dtype, both_signs: bool) -> Tensor:
    """Angular frequencies of one axis at unit spacing."""
    omega = band.wavenumbers(axis, device=device, dtype=dtype) * (2 * pi() / band.size_in[axis])
    if both_signs and axis in band.unsigned_axes:
        omega = torch.cat([omega, -omega[band.reach[axis], None]])
    return omega


@_made_once
def _multiplicity(band: Band, device, dtype) -> Tensor:
    count = torch.full((band.shape[-1],), 2.0, device=device, dtype=dtype)
    count[0] = 1.0
    if band.num_axes - 1 in band.unsigned_axes:
        count[band.reach[-1]] = 1.0
    return count


def frequency_axes(
    size: Sequence[int], spacing: Spacing = 1.0, *, half: bool = False, dtype=torch.float32, device=None
) -> list[Tensor]:
    r"""Angular frequency of every FFT bin, one vector per axis.

    .. math:: \omega_d = 2\pi k_d / (N_d \Delta_d)

    Parameters
    ----------
    size
        Samples on each axis, D integers.
    spacing
        Physical step, a number or one per axis.
    half
        Keep only the non-negative bins of the last axis, as ``rfftn`` does.

    Returns
    -------
    list of Tensor
        D vectors in FFT order; lengths ``N_d``, or ``N_D // 2 + 1`` for the last one when ``half``.

    Examples
    --------
    >>> frequency_axes((4,), spacing=2.0)[0] / torch.pi
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    size = tuple(int(n) for n in size)
    if not size or min(size) < 1:
        raise ValueError(f"size must hold positive integers, got {size}")
    steps = as_spacing(spacing, len(size), device=device)
    # A dummy last axis keeps every real axis in its full form.
    band = Band(size, size) if half else Band((*size, 1), (*size, 1))
    padded = steps if half else torch.cat([steps, torch.ones_like(steps[:, :1])], dim=1)
    return [axis[0] for axis in band.omega(padded, dtype=dtype)[: len(size)]]


def frequency_grid(
    size: Sequence[int], spacing: Spacing = 1.0, *, half: bool = False, dtype=torch.float32, device=None
) -> Tensor:
    """The dense grid of :func:`frequency_axes`: ``(N_1 .. N_D, D)`` vectors ``omega``."""
    axes = frequency_axes(size, spacing, half=half, dtype=dtype, device=device)
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
