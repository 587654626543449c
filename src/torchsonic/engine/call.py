"""One call of the operator: its tensors, its options, and what plans and memory depend on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from torchsonic.arguments import choice, per_axis, positive
from torchsonic.spectral.boundary import Boundary, PaddingMode, check_padding
from torchsonic.spectral.limits import UNLIMITED, ResponseLimits
from torchsonic.spectral.plain import plain_conv
from torchsonic.spectral.response import ModeShape, Symmetry

__all__ = ["ORDERS", "Kept", "Mixing", "Operands", "Options", "Step", "known_order", "run_plain", "without_autocast"]


class Mixing(NamedTuple):
    """``x (B, C, *size)``, ``mix_in (M, 2, C)`` with ``Re B, Im B``, ``mix_out (K, M, 2)`` with ``Re C, -Im C``."""

    x: Tensor
    mix_in: Tensor
    mix_out: Tensor
    bias: Tensor | None


class Operands(NamedTuple):
    """The tensors of a call, as in :func:`torchsonic.functional.spectral_conv`. All but the last may have gradients."""

    x: Tensor
    mix_in: Tensor
    mix_out: Tensor
    direction: Tensor
    scale: Tensor
    damping: Tensor
    oscillation: Tensor
    transverse: Tensor
    gain: Tensor
    cutoff: Tensor | None
    bias: Tensor | None
    spacing: Tensor

    @property
    def shape(self) -> ModeShape:
        return ModeShape(**{name: getattr(self, name) for name in ModeShape._fields})

    @property
    def mixing(self) -> Mixing:
        """The tensors that do not belong to the responses."""
        return Mixing(self.x, self.mix_in, self.mix_out, self.bias)

    def step(self, options: Options, *, training: bool = False, keep: bool = False) -> Step:
        """What the plan of this call and its memory depend on."""
        return Step.of(self.mixing, options, training=training, keep=keep, per_sample=self.spacing.shape[0] > 1)

    @property
    def shared(self) -> bool:
        """Whether all samples have the same responses."""
        return all(t is None or t.shape[0] == 1 for t in (*self.shape, self.spacing))

    def each(self, change: Callable[[Tensor], Tensor]) -> Operands:
        """Apply a function to every tensor."""
        return Operands(*[None if t is None else change(t) for t in self])  # type: ignore[arg-type]


class Options(NamedTuple):
    """What is computed (size, boundary, symmetry, limits) and how (order, modes at once or 0 for all).

    Plain values, as the schema of the compiled operator needs them.
    """

    out_size: tuple[int, ...]
    padding_mode: PaddingMode = "circular"
    padding: tuple[int, ...] = ()
    order: str = "auto"
    mode_chunk: int = 0
    symmetry: Symmetry = "real"
    band_order: int = 0
    magnitude_limit: float = 0.0
    soft_limit: bool = False

    @classmethod
    def checked(
        cls,
        size: tuple[int, ...],
        *,
        output_size: Sequence[int] | None = None,
        padding_mode: PaddingMode = "circular",
        padding: int | Sequence[int] | None = None,
        order: str = "auto",
        mode_chunk: int | None = None,
        symmetry: Symmetry = "real",
        limits: ResponseLimits = UNLIMITED,
    ) -> Options:
        """Options as users give them (see :func:`torchsonic.functional.spectral_conv`) for an input grid."""
        out_size = size if output_size is None else per_axis(output_size, len(size), "output_size")
        if mode_chunk is not None:
            positive(mode_chunk, "mode_chunk")
        choice(symmetry, get_args(Symmetry), "symmetry")
        choice(padding_mode, get_args(PaddingMode), "padding_mode")
        margin = check_padding(padding, padding_mode, len(size)) or ()
        return cls(out_size, padding_mode, margin, known_order(order), mode_chunk or 0, symmetry, *limits)

    @property
    def boundary(self) -> Boundary:
        return Boundary(self.padding_mode, self.padding)

    @property
    def limits(self) -> ResponseLimits:
        return ResponseLimits(self.band_order, self.magnitude_limit, self.soft_limit)


class Step(NamedTuple):
    """What the plan of a call and its memory depend on."""

    batch: int
    in_channels: int
    out_channels: int
    num_modes: int
    size: tuple[int, ...]
    options: Options
    training: bool = False  # a backward pass follows
    keep: bool = False  # intermediate results are kept for it
    per_sample: bool = False  # each sample has a spacing of its own
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    @classmethod
    def of(cls, mixing: Mixing, options: Options, *, training=False, keep=False, per_sample=False) -> Step:
        """The step that these tensors make."""
        x, mix_in, mix_out, _ = mixing
        counts = x.shape[0], x.shape[1], mix_out.shape[0], mix_in.shape[0]
        return cls(*counts, tuple(x.shape[2:]), options, training, keep, per_sample, x.dtype, x.device.type)


ORDERS = ("modes", "channels")
OLD_ORDERS = {
    "modes-modes": "modes",
    **dict.fromkeys(("modes-channels", "channels-modes", "channels-channels"), "channels"),
}


def known_order(order: str) -> str:
    """``"auto"`` or one of :data:`ORDERS`; names of older versions are translated."""
    if order in OLD_ORDERS:
        warnings.warn(f"order={order!r} is now {OLD_ORDERS[order]!r}; pass that instead", FutureWarning, stacklevel=2)
    return choice(OLD_ORDERS.get(order, order), ("auto", *ORDERS), "order")


class Kept(NamedTuple):
    """Intermediate results kept for the backward pass, of one chunk of samples and all modes."""

    coefficients: Tensor
    """``Z``, ``(b, M, *band)``, or ``(b, M, 2, *band)`` where channels are transformed."""
    other: Tensor
    """``F^-1[W] (b, 2 M, *out_size)`` where modes are transformed, ``F[x] (b, C, *band)`` where channels are."""

    @classmethod
    def of_all_modes(cls, parts: list[Kept]) -> Kept:
        """Join what was kept of chunks of modes, which share the spectrum of the channels if there is one."""
        if len(parts) == 1:
            return parts[0]
        shared = parts[0].other is parts[1].other
        coefficients = torch.cat([part.coefficients for part in parts], dim=1)
        return cls(coefficients, parts[0].other if shared else torch.cat([part.other for part in parts], dim=1))


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Switch autocast off, since transforms need at least float32; some devices have no autocast."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def run_plain(operands: Operands, options: Options) -> Tensor:
    """Run the definition, which consists of differentiable operations."""
    x, mix_out = operands.x, operands.mix_out
    if x.shape[0] == 0:  # FFT libraries refuse an empty batch; all operands still get a gradient of zero
        y = x.new_zeros(0, mix_out.shape[0], *options.out_size)
        return y + sum(t.sum() for t in operands[:-1] if t is not None)
    with without_autocast(x.device):
        return plain_conv(
            *operands[:3],
            operands.shape,
            operands.bias,
            spacing=operands.spacing,
            out_size=tuple(options.out_size),
            boundary=options.boundary,
            symmetry=options.symmetry,
            limits=options.limits,
        )
