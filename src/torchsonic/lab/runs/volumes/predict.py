"""Whole cases through a trained network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.lab.data.volumes import Case, CaseError, Volume, find_cases, read_case
from torchsonic.lab.data.volumes.nifti import read_affine
from torchsonic.lab.data.volumes.orientation import (
    axis_codes,
    oblique_degrees,
    oblique_part,
    straighten,
    to_stored_axes,
)
from torchsonic.lab.data.volumes.preparation import prepare, resize
from torchsonic.lab.runs.folder import read_facts
from torchsonic.lab.runs.volumes.config import VolumesConfig
from torchsonic.lab.runs.volumes.sliding_window import sliding_window
from torchsonic.models import PretrainedModel

MARGIN = 10.0
"""Degrees that a case may be more oblique than those of training before users are warned."""
EXACT_REMEDY = "train with --variant exact"


def window_voxels(patch: Sequence[int], reference: Sequence[float], spacing: Sequence[float]) -> tuple[int, ...]:
    """Voxels of a window that shows as many millimetres as patches did in training, even where they are more or fewer.

    A network that is told the spacing has learnt how much of the body it sees at once, not how many voxels.

    Parameters
    ----------
    patch, reference
        Voxels of a training patch, and the network's reference spacing.
    spacing
        Of the case.

    Examples
    --------
    >>> window_voxels((10, 124, 128), (10.0, 1.5, 1.5), (5.0, 0.75, 1.5))
    (20, 248, 128)
    """
    wanted = [n * r / d for n, r, d in zip(patch, reference, spacing, strict=True)]
    return tuple(n if round(w) == n else 2 * max(1, round(w / 2)) for n, w in zip(patch, wanted, strict=True))


def predict_probabilities(
    model: PretrainedModel,
    volume: Volume,
    config: VolumesConfig,
    *,
    tell_spacing: bool = True,
    tell_orientation: bool = True,
) -> NDArray[np.float32]:
    """Probability of each class, ``(K, D, H, W)``, on the grid of the volume as it was read.

    ``model`` and ``config`` are a run's; ``tell_spacing=False`` and ``tell_orientation=False`` keep these from a
    network that was trained to be told them.
    """
    if config.is_oriented and tell_orientation:
        straight, storage = straighten(volume)
        turn = oblique_part(straight) if config.hears_oblique else None
        told = {} if turn is None else {"orientation": turn}
        return to_stored_axes(_predict(model, straight, config, told, tell_spacing=tell_spacing), storage)
    return _predict(model, volume, config, {}, tell_spacing=tell_spacing)


def _predict(
    model: PretrainedModel, volume: Volume, config: VolumesConfig, told: dict[str, Any], *, tell_spacing: bool
) -> NDArray[np.float32]:
    """Probabilities in the axes that the network sees."""
    assert config.patch is not None
    assert config.common_spacing != "median"
    channels = getattr(model, "in_channels", len(volume.image))
    if len(volume.image) != channels:
        raise ValueError(
            f"case {volume.name} has {len(volume.image)} channels, but the network was trained with {channels}"
        )
    prepared = prepare(volume, spacing=config.common_spacing, normalisation=config.normalisation)
    window = config.patch
    if config.is_told and tell_spacing:
        told = {**told, "spacing": prepared.spacing}
        window = window_voxels(config.patch, model.arguments["spacing"], prepared.spacing)
    model.eval()
    with torch.no_grad():
        probabilities = sliding_window(
            lambda patches: model(patches, **told).softmax(1),
            torch.from_numpy(prepared.image),
            window,
            overlap=config.overlap,
            batch=config.training.batch,
            device=next(model.parameters()).device,
        )
    return resize(probabilities.numpy(), volume.image.shape[1:], order=1).astype(np.float32, copy=False)


def predict_case(model: PretrainedModel, volume: Volume, config: VolumesConfig, **told: bool) -> NDArray[np.int16]:
    """The likeliest class of each voxel, ``(D, H, W)``; see :func:`predict_probabilities`."""
    return predict_probabilities(model, volume, config, **told).argmax(0).astype(np.int16)


class AxesWatch:
    """Warns once of volumes that lie otherwise than those of training, if the network is not told the orientation.

    The paper's variant is told axes in their order, but not what remains of an oblique orientation.

    Parameters
    ----------
    folder, config
        Of the run. One without a record of how its training cases lie is compared with these, if they are still there,
        and otherwise with the first volume.
    """

    def __init__(self, folder: Path, config: VolumesConfig, *, tell_orientation: bool = True) -> None:
        self.hears, self.is_told = config.hears_oblique, config.is_oriented and tell_orientation
        self.remedy = _remedy(config, tell_orientation=tell_orientation)
        self.warned: set[str] = set()
        self.cases: list[Case] = []
        if self.hears:  # all cases were brought to these axes, and the rest was told
            self.axes, self.oblique = {"RAS"}, 0.0
            return
        facts = read_facts(folder / "split.json", "train")
        self.axes = {"RAS"} if config.is_oriented else set(facts.get("axes", ()))
        self.oblique = facts.get("oblique")
        if self.oblique is None and (config.data / "images").is_dir():
            self.cases = [case for case in find_cases(config.data, labels=False) if case.name in facts["train"]]

    def __call__(self, volume: Volume) -> None:
        if self.is_told and self.hears:
            return
        if self.oblique is None:
            affines = [read_affine(case.images[0]) for case in self.cases] or [volume.affine]
            self.axes = self.axes or {axis_codes(affine) for affine in affines}
            self.oblique = max(oblique_degrees(affine) for affine in affines)
        axes, oblique = axis_codes(volume.affine), oblique_degrees(volume.affine)
        if axes not in self.axes and not self.is_told:
            self._warn(volume, f"has axes {axes}", f"on {', '.join(sorted(self.axes))}", about=axes)
        elif oblique > self.oblique + MARGIN:
            seen = "with the orientation of each" if self.hears else f"on cases at up to {self.oblique:.0f} degrees"
            self._warn(volume, f"lies at {oblique:.0f} degrees to the axes of space", seen, about="oblique")

    def _warn(self, volume: Volume, how: str, seen: str, *, about: str) -> None:
        if about not in self.warned:
            paper = "cannot be told an oblique orientation, since its layers are of variant paper"
            lack = paper if self.is_told else "is not told the orientation"
            warnings.warn(
                f"case {volume.name} {how}, but this network was trained {seen} and {lack}, so its result may be poor; "
                f"{self.remedy}",
                stacklevel=3,
            )
            self.warned.add(about)


def _remedy(config: VolumesConfig, *, tell_orientation: bool) -> str:
    """What users can do about a network that is not told the orientation."""
    if config.is_oriented and not tell_orientation:
        return "leave out --no-tell-orientation"
    if config.is_oriented:
        return f"resample the case along the axes of space, or {EXACT_REMEDY}"
    other = "train a Sonic network" if config.model == "unet" else "train again without --no-tell-orientation"
    return f"bring cases to the axes of training, or {other}"


def read_good_cases(
    cases: Sequence[Case],
    *,
    read: Callable[..., Volume] = read_case,
    channels: int | None = None,
    num_classes: int | None = None,
    keep_going: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> Iterator[Volume]:
    """Volumes one after another, of so many channels and classes; a bad case raises, or is left out with a warning."""
    for case in cases:
        try:
            if channels not in (None, len(case.images)):
                problem = f"the image has {len(case.images)} channels, but the network was trained with {channels}"
                raise CaseError(case.name, case.images[0], f"{problem}; add or remove files")
            volume = read(case, num_classes=num_classes)
        except CaseError as error:
            if not keep_going:
                raise
            warnings.warn(f"left out: {error}", stacklevel=2)
        else:
            yield volume
        advance()
