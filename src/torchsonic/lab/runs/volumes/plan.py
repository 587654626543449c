"""What the data decide: classes, spacing, patch and, by these, the network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from torchsonic.baselines import MonaiUNet
from torchsonic.lab.data.volumes.augmentation import SAME
from torchsonic.lab.data.volumes.survey import Facts
from torchsonic.lab.runs.volumes.config import VolumesConfig
from torchsonic.models import PretrainedModel, create_model

WIDTH, LEVELS = 16, 5
"""Channels of the U-Net's finest level, twice as many of each coarser one; and how many levels it has at most."""
COARSEST = 4
"""Voxels along an axis below which the U-Net halves it no further."""


def complete_config(config: VolumesConfig, facts: Sequence[Facts], num_classes: int) -> VolumesConfig:
    """Fill in what the data decide; ``facts`` are those of the training cases."""
    check_classes(facts, num_classes)
    spacing = config.common_spacing
    if spacing == "median":
        spacing = median_spacing(facts)
    assert spacing != "median"
    patch = config.patch or choose_patch(_shapes(facts, spacing), spacing or median_spacing(facts), config.patch_voxels)
    return replace(config, num_classes=num_classes, common_spacing=spacing, patch=patch)


def check_classes(facts: Sequence[Facts], num_classes: int) -> None:
    """Refuse classes that nothing can be learnt of."""
    if num_classes < 2:
        raise ValueError("the labels contain only background; there is nothing to learn")
    missing = set(range(1, num_classes)) - {value for fact in facts for value in fact.classes}
    if missing:
        raise ValueError(f"no training case contains class {min(missing)}; move one that does into training")


def median_spacing(facts: Sequence[Facts]) -> tuple[float, float, float]:
    """Median over cases along each axis."""
    depth, height, width = np.median([fact.spacing for fact in facts], axis=0).tolist()
    return depth, height, width


def _shapes(facts: Sequence[Facts], common: tuple[float, float, float] | None) -> list[tuple[int, ...]]:
    if common is None:
        return [fact.shape for fact in facts]
    return [
        tuple(max(1, round(n * own / new)) for n, own, new in zip(fact.shape, fact.spacing, common, strict=True))
        for fact in facts
    ]


def choose_patch(shapes: Sequence[Sequence[int]], spacing: Sequence[float], most: int) -> tuple[int, int, int]:
    """The median size of cases, the longest axis in millimetres cut until there are few enough voxels.

    Sizes are multiples of 4, of 2 below 16: good for Fourier transforms and for strides.

    Examples
    --------
    >>> choose_patch([(9, 256, 216)], (10.0, 1.4, 1.4), 160_000)
    (10, 124, 128)
    """
    patch = [_round(n, up=True) for n in np.median(shapes, axis=0).tolist()]
    while math.prod(patch) > most:
        extents = [n * d if n > 2 else 0.0 for n, d in zip(patch, spacing, strict=True)]
        axis = int(np.argmax(extents))
        patch[axis] = _round(patch[axis] - 1, up=False)
    return patch[0], patch[1], patch[2]


def _round(n: float, *, up: bool) -> int:
    unit = 4 if n >= 16 else 2
    return max(2, unit * (math.ceil(n / unit) if up else math.floor(n / unit)))


def fine_axes(spacing: Sequence[float]) -> list[bool]:
    """Axes about as fine as the finest: along the others, a stride would lose thick slices."""
    return [d < SAME * min(spacing) for d in spacing]


def unet_strides(spacing: Sequence[float], patch: Sequence[int]) -> list[tuple[int, ...]]:
    """Strides between levels: axes about as fine as the finest are halved, while they have voxels left.

    Examples
    --------
    >>> unet_strides((10.0, 1.4, 1.4), (8, 128, 128))
    [(1, 2, 2), (1, 2, 2), (2, 2, 2), (1, 2, 2)]
    """
    steps, size, strides = list(spacing), list(patch), []
    for _ in range(LEVELS - 1):
        # An axis that can be halved no further must not make the others look coarse.
        open_axes = [n >= 2 * COARSEST for n in size]
        finest = min((d for d, is_open in zip(steps, open_axes, strict=True) if is_open), default=math.inf)
        stride = tuple(2 if o and d < SAME * finest else 1 for d, o in zip(steps, open_axes, strict=True))
        if max(stride) == 1:
            break
        strides.append(stride)
        steps = [d * s for d, s in zip(steps, stride, strict=True)]
        size = [n // s for n, s in zip(size, stride, strict=True)]
    return strides


def make_model(config: VolumesConfig, facts: Sequence[Facts]) -> PretrainedModel:
    """The network of a completed configuration; its weights are drawn from the run's seed.

    Its reference spacing, in which Sonic layers are drawn and which they assume when told none, is the median of the
    training cases, whose ``facts`` these are, or the common spacing.
    """
    torch.manual_seed(config.training.seed)
    assert config.num_classes is not None
    assert config.patch is not None
    assert config.common_spacing != "median"
    channels, spacing = facts[0].channels, config.common_spacing or median_spacing(facts)
    if config.model == "unet":
        strides = unet_strides(spacing, config.patch)
        widths = [(config.width or WIDTH) * 2**level for level in range(len(strides) + 1)]
        return MonaiUNet(channels, config.num_classes, channels=widths, strides=strides)
    options: dict[str, Any] = {"spacing": spacing}
    options |= {"padding": None, "padding_mode": config.padding} if config.padding else {}
    sizes = {name: getattr(config, name) for name in ("width", "depth", "num_modes", "mlp_ratio", "variant")}
    options |= {name: value for name, value in sizes.items() if value is not None}
    name = config.model
    if name == "hybrid":
        name, options["local_kernel"] = "sonicnet3d.light", 3
    if config.stride is not None:
        options["stride"] = config.stride
    elif name in ("sonicnet3d.light", "orbitnet3d"):
        options["stride"] = tuple(2 if fine else 1 for fine in fine_axes(spacing))
    return create_model(name, in_channels=channels, num_classes=config.num_classes, **options)
