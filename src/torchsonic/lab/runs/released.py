"""SynthShape as in the authors' released script, ``examples/synthshape.py`` of GijsMoens/Sonic; from facts about it.

Every step has a fresh batch of scenes. Half of the loss, one less the Dice of the arg-max, has no gradient. Scores are
means over batches of the script's size, which also share one translation. All parameters decay, and AdamW's momentum
follows PyTorch's one-cycle schedule. GFNet's masks do not learn: the script makes them at the first step, when its
optimiser already has its parameters. The script has no S4ND: ours stands in its place.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from torchsonic.lab.data.synthetic import RELEASED_PERTURBATIONS, ReleasedShapes
from torchsonic.lab.metrics.overlap import confusion, mean_dice
from torchsonic.lab.runs.protocols import SMOKE, Protocol, Split
from torchsonic.lab.training.segmentation import WEIGHT_SAMPLES

BATCH, BATCHES, STEPS = 24, 20, 2000
FIRST_TEST = 1 << 32  # no training asks for so many samples


def class_weights(counts: Tensor) -> Tensor:
    """Inverse to the frequency, of mean 1 over classes."""
    weights = 1 / (counts.float() / counts.sum()).clamp_min(1e-6)
    return weights / weights.mean()


def loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Half the cross-entropy, divided by the weights in the batch, and half of one less the Dice of the arg-max."""
    found = mean_dice(confusion(logits.argmax(1), labels, logits.shape[1]), background=False)
    return 0.5 * F.cross_entropy(logits.float(), labels, weights) + 0.5 * (1 - found)


def _split(fold: int, asked: int, tests: int) -> Split:
    return range(max(asked, WEIGHT_SAMPLES)), range(FIRST_TEST, FIRST_TEST + tests)


def _preset(batches: int, **training: Any) -> dict[str, Any]:
    script = {"learning_rate": 1e-2, "weight_decay": 1e-3, "decay": "all", "mode_lr_scale": 1.0, "clip": 0.0}
    script["schedule"] = "one-cycle-momentum"
    return {"test_samples": batches * BATCH, "training": {**script, **training}}


RELEASED = Protocol(
    title="SynthShape, released protocol",
    folds=1,
    most_tests=None,
    scenes=ReleasedShapes,
    split=_split,
    presets={
        "smoke": _preset(1, **SMOKE),
        "demo": _preset(2, steps=200, batch=8),
        "quick": _preset(10, steps=600, batch=8),
        "paper": _preset(BATCHES, steps=STEPS, batch=BATCH),
    },
    sonicnet={"variant": "paper", "bank": "released", "padding": "circular"},
    backbones={
        "niff": {"form": "released"},
        "gfnet": {"form": "released", "grid": 64},
        "vit": {"grid": 8, "zero_positions": True},
    },
    task={"weigh": class_weights, "criterion": loss, "score_batch": BATCH, "beyond": "zeros"},
    perturbations=RELEASED_PERTURBATIONS,
    at_resolutions=False,
)
