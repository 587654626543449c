"""Samples, noise, budgets and test of HalliGalli."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torchsonic.lab.data import HalliGalli, perturb
from torchsonic.lab.metrics.robustness import score_samples
from torchsonic.lab.runs.protocols import SMOKE
from torchsonic.lab.training.progress import counting_progress
from torchsonic.models import PretrainedModel

# Without unseen arrangements, the samples of the test are other draws of the 625 scenes that training sees.
HALLIGALLI_TRAIN = 20000
HALLIGALLI_NOISE = 0.12
TEST_NOISE = 0.1
TEST_LEVELS = (0.0, TEST_NOISE, 0.2)

# One block learns to read the corners by turning its modes towards them, so these learn faster than elsewhere.
_CORNERS = {"learning_rate": 5e-3, "mode_lr_scale": 0.1}


def _halligalli(**training: Any) -> Mapping[str, Any]:
    return {"test_samples": 1000, "training": {**_CORNERS, **training}}


HALLIGALLI_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": _halligalli(**SMOKE),
    "demo": _halligalli(steps=6000, batch=32),
    "quick": _halligalli(steps=10000, batch=32),
    "paper": _halligalli(steps=50000, batch=32),
}


def task_options(data: HalliGalli, noise: float | None) -> dict[str, Any]:
    """Options of the task of a training; ``noise`` is the usual one if ``None``."""
    # The answer is one bit for each image, which Dice adds nothing to.
    noise = HALLIGALLI_NOISE if noise is None else noise
    return {"noise": noise, "background": True, "dice": 0.0, "window": data.window()}


def score_corners(
    model: PretrainedModel,
    data: HalliGalli,
    indices: Sequence[int],
    *,
    levels: Sequence[float] = TEST_LEVELS,
    unseen: bool = True,
    show: bool = True,
) -> dict[str, Any]:
    """Dice of both answers at the centre, ``clean`` and in ``rows`` by level of noise.

    Further rows are for arrangements that ``data`` leaves out, if any, unless ``unseen`` is false.
    """
    tests = {"halligalli": data}
    if data.unseen and unseen:
        tests["unseen arrangements"] = replace(data, left_out=True)

    def noisy(chosen: Any, data: HalliGalli, level: float) -> Any:
        image, label = data.samples(chosen)
        return perturb(image, label, "noise", level, seed=int(chosen[0])) if level else (image, label)

    rows = []
    shared: dict[str, Any] = {"num_classes": data.num_classes, "background": True, "window": data.window()}
    with counting_progress("testing", len(tests) * len(levels), show=show) as advance:
        for (test, samples), level in itertools.product(tests.items(), levels):
            dice = score_samples(model, partial(noisy, data=samples, level=level), indices, **shared)
            rows.append({"test": test, "level": level, "dice": dice})
            advance()
    return {"clean": rows[0]["dice"], "rows": rows}
