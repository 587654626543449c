"""Scores of whole cases: as they are, turned, and stored in other orders of axes."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.functional import all_storages
from torchsonic.lab.data.draws import number_generator
from torchsonic.lab.data.volumes import Case, Volume, read_case
from torchsonic.lab.data.volumes.orientation import rearrange, straighten
from torchsonic.lab.data.volumes.turning import random_axis, rotation_about, turn_back, turn_volume
from torchsonic.lab.metrics.overlap import confusion, dice_per_class
from torchsonic.lab.metrics.results import mean_known
from torchsonic.lab.runs.volumes.config import VolumesConfig
from torchsonic.lab.runs.volumes.predict import predict_case, predict_probabilities, read_good_cases
from torchsonic.models import PretrainedModel


def score_cases(
    model: PretrainedModel,
    cases: Sequence[Case],
    config: VolumesConfig,
    *,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Dice of each foreground class and case on its own grid; ``None`` where neither label nor prediction has it.

    If the settings ask for turned or rearranged cases, ``turned`` holds the same of these; see :func:`score_turned`.
    """
    assert config.num_classes is not None
    rows = []
    read = partial(read_case, straight=config.is_oriented)
    for volume in read_good_cases(cases, read=read, num_classes=config.num_classes, advance=advance):
        start = time.perf_counter()
        found = predict_case(model, volume, config)
        seconds = time.perf_counter() - start
        assert volume.label is not None
        row = {"case": volume.name, "spacing": list(volume.spacing), "shape": list(volume.label.shape)}
        row |= {"seconds": seconds, "dice": score_labels(found, volume.label, config.num_classes)}
        if config.test_turns or config.test_storages:
            row["turned"] = score_turned(model, volume, config, upright=row["dice"])
        rows.append(row)
    return rows


def score_labels(found: NDArray[np.int16], label: NDArray[np.int16], num_classes: int) -> list[float | None]:
    """Dice of each foreground class, where the label is known; ``None`` where neither has it."""
    predicted, true = (torch.from_numpy(part).flatten().long() for part in (found, label))
    counts = confusion(predicted, true, num_classes)
    return [None if math.isnan(score) else score for score in dice_per_class(counts).tolist()[1:]]


def score_turned(
    model: PretrainedModel, volume: Volume, config: VolumesConfig, *, upright: list[float | None]
) -> list[dict[str, Any]]:
    """Dice of each class if a case is turned, or stored in another way; the network is told of it, and is not.

    Axes and storages are random, by the name of the case. Probabilities of a turned volume are brought back to the
    grid of the case, whose labels are exact there. Rows have ``turn``, in degrees, or ``storages``, over which scores
    are means; ``untold``; ``told`` if the network can be; and ``back``: the volume is first resampled on the grid of
    the case, or its axes brought to their order, which gives the scores ``upright``.
    """
    base = straighten(volume)[0] if config.is_oriented else volume
    generator = number_generator(zlib.crc32(volume.name.encode()), 0, purpose=0)
    rows: list[dict[str, Any]] = []
    for degrees in config.test_turns:
        rotation = rotation_about(random_axis(generator), math.radians(degrees))
        back = partial(turn_back, volume=base, rotation=rotation)
        turned = turn_volume(base, rotation)
        scores = score_told_and_untold(model, [turned], config, finish=back, label=base.label)
        resampled = predict_case(model, replace(base, image=back(turned.image)), config)
        assert base.label is not None
        assert config.num_classes is not None
        scores["back"] = score_labels(resampled, base.label, config.num_classes)
        rows.append({"turn": degrees, **scores})
    if config.test_storages:
        storages = list(all_storages(3))
        chosen = [storages[place] for place in generator.permutation(len(storages))[: config.test_storages]]
        stored = (rearrange(base, storage) for storage in chosen)  # one at a time: each is as large as the case
        rows.append({"storages": len(chosen), **score_told_and_untold(model, stored, config), "back": upright})
    return rows


def score_told_and_untold(
    model: PretrainedModel,
    volumes: Iterable[Volume],
    config: VolumesConfig,
    *,
    finish: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda probabilities: probabilities,
    label: NDArray[np.int16] | None = None,
) -> dict[str, list[float | None]]:
    """Mean Dice of each class over volumes, with and without telling the network how they lie.

    Probabilities are compared with ``label``, by default each volume's own, after ``finish``.
    """
    assert config.num_classes is not None
    scores: dict[str, list[list[float | None]]] = {"told": [], "untold": []} if config.is_oriented else {"untold": []}
    for volume in volumes:
        truth = volume.label if label is None else label
        assert truth is not None
        for way, found in scores.items():
            probabilities = finish(predict_probabilities(model, volume, config, tell_orientation=way == "told"))
            found.append(score_labels(probabilities.argmax(0), truth, config.num_classes))
    return {way: [mean_known(column) for column in zip(*found, strict=True)] for way, found in scores.items()}
