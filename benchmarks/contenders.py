"""What is measured: one function for each contender builds a module of ``x`` for an entry. None has a bias."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.entries import BORDER, Entry
from torchsonic import SonicConv2d, SonicConv3d
from torchsonic.functional import frequency_grid, mode_response
from torchsonic.nn import SonicConvNd

__all__ = ["CONTENDERS", "PASSES", "Contender", "PaperOrder", "UnavailableError", "sonic_layer"]

FORWARD, TRAIN_STEP = PASSES = ("forward", "train_step")

# Multiply-adds of a depthwise 31x31 forward pass; PyTorch takes some ten seconds for one training step at this number.
DEPTHWISE_LIMIT = 3e9


class UnavailableError(Exception):
    """Why a contender sits an entry out."""


@dataclass(frozen=True)
class Contender:
    name: str
    label: str
    padding: str
    build: Callable[[Entry], nn.Module]
    passes: tuple[str, ...] = PASSES
    most_samples: int | None = None
    """Of slow contenders that no goal is about."""


def sonic_layer(entry: Entry, **options: Any) -> SonicConvNd:
    layer = {2: SonicConv2d, 3: SonicConv3d}[entry.num_axes]
    return layer(entry.channels, entry.channels, num_modes=entry.modes, bias=False, **options)


def sonic(entry: Entry) -> nn.Module:
    return sonic_layer(entry)


def sonic_recompute(entry: Entry) -> nn.Module:
    return sonic_layer(entry, execution={"recompute": True})


def sonic_cached(entry: Entry) -> nn.Module:
    """Evaluation mode, in which responses are kept from call to call."""
    return sonic_layer(entry).eval()


def sonic_border(entry: Entry) -> nn.Module:
    if entry.num_axes != 2:
        raise UnavailableError("a border is measured on images")
    try:
        return sonic_layer(entry, padding_mode="zeros", padding=BORDER)
    except TypeError as error:
        raise UnavailableError("layers of this version have no padding of a chosen width") from error


class PaperOrder(nn.Module):
    """The paper's order of evaluation in plain PyTorch, on the parameters of a Sonic layer.

    All C channels are transformed, mixed by complex products on the half spectrum, and all K transformed back. The
    paper's standardisation of the input and its zeroing of bins are left out, in its favour.
    """

    omega: Tensor

    def __init__(self, layer: SonicConvNd, size: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.size = layer, size
        omega = frequency_grid(size, half=True, dtype=layer.mix_in.dtype, device=layer.mix_in.device)
        self.register_buffer("omega", omega.flatten(0, -2))

    def double_copy(self) -> PaperOrder:
        """The same parameters in float64, on a grid that was never rounded to float32."""
        return PaperOrder(deepcopy(self.layer).double(), self.size)

    def forward(self, x: Tensor) -> Tensor:
        modes = self.layer.modes()
        response = mode_response(self.omega, modes.direction, modes.scale, modes.pole, modes.transverse)
        axes = tuple(range(2, x.dim()))
        spectrum = torch.fft.rfftn(x, dim=axes)
        z = torch.einsum("mc,bcn->bmn", modes.mix_in, spectrum.flatten(2))
        w = z * (modes.gain[:, None] * response)
        mixed = torch.einsum("km,bmn->bkn", modes.mix_out, w)
        return torch.fft.irfftn(mixed.unflatten(-1, spectrum.shape[2:]), s=self.size, dim=axes)


def paper_order(entry: Entry) -> nn.Module:
    return PaperOrder(sonic_layer(entry), entry.size)


def conv3(entry: Entry) -> nn.Module:
    conv = {2: nn.Conv2d, 3: nn.Conv3d}[entry.num_axes]
    return conv(entry.channels, entry.channels, 3, padding=1, bias=False)


def depthwise31(entry: Entry) -> nn.Module:
    if entry.num_axes != 2:
        raise UnavailableError("31x31 is a kernel for images")
    work = 31**2 * entry.num_values
    if work > DEPTHWISE_LIMIT:
        raise UnavailableError(f"{work / 1e9:.0f} G multiply-adds would take minutes a step")
    return nn.Conv2d(entry.channels, entry.channels, 31, padding=15, groups=entry.channels, bias=False)


def neuralop(entry: Entry) -> nn.Module:
    try:
        from neuralop.layers.spectral_convolution import SpectralConv  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UnavailableError('neuraloperator is not installed: pip install "torchsonic[bench]"') from error
    half = tuple(n // 2 for n in entry.size)
    return SpectralConv(entry.channels, entry.channels, half, bias=False)


CONTENDERS = (
    Contender("sonic", "Sonic", "circular", sonic),
    Contender("sonic_recompute", "Sonic, recompute", "circular", sonic_recompute),
    Contender("sonic_cached", "Sonic, evaluation mode", "circular", sonic_cached, (FORWARD,)),
    Contender("sonic_border", "Sonic, border", f"zeros {BORDER}", sonic_border),
    Contender("paper_order", "paper's order", "circular", paper_order),
    Contender("conv3", "3x3 convolution", "zeros 1", conv3),
    Contender("depthwise31", "depthwise 31x31", "zeros 15", depthwise31, most_samples=2),
    Contender("neuralop", "neuraloperator", "circular", neuralop, most_samples=2),
)
