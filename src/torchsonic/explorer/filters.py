"""Filters with one input and one output: a mode, a small bank, or one entry of a trained layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.explorer.knobs import ModeValues
from torchsonic.functional import ModeOperator, Modes, mode_response, reference_gain, sonic_conv

__all__ = ["apply_filter", "bank_of", "kernel_of", "mode_magnitude", "mode_of", "symbol_magnitude"]

BANK_SIZE = 8
MODE_CHUNK = 8


def mode_of(values: ModeValues) -> ModeOperator:
    """One mode alone, with unit mean power on the reference grid of 1 mm."""
    return _modes([values], [1.0])


def bank_of(values: ModeValues) -> ModeOperator:
    """The mean of the mode turned to eight directions: a bank that looks all round."""
    step = 360 / BANK_SIZE
    turned = [
        ModeValues(**{**values.as_dict(), "orientation": values.orientation + step * i}) for i in range(BANK_SIZE)
    ]
    return _modes(turned, [1 / BANK_SIZE] * BANK_SIZE)


def _modes(values: Sequence[ModeValues], weights: Sequence[float]) -> ModeOperator:
    direction = torch.tensor([v.direction for v in values])
    scale = torch.tensor([v.scale for v in values])
    pole = torch.tensor([complex(-v.damping, v.oscillation) for v in values])
    transverse = torch.tensor([v.transverse for v in values])
    gain = reference_gain(direction, scale, pole, transverse, 1.0)
    mix_in = torch.ones(len(values), 1, dtype=pole.dtype)
    mix_out = torch.tensor([weights], dtype=pole.dtype)
    return ModeOperator(Modes(direction, scale, pole, transverse, gain, mix_in, mix_out))


def apply_filter(x: Tensor, operator: ModeOperator, spacing: float | tuple[float, float]) -> Tensor:
    """Apply an operator, few modes at a time: small tensors stay in the cache and are quickly allocated."""
    return sonic_conv(
        x,
        operator.modes,
        spacing=spacing,
        mode_chunk=MODE_CHUNK,
        cutoff=operator.cutoff,
        limits=operator.limits,
        symmetry=operator.symmetry,
    )


def kernel_of(operator: ModeOperator, size: tuple[int, int], spacing: float | tuple[float, float]) -> Tensor:
    """The spatial kernels on a periodic grid, ``(K, H, W)``, the origin at ``size // 2``: answers to one impulse."""
    impulse = torch.zeros(1, 1, *size)
    impulse[0, 0, size[0] // 2, size[1] // 2] = 1.0
    return apply_filter(impulse, operator, spacing)[0]


def mode_magnitude(operator: ModeOperator, highest: float, count: int) -> Tensor:
    """``|T|`` of the first mode, without gain, at the frequencies of :func:`symbol_magnitude`."""
    return mode_response(_frequencies(highest, count), *operator.modes[:4])[0].abs()


def symbol_magnitude(operator: ModeOperator, highest: float, count: int) -> Tensor:
    """``|H|`` from the first input to the first output at ``count x count`` frequencies up to ``highest`` rad/mm.

    Frequencies are the centres of cells; the first axis runs from top (positive, up) to bottom, as pictures are drawn.
    """
    return operator.symbol(_frequencies(highest, count))[..., 0, 0].abs()


def _frequencies(highest: float, count: int) -> Tensor:
    axis = (torch.arange(count) + 0.5) * (2 * highest / count) - highest
    return torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)
