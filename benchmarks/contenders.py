"""What is measured: one function for each contender builds a module of ``x`` for an entry. None has a bias."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from benchmarks.entries import BORDER, ORBIT, ORBIT_CHANNELS, Entry
from torchsonic import SonicConv2d, SonicConv3d, SonicOrbitConv2d, make_group
from torchsonic.nn import SonicConvNd
from torchsonic.testing.paper_order import PaperOrder

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


def sonic_orbit(entry: Entry) -> nn.Module:
    """As many modes as Sonic, every eighth of them of its own: the others are its turns."""
    order = len(make_group(ORBIT, 2))
    if entry.num_axes != 2 or entry.channels != ORBIT_CHANNELS:
        raise UnavailableError(f"orbits are measured on images of {ORBIT_CHANNELS} channels")
    return SonicOrbitConv2d(entry.channels, entry.channels, num_modes=entry.modes // order, group=ORBIT, bias=False)


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
    Contender("sonic_orbit", f"Sonic, orbits of {ORBIT}", "circular", sonic_orbit),
    Contender("paper_order", "paper's order", "circular", paper_order),
    Contender("conv3", "3x3 convolution", "zeros 1", conv3),
    Contender("depthwise31", "depthwise 31x31", "zeros 15", depthwise31, most_samples=2),
    Contender("neuralop", "neuraloperator", "circular", neuralop, most_samples=2),
)
