"""A training step of a layer on this machine, beside a 3x3 convolution."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchsonic.nn import SonicConv2d

SIZES = ((64, 8, 64), (64, 16, 128), (256, 32, 56), (64, 64, 128))
"""Channels, modes and pixels; the last has as many modes as channels, where a convolution is at its best."""
BATCH, ROUNDS = 4, 5


class StepCost(NamedTuple):
    """Milliseconds of a training step, best of a few, and megabytes kept for its backward pass."""

    milliseconds: float
    kept: float


def measure_steps(channels: int, num_modes: int, pixels: int) -> tuple[StepCost, StepCost]:
    """The costs of a Sonic layer and of a convolution, which take turns."""
    x = torch.randn(BATCH, channels, pixels, pixels, requires_grad=True)
    layers = SonicConv2d(channels, channels, num_modes=num_modes), nn.Conv2d(channels, channels, 3, padding=1)
    kept = [_kept_bytes(layer, x) for layer in layers]
    best = [float("inf")] * len(layers)
    for _ in range(ROUNDS):
        for place, layer in enumerate(layers):
            start = time.perf_counter()
            layer(x).sum().backward()
            best[place] = min(best[place], time.perf_counter() - start)
    ours, theirs = (StepCost(1e3 * seconds, count / 1e6) for seconds, count in zip(best, kept, strict=True))
    return ours, theirs


def _kept_bytes(layer: nn.Module, x: Tensor) -> int:
    """Bytes of different tensors that the backward pass needs, parameters aside."""
    found = {}
    own = {p.untyped_storage().data_ptr() for p in layer.parameters()}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = layer(x)
    del y
    return sum(found.values())
