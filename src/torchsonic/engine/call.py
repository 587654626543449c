"""One call of the operator: its tensors and its options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.spectral.boundary import Boundary, PaddingMode
from torchsonic.spectral.limits import ResponseLimits
from torchsonic.spectral.plain import plain_conv
from torchsonic.spectral.response import ModeShape, Symmetry

__all__ = ["Kept", "Operands", "Options", "run_plain", "without_autocast"]


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
    def mixing(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The tensors that do not belong to the responses."""
        return self.x, self.mix_in, self.mix_out, self.bias

    @property
    def sizes(self) -> tuple[Tensor, int, int]:
        """The input, and the numbers of output channels and modes: all that plans and memory depend on."""
        return self.x, self.mix_out.shape[0], self.mix_in.shape[0]

    @property
    def per_sample(self) -> bool:
        """Whether each sample has a spacing of its own."""
        return self.spacing.shape[0] > 1

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

    @property
    def boundary(self) -> Boundary:
        return Boundary(self.padding_mode, self.padding)

    @property
    def limits(self) -> ResponseLimits:
        return ResponseLimits(self.band_order, self.magnitude_limit, self.soft_limit)


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
            x,
            operands.mix_in,
            mix_out,
            operands.shape,
            operands.bias,
            spacing=operands.spacing,
            out_size=tuple(options.out_size),
            boundary=options.boundary,
            symmetry=options.symmetry,
            limits=options.limits,
        )
