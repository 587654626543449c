"""The model to explain, images for it, and a network to compare it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchsonic.io import read_json
from torchsonic.lab.runs.synthetic import make_data
from torchsonic.models import PretrainedModel, SonicLayers, from_pretrained
from torchsonic.models.pretrained import CONFIG_NAME, locate
from torchsonic.nn import SonicConvNd
from torchsonic.viz import convolution_twin
from torchsonic.viz.lattice import named_sonic_layers

TITLES = {"synthshape": "SynthShape", "halligalli": "HalliGalli"}
NUM_IMAGES = 6
EXTENT = {1: 128, 2: 64, 3: 24}
"""Pixels of an image of noise on an axis of mean spacing."""
CELLS = 8
"""Least pixels of the deepest features on an axis, so that they have a middle and a surrounding."""


@dataclass(frozen=True)
class Subject:
    """A model and what is needed to look at it."""

    folder: Path
    model: PretrainedModel
    name: str
    """Of the model, for people."""
    layers: Mapping[str, SonicConvNd]
    images: Tensor | None
    """``(B, C, *size)``; none for layers without a network, which have no receptive field."""
    images_words: str
    spacing: tuple[float, ...]
    """Of the images, which is the reference."""
    unit: str
    rival: nn.Module | None
    rival_name: str
    rival_words: str
    run: Path | None
    """Folder of the training run, if the model came from one."""


def load_subject(folder: Path, *, against: Path | None = None, unit: str | None = None) -> Subject:
    """Read a folder of ``save_pretrained``, or of a run with ``model/`` in it.

    Parameters
    ----------
    against
        Folder of a model to compare receptive fields with; by default the same network with untrained convolutions.
    unit
        Name of the length that spacings are given in; by default ``mm`` for runs on volumes, ``px`` for spacing 1.

    Raises
    ------
    ValueError
        If there is no model, or none with Sonic layers.
    """
    model, run = _load(folder)
    try:
        layers = named_sonic_layers(model)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    first, settings = next(iter(layers.values())), _settings(run)
    spacing, name = first.network_spacing, _name(model, settings)
    images, words = _images(model, layers, spacing, settings)
    if images is None:
        if against is not None:
            raise ValueError(f"{folder} contains layers without a network, so there is no receptive field to compare")
        rival = None, "", ""
    elif against is None:
        kernel = " x ".join(["3"] * first.num_axes)
        text = f"the same network with untrained {kernel} convolutions in place of the Sonic layers"
        rival = convolution_twin(model), "convolutions", text
    else:
        rival = _load_rival(against, images, name)
    if unit is None and "data" in settings and len(spacing) == 3:  # NIfTI says the spacing of volumes in millimetres
        unit = "mm"
    unit = unit or ("px" if set(spacing) == {1.0} else "unit")
    return Subject(folder, model, name, layers, images, words, spacing, unit, *rival, run)


def _load(folder: Path) -> tuple[PretrainedModel, Path | None]:
    """The model in a folder, or of that name, and the folder of its run if it is one's."""
    place = locate(folder)
    model = from_pretrained(place).float()  # pictures need no more, and images come in float32
    return model, place.parent if place.name == "model" else None


def _load_rival(folder: Path, images: Tensor, own: str) -> tuple[PretrainedModel, str, str]:
    """A network to compare with, its name and what it is."""
    rival, run = _load(folder)
    if isinstance(rival, SonicLayers):
        raise ValueError(f"{folder} contains layers without a network, so there is no receptive field to compare")
    channels = getattr(rival, "in_channels", images.shape[1])
    if channels != images.shape[1]:
        raise ValueError(f"{folder} takes {channels} channels, but the model to explain takes {images.shape[1]}")
    name = _name(rival, _settings(run))
    return rival, f"{name} in {folder}" if name == own else name, f"the model in {folder.as_posix()}"


def _settings(run: Path | None) -> dict[str, Any]:
    """The configuration of a run, empty if there is none that can be read."""
    try:
        return {} if run is None else read_json(run / CONFIG_NAME)
    except (OSError, ValueError):
        return {}


def _name(model: nn.Module, settings: Mapping[str, Any]) -> str:
    """What the run calls its model, else its class."""
    given = settings.get("model")
    return given if isinstance(given, str) and given else type(model).__name__


def _images(
    model: PretrainedModel,
    layers: Mapping[str, SonicConvNd],
    spacing: tuple[float, ...],
    settings: Mapping[str, Any],
) -> tuple[Tensor | None, str]:
    """Images of the run's task where it has one that can be drawn, else white noise; none without a network."""
    if isinstance(model, SonicLayers):
        return None, ""
    if settings.get("task") in TITLES:
        task, protocol = settings["task"], settings.get("protocol", "own")
        words = f"{NUM_IMAGES} samples of {TITLES[task]}{', released protocol' if protocol == 'released' else ''}"
        return make_data(task, protocol).samples(range(NUM_IMAGES))[0], words
    axes = len(spacing)
    mean = torch.tensor(spacing).log().mean().exp().item()
    deepest = [max(layer.input_stride[axis] * layer.stride[axis] for layer in layers.values()) for axis in range(axes)]
    size = [
        max(round(EXTENT[axes] * mean / step), round(CELLS * stride))
        for step, stride in zip(spacing, deepest, strict=True)
    ]
    channels = getattr(model, "in_channels", None)
    if channels is None:
        raise ValueError(f"{type(model).__name__} has no in_channels, so no images can be made for it")
    noise = torch.randn(2, int(channels), *size, generator=torch.Generator().manual_seed(0))
    return noise, f"white noise of size {' x '.join(map(str, size))}"
