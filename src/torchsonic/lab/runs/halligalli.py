"""Samples, noise, budgets and test of HalliGalli."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchsonic.lab.data import HalliGalli, perturb
from torchsonic.lab.metrics.robustness import score_samples
from torchsonic.lab.runs.protocols import SMOKE
from torchsonic.lab.training.progress import counting_progress
from torchsonic.models import PretrainedModel

# HalliGalli has 625 scenes, which training may all see; the samples of the test are other draws of them.
HALLIGALLI_TRAIN = 20000
HALLIGALLI_NOISE = 0.12
TEST_NOISE = 0.1

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


def score_corners(
    model: PretrainedModel, data: HalliGalli, indices: Sequence[int], *, show: bool = True
) -> dict[str, Any]:
    """Dice of both answers at the centre, ``clean`` and in ``rows`` without and with noise."""

    def noisy(chosen: Any) -> Any:
        image, label = data.samples(chosen)
        return perturb(image, label, "noise", TEST_NOISE, seed=int(chosen[0]))

    rows = []
    shared: dict[str, Any] = {"num_classes": data.num_classes, "background": True, "window": data.window()}
    with counting_progress("testing", 2, show=show) as advance:
        for level, batches in ((0.0, data.samples), (TEST_NOISE, noisy)):
            dice = score_samples(model, batches, indices, **shared)
            rows.append({"test": "halligalli", "level": level, "dice": dice})
            advance()
    return {"clean": rows[0]["dice"], "rows": rows}
