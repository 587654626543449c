"""What the trained models answer on a few samples, clean and perturbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchsonic.lab.data import PERTURBATIONS, HalliGalli, SynthShape, perturb
from torchsonic.lab.metrics.overlap import confusion, mean_dice
from torchsonic.lab.report.table1.collect import Column, Run
from torchsonic.lab.runs.synthetic import TEST_NOISE
from torchsonic.lab.runs.synthetic.config import FOLDS
from torchsonic.lab.runs.synthetic.samples import HALLIGALLI_TRAIN
from torchsonic.models import PretrainedError, PretrainedModel, from_pretrained

__all__ = ["Answers", "Segmentation", "answer_halligalli", "load_models", "segment_synthshape"]

SAMPLES_OF_A_CLASS = 3
SEED = 0


@dataclass(frozen=True)
class Segmentation:
    """One image and what each model makes of it; classes are ``(H, W)``."""

    title: str
    image: Tensor
    truth: Tensor
    predictions: Mapping[str, Tensor] = field(default_factory=dict)

    def dice(self, name: str) -> float:
        """Of this one image, without background."""
        return mean_dice(confusion(self.predictions[name], self.truth, SynthShape.num_classes), background=False)


@dataclass(frozen=True)
class Answers:
    """HalliGalli: images ``(B, 3, H, W)``, right answers ``(B,)`` and each model's answers at the centre."""

    title: str
    image: Tensor
    truth: Tensor
    answers: Mapping[str, Tensor]


def load_models(
    columns: Sequence[Column], task: str, root: Path
) -> tuple[dict[str, PretrainedModel], int, list[tuple[Path, str]]]:
    """One trained model of each column, all of the fold that most columns have; that fold; what was left out.

    A model of another fold may have been trained on the samples shown, so it is left out.
    """
    runs = {column.name: column.of(task) for column in columns if column.of(task)}
    folds = Counter(fold for members in runs.values() for fold in {run.fold for run in members})
    if not folds:
        return {}, 0, []
    chosen = min(folds, key=lambda fold: (-folds[fold], fold))
    models, skipped = {}, []
    for name, members in runs.items():
        candidates = sorted((run for run in members if run.fold == chosen), key=_seed)
        if not candidates:
            skipped.append((members[0].folder, f"not among the examples: {name} has no run of fold {chosen}"))
            continue
        folder = root / candidates[0].folder / "model"
        if not folder.exists():
            skipped.append((candidates[0].folder, "not among the examples: its model was not kept"))
            continue
        try:
            models[name] = from_pretrained(folder).eval()
        except (PretrainedError, OSError, ValueError, TypeError, KeyError) as error:
            skipped.append((candidates[0].folder, f"not among the examples: {error}"))
    return models, chosen, skipped


def _seed(run: Run) -> int:
    return run.training.get("seed", 0)


def example_levels() -> dict[str, float]:
    """The middle level of each perturbation; of rescaling the strongest, for its middle level changes nothing."""
    return {
        name: perturbation.levels[-1 if name == "rescaling" else len(perturbation.levels) // 2]
        for name, perturbation in PERTURBATIONS.items()
    }


@torch.no_grad()
def segment_synthshape(models: Mapping[str, PretrainedModel], fold: int) -> list[Segmentation]:
    """The clean image and every perturbation of it, then rescaling again for models that can be told the spacing."""
    index = _rich_sample(fold)
    image, label = SynthShape().samples([index])
    rows: list[tuple[str, Tensor, Tensor, float | None]] = [("clean", image, label, None)]
    for name, level in example_levels().items():
        shown, moved = perturb(image, label, name, level, seed=SEED)
        rows.append((f"{name} {level:g}", shown, moved, None))
        if name == "rescaling" and any(_can_be_told(model) for model in models.values()):
            rows.append((f"{name} {level:g},\ntold the spacing", shown, moved, 1 / level))
    return [
        Segmentation(
            title,
            shown[0],
            truth[0],
            {
                name: model(shown, **({} if spacing is None else {"spacing": spacing})).argmax(1)[0]
                for name, model in models.items()
                if spacing is None or _can_be_told(model)
            },
        )
        for title, shown, truth, spacing in rows
    ]


def _can_be_told(model: Any) -> bool:
    return getattr(model, "takes_spacing", False)


def _rich_sample(fold: int) -> int:
    """The held-out sample with most kinds of shapes, of the first few."""
    indices = list(range(fold, 60 * FOLDS, FOLDS))
    labels = SynthShape().samples(indices)[1]
    return max(zip(indices, labels, strict=True), key=lambda pair: (len(pair[1].unique()), -pair[0]))[0]


@torch.no_grad()
def answer_halligalli(models: Mapping[str, PretrainedModel]) -> list[Answers]:
    """A few samples of both classes, clean and with the noise of the test."""
    data = HalliGalli()
    indices = list(range(HALLIGALLI_TRAIN, HALLIGALLI_TRAIN + 40))
    _, truth = data.scenes(indices)
    chosen = [[i for i, answer in zip(indices, truth, strict=True) if answer == c][:SAMPLES_OF_A_CLASS] for c in (1, 0)]
    image, label = data.samples([*chosen[0], *chosen[1]])
    right = label.flatten(1).amax(1)
    shown = {"clean": image, f"noise {TEST_NOISE:g}": perturb(image, label, "noise", TEST_NOISE, seed=SEED)[0]}
    patch = label[0] >= 0
    return [
        Answers(title, x, right, {name: _vote(model(x)[..., patch]) for name, model in models.items()})
        for title, x in shown.items()
    ]


def _vote(logits: Tensor) -> Tensor:
    """The answer of the patch, ``(B, K, pixels)`` to ``(B,)``: the class with the highest mean probability."""
    return logits.softmax(1).mean(-1).argmax(1)
