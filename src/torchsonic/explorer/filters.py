"""Filters with one input and one output: a mode, a small bank, or one entry of a trained layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.explorer.knobs import ModeValues
from torchsonic.functional import Modes, mode_response, reference_gain, response_matrix, sonic_conv

__all__ = ["apply_filter", "bank_of", "entry_of", "kernel_of", "mode_of", "response_magnitude"]

BANK_SIZE = 8
MODE_CHUNK = 8


def mode_of(values: ModeValues) -> Modes:
    """One mode alone, with unit mean power on the reference grid of 1 mm."""
    return _modes([values], [1.0])


def bank_of(values: ModeValues) -> Modes:
    """The mean of the mode turned to eight directions: a bank that looks all round."""
    step = 360 / BANK_SIZE
    turned = [
        ModeValues(**{**values.as_dict(), "orientation": values.orientation + step * i}) for i in range(BANK_SIZE)
    ]
    return _modes(turned, [1 / BANK_SIZE] * BANK_SIZE)


def _modes(values: Sequence[ModeValues], weights: Sequence[float]) -> Modes:
    direction = torch.tensor([v.direction for v in values])
    scale = torch.tensor([v.scale for v in values])
    pole = torch.tensor([complex(-v.damping, v.oscillation) for v in values])
    transverse = torch.tensor([v.transverse for v in values])
    gain = reference_gain(direction, scale, pole, transverse, 1.0)
    mix_in = torch.ones(len(values), 1, dtype=pole.dtype)
    return Modes(direction, scale, pole, transverse, gain, mix_in, torch.tensor([weights], dtype=pole.dtype))


def entry_of(modes: Modes, channel_in: int, channel_out: int) -> Modes:
    """What a layer does from one input channel to one output channel, with all its modes."""
    return modes._replace(
        mix_in=modes.mix_in[:, channel_in : channel_in + 1], mix_out=modes.mix_out[channel_out : channel_out + 1]
    )


def apply_filter(x: Tensor, modes: Modes, spacing: float | tuple[float, float]) -> Tensor:
    """The exact operator, few modes at a time: small tensors stay in the cache and are quickly allocated."""
    return sonic_conv(x, modes, spacing=spacing, mode_chunk=MODE_CHUNK)


def kernel_of(modes: Modes, size: tuple[int, int], spacing: float | tuple[float, float]) -> Tensor:
    """The spatial kernels on a periodic grid, ``(K, H, W)``, the origin at ``size // 2``: answers to one impulse."""
    impulse = torch.zeros(1, 1, *size)
    impulse[0, 0, size[0] // 2, size[1] // 2] = 1.0
    return apply_filter(impulse, modes, spacing)[0]


def response_magnitude(modes: Modes, highest: float, count: int) -> Tensor:
    """``|T|`` of a single mode, ``|H|`` of several, at ``count x count`` frequencies up to ``highest`` rad/mm.

    Frequencies are the centres of cells; the first axis runs from top (positive, up) to bottom, as pictures are drawn.
    """
    axis = (torch.arange(count) + 0.5) * (2 * highest / count) - highest
    down, right = torch.meshgrid(axis, axis, indexing="ij")
    omega = torch.stack([down, right], dim=-1)
    if modes.scale.numel() == 1:
        return mode_response(omega, *modes[:4])[0].abs()
    return response_matrix(omega, modes)[..., 0, 0].abs()
