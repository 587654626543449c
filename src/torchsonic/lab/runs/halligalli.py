"""Samples, noise and budgets of HalliGalli."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchsonic.lab.runs.protocols import SMOKE

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
