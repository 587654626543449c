"""Pictures through a trained network, and their scores: as they are, rotated, and at other resolutions."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.engine.memory import is_exhaustion
from torchsonic.lab.data import masks as files
from torchsonic.lab.data.instances import separate
from torchsonic.lab.data.labels import IGNORE
from torchsonic.lab.data.scaling import scale_back, scale_label, scale_picture
from torchsonic.lab.data.volumes import Case, Volume
from torchsonic.lab.data.volumes.preparation import normalise
from torchsonic.lab.data.volumes.turning import rotation_about, turn_volume
from torchsonic.lab.metrics.masks import score_mask
from torchsonic.lab.metrics.results import mean_known
from torchsonic.lab.runs.volumes.predict import read_good_cases, window_voxels
from torchsonic.lab.runs.volumes.run import mean_scores
from torchsonic.lab.runs.volumes.sliding_window import sliding_window
from torchsonic.lab.training.progress import counting_progress
from torchsonic.models import PretrainedModel

if TYPE_CHECKING:
    from torchsonic.lab.runs.masks import MasksConfig

MEASURES = {"dice": "class", "boundary": "class", "precision": "threshold"}
AXIS = np.array([1.0, 0.0, 0.0])
"""Across the slice that a picture is."""


def score_cases(
    model: PretrainedModel, cases: Sequence[Case], config: MasksConfig, *, keep_going: bool = False, show: bool = True
) -> dict[str, Any]:
    """Scores of pictures with masks and their means; also rotated and scaled, if the settings ask for it."""
    rows, size = [], config.pixel_size

    def read(case: Case, *, num_classes: int | None) -> Volume:
        return files.read_pair(case, num_classes=num_classes, instances=config.instances, size=size)

    options: dict[str, Any] = {"num_classes": config.num_classes, "keep_going": keep_going}
    with counting_progress("testing", len(cases), show=show) as advance:
        for volume in read_good_cases(cases, read=read, advance=advance, **options):
            row = score_volume(model, volume, config)[0]
            row |= {"rotated": score_rotated(model, volume, config)} if config.test_turns else {}
            row |= {"scaled": score_scaled(model, volume, config)} if config.test_scales else {}
            rows.append(row)
    measures = {name: what for name, what in MEASURES.items() if not rows or name in rows[0]}
    found = mean_scores(rows, measures)
    moved = [name for name in ("rotated", "scaled") if rows and name in rows[0]]
    return {**found, **{name: _mean_tables([row[name] for row in rows]) for name in moved}}


def score_volume(
    model: PretrainedModel, volume: Volume, config: MasksConfig
) -> tuple[dict[str, Any], NDArray[np.integer]]:
    """Scores of a picture with a mask, and what the network makes of it."""
    start = time.perf_counter()
    found = predict_mask(model, volume, config)
    facts = {"case": volume.name, "spacing": list(volume.spacing[1:]), "shape": list(found.shape)}
    seconds = time.perf_counter() - start
    return {**facts, "seconds": seconds, **_score(found, volume, config)}, found


def score_rotated(model: PretrainedModel, volume: Volume, config: MasksConfig) -> list[dict[str, Any]]:
    """Scores of a picture rotated by each of ``test_turns``, on a grid that holds all of it.

    What lies outside the picture is neither scored nor counted in its mean and deviation.
    """
    upright = replace(volume, image=normalise(volume.image, "zscore"))
    rows = []
    for degrees in config.test_turns:
        turned = turn_volume(upright, rotation_about(AXIS, math.radians(degrees)))
        rows.append({"turn": degrees, **_score(_predict(model, turned, config), turned, config)})
    return rows


def score_scaled(model: PretrainedModel, volume: Volume, config: MasksConfig) -> list[dict[str, Any]]:
    """Scores of a picture at each of ``test_scales`` times its resolution, on the scaled grid.

    ``told``: the network is told the pixel size, if it can be; ``untold``: it is not; ``back``: it sees the picture
    resampled back to the grid that it had, and what it finds there is brought to the scaled grid.
    """
    rows = []
    for scale in config.test_scales:
        scaled = scale_picture(volume, scale)
        found = {"told": predict_mask(model, scaled, config)} if config.is_told else {}
        found["untold"] = predict_mask(model, scaled, config, tell_spacing=False)
        back = scale_back(scaled, volume.image.shape[2:], scale)
        found["back"] = scale_label(predict_mask(model, back, config), scale)
        rows.append({"scale": scale, **{way: _score(mask, scaled, config) for way, mask in found.items()}})
    return rows


def _score(found: NDArray[np.integer], volume: Volume, config: MasksConfig) -> dict[str, list[float | None]]:
    """Scores where the label is known."""
    assert volume.label is not None
    label = volume.label[0]
    found, label = (np.where(label == IGNORE, 0, part) for part in (found, label))
    options: dict[str, Any] = {"num_classes": config.num_classes, "tolerance": config.tolerance}
    return score_mask(found, label, instances=config.instances, spacing=volume.spacing[1:], **options)


def _mean_tables(tables: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of the same tests of several pictures as their means."""
    return [_mean_of(rows) for rows in zip(*tables, strict=True)]


def _mean_of(parts: Sequence[Any]) -> Any:
    """Scores of pictures, each the mean of its classes, as their mean; what is no score is the same in all."""
    if isinstance(parts[0], Mapping):
        return {name: _mean_of([part[name] for part in parts]) for name in parts[0]}
    return mean_known(map(mean_known, parts)) if isinstance(parts[0], list) else parts[0]


def predict_mask(
    model: PretrainedModel, volume: Volume, config: MasksConfig, *, tell_spacing: bool = True
) -> NDArray[np.int32]:
    """Classes or numbers of objects ``(H, W)`` of a picture: all of it at once if memory allows, else in windows.

    ``tell_spacing=False`` keeps the pixel size from a network that was trained to be told it.
    """
    prepared = replace(volume, image=normalise(volume.image, "zscore"))
    return _predict(model, prepared, config, tell_spacing=tell_spacing)


def _predict(
    model: PretrainedModel, volume: Volume, config: MasksConfig, *, tell_spacing: bool = True
) -> NDArray[np.int32]:
    """The same of a picture that is normalised."""
    image = torch.from_numpy(volume.image[:, 0])
    told, window = {}, config.patch
    if config.is_told and tell_spacing:
        told = {"spacing": volume.spacing[1:]}
        window = window_voxels(config.patch, model.arguments["spacing"], volume.spacing[1:])
    options: dict[str, Any] = {"overlap": config.overlap, "device": next(model.parameters()).device}
    model.eval()

    @torch.no_grad()
    def look(size: Sequence[int]) -> NDArray[np.float32]:
        return sliding_window(lambda patches: model(patches, **told).softmax(1), image, size, **options).numpy()

    try:
        found = look(image.shape[1:] if image[0].numel() <= config.whole_pixels else window)
    except RuntimeError as error:
        if not is_exhaustion(error):
            raise
        found = look(window)
    return separate(found) if config.instances else found.argmax(0).astype(np.int32)
