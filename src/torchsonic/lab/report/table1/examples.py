"""Pictures of the trained models' predictions on a few samples, clean and perturbed."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchsonic.lab.data import HalliGalli, SynthShape, perturb
from torchsonic.lab.metrics.overlap import confusion, mean_dice
from torchsonic.lab.report import style
from torchsonic.lab.report.table1.collect import Column
from torchsonic.lab.runs.protocols import ProtocolName
from torchsonic.lab.runs.synthetic import HALLIGALLI_TRAIN, PROTOCOLS, TEST_NOISE
from torchsonic.models import PretrainedError, PretrainedModel, from_pretrained
from torchsonic.viz.style import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Models = Mapping[str, PretrainedModel]
SAMPLES_OF_A_CLASS = 3
SEED = 0
TITLE_WIDTH = 14


def load_models(
    columns: Sequence[Column], task: str, root: Path
) -> tuple[dict[str, PretrainedModel], int, list[tuple[Path, str]]]:
    """One trained model of each column, all of the fold that most columns have; that fold; what was left out.

    A model of another fold may have been trained on the samples shown, so it is left out.
    """
    runs = {column.name: column.of(task) for column in columns if column.of(task)}
    folds = Counter(fold for members in runs.values() for fold in {run.fold for run in members})
    chosen = min(folds, key=lambda fold: (-folds[fold], fold), default=0)
    models, skipped = {}, []
    for name, members in runs.items():
        candidates = [run for run in members if run.fold == chosen]
        if not candidates:
            skipped.append((members[0].folder, f"not among the examples: {name} has no run on fold {chosen}"))
            continue
        first = min(candidates, key=lambda run: run.training.get("seed", 0)).folder
        if not (root / first / "model").exists():
            skipped.append((first, "not among the examples: its model was not saved"))
            continue
        try:
            models[name] = from_pretrained(root / first / "model").eval()
        except (PretrainedError, OSError, ValueError, TypeError, KeyError) as error:
            skipped.append((first, f"not among the examples: {error}"))
    return models, chosen, skipped


@torch.no_grad()
def draw_segmentations(models: Models, fold: int, protocol: ProtocolName = "own") -> Figure | None:
    """A row for each perturbation: input, truth, and each model's classes with the Dice of that image."""
    if not models:
        return None
    rows = _perturbed_scene(fold, protocol, with_spacing=any(map(_can_be_told, models.values())))
    figure = new_figure(1.35 * (2 + len(models)) + 1.0, 1.5 * len(rows) + 0.8)
    panels = figure.subplots(len(rows), 2 + len(models), squeeze=False)
    for (title, image, truth, told), line in zip(rows, panels, strict=True):
        style.show_image(line[0], image[0])
        style.show_image(line[1], style.label_colours(truth[0]))
        line[0].set_ylabel(title, rotation=0, ha="right", va="center")
        for model, panel in zip(models.values(), line[2:], strict=True):
            if not told or _can_be_told(model):
                classes = model(image, **told).argmax(1)
                dice = mean_dice(confusion(classes, truth, SynthShape.num_classes), background=False)
                style.show_image(panel, style.label_colours(classes[0]))
                panel.set_xlabel(f"{dice:.2f}", fontsize="small", labelpad=2)
            else:
                panel.set_axis_off()
                panel.text(0.5, 0.5, "cannot use\nthe spacing", ha="center", va="center", color="0.4", fontsize="small")
    for title, panel in zip(("input", "truth", *models), panels[0], strict=True):
        panel.set_title(_wrap(title), fontsize="medium")
    style.class_legend(figure, loc="outside lower center")
    return figure


def _perturbed_scene(
    fold: int, protocol: ProtocolName, *, with_spacing: bool
) -> list[tuple[str, Tensor, Tensor, dict[str, Any]]]:
    """Title, image and label of a scene, clean and at the middle level of each perturbation, and what models are told.

    Rescaling is at its strongest, for its middle level changes nothing, and comes again with its spacing.
    """
    # The held-out sample with most kinds of shapes, of the first few.
    used = PROTOCOLS[protocol]
    data, indices = used.scenes(SEED), used.split(fold, 0, 60)[1]
    labels = data.samples(indices)[1]
    index = max(zip(indices, labels, strict=True), key=lambda pair: (len(pair[1].unique()), -pair[0]))[0]
    image, label = data.samples([index])
    rows: list[tuple[str, Tensor, Tensor, dict[str, Any]]] = [("clean", image, label, {})]
    for name, way in used.perturbations.items():
        level = way.levels[-1 if name == "rescaling" else len(way.levels) // 2]
        told = way.told if with_spacing else None
        for change, words, options in ((way.apply, "", {}), (told, ",\ngiven the spacing", {"spacing": 1 / level})):
            if change is not None:
                shown = change(image, label, level, torch.Generator().manual_seed(SEED), 0)
                rows.append((f"{name} {level:g}{words}", *shown, options))
    return rows


def _can_be_told(model: Any) -> bool:
    return getattr(model, "takes_spacing", False)


@torch.no_grad()
def draw_answers(models: Models) -> Figure | None:
    """Samples of both classes side by side, clean and with the noise of the test, and what models answer at the centre.

    Under each sample stand the right answer and each model's, the wrong ones struck through.
    """
    if not models:
        return None
    data, indices = HalliGalli(), range(HALLIGALLI_TRAIN, HALLIGALLI_TRAIN + 40)
    answers = list(zip(indices, data.scenes(list(indices))[1], strict=True))
    chosen = [index for kind in (1, 0) for index in [i for i, a in answers if a == kind][:SAMPLES_OF_A_CLASS]]
    image, label = data.samples(chosen)
    truth, patch = label.flatten(1).amax(1), label[0] >= 0
    noisy = perturb(image, label, "noise", TEST_NOISE, seed=SEED)[0]
    figure = new_figure(1.25 * len(chosen) + 1.9, 2 * (1.25 + 0.42 * (1 + len(models)) + 0.3))
    blocks = figure.subfigures(2, 1, squeeze=False).ravel()
    for title, shown, block in zip(("clean", f"noise {TEST_NOISE:g}"), (image, noisy), blocks, strict=True):
        block.suptitle(title, fontsize="medium", fontweight="bold")
        ratios = [3.0, *[1.0] * (1 + len(models))]
        panels = block.subplots(len(ratios), len(chosen), squeeze=False, gridspec_kw={"height_ratios": ratios})
        for panel, picture in zip(panels[0], shown, strict=True):
            style.show_image(panel, picture)
            style.mark_patch(panel)
        # The answer of the patch is the class with the highest mean probability.
        votes = {name: model(shown)[..., patch].softmax(1).mean(-1).argmax(1) for name, model in models.items()}
        for line, (name, vote) in zip(panels[1:], {"truth": truth, **votes}.items(), strict=True):
            for panel, answer, right in zip(line, vote.tolist(), truth.tolist(), strict=True):
                _show_answer(panel, answer, is_right=answer == right)
            score = "" if name == "truth" else f"  {int((vote == truth).sum())}/{len(truth)}"
            line[0].set_ylabel(_wrap(name) + score, rotation=0, ha="right", va="center", fontsize="small")
    return figure


def _show_answer(panel: Axes, answer: int, *, is_right: bool) -> None:
    """An answer in its colour; a wrong one is hollow and says so."""
    word, colour = style.ANSWERS[answer]
    style.show_colour(panel, colour if is_right else "#ffffff", edge=colour)
    text, ink = (word, "white") if is_right else (f"{word}: wrong", colour)
    panel.text(0, 0, text, ha="center", va="center", color=ink, fontsize="small")


def _wrap(name: str) -> str:
    return "\n".join(textwrap.wrap(style.plain(name), TITLE_WIDTH))
