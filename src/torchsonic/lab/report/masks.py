"""The page on a run on masks: scores, the course of training, and contours on the best, the median and worst image.

The images are those that the run was tested on, or others with masks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from torchsonic.io import read_json
from torchsonic.lab.data.masks import find_pairs, read_pair
from torchsonic.lab.metrics.masks import THRESHOLDS
from torchsonic.lab.metrics.results import mean_known
from torchsonic.lab.report import Column, Document, Figure, Prose, Section, Table
from torchsonic.lab.report.document import NONE
from torchsonic.lab.report.files import to_png
from torchsonic.lab.report.runs import count, origin_text
from torchsonic.lab.report.style import plain
from torchsonic.lab.report.volumes.overlay import add_legend, draw_slice
from torchsonic.lab.runs.mask_scores import MEASURES, predict_mask, score_cases
from torchsonic.lab.runs.masks import MasksConfig, load_run
from torchsonic.lab.runs.volumes.split import find_learnt
from torchsonic.models import PretrainedModel
from torchsonic.viz.style import new_figure, thin_axes

COUNTED = (
    "Means over the classes or thresholds of an image, then over images. Dice: 2 |P and L| / (|P| + |L|). Boundary: "
    "the fraction of both boundaries that lies at most {:g} from the other, in the unit of the pixel size. Precision "
    "at a threshold: found / (found + missed + false) objects, where an object is found if its intersection over union "
    "with a predicted object exceeds the threshold."
)
MOVED = (
    "A rotated image is placed on a grid large enough for all of it; pixels outside the image are not scored. Rescaled "
    "images are scored on their new grid. Resampled: the network sees the image on its original grid."
)
WAYS = {"told": "pixel size given", "untold": "pixel size not given", "back": "resampled"}
PICTURES = "Ranked by {}, which the titles show. Coloured lines are predictions, dashed white lines the ground truth."


def make_page(folder: Path) -> Document:
    """The page on a finished run."""
    return _make_page(folder, read_json(folder / "results.json"), *load_run(folder))


def evaluate_run(
    folder: Path,
    data: Path,
    spacing: tuple[float, ...] | None = None,
    *,
    spacing_table: Path | None = None,
    keep_going: bool = False,
    device: str = "cpu",
) -> Document:
    """The page on other images with masks; see :func:`torchsonic.lab.runs.masks.predict_masks` for the arguments."""
    model, config = load_run(folder)
    cases = find_pairs(data)
    found = find_learnt(folder, config.data, cases, find_pairs)
    config = replace(config, data=data).with_pixels(spacing, spacing_table)
    scores = score_cases(model.to(device), cases, config, keep_going=keep_going)
    left_out = {case.name for case in cases} - {row["case"] for row in scores["cases"]}
    results = read_json(folder / "results.json")
    results |= {**scores, "left_out": dict.fromkeys(sorted(left_out), "could not be used")}
    results["config"] |= {"data": data.resolve().name}
    learnt, named = (sum(row["case"] in names for row in scores["cases"]) for names in found)
    total = f"of {count(len(scores['cases']), 'image')}"
    texts = [f"{learnt} {total} were used in training, so new images will score lower"] if learnt else []
    texts += [f"{named} {total} have names of training images; new images may score lower"] if named else []
    return _make_page(folder, results, model, config, texts)


def _make_page(
    folder: Path, results: dict[str, Any], model: PretrainedModel, settings: MasksConfig, warnings: Sequence[str] = ()
) -> Document:
    config, rows, warnings = results["config"], results["cases"], list(warnings)
    measure = "precision" if config["instances"] else "dice"
    rank = {row["case"]: mean for row in rows if (mean := mean_known(row[measure])) is not None}
    ranked = sorted(rank, key=rank.__getitem__)
    sections = [Section("Scores", [_scores(results), Prose(COUNTED.format(config["tolerance"]), "remark")])]
    if "rotated" in results or "scaled" in results:
        sections.append(Section("Rotated and scaled images", [_moved(results), Prose(MOVED, "remark")]))
    sections.append(Section("Training", [_curve(folder)]))
    if ranked:
        chosen: dict[str, str] = {}  # of one or two images, each once
        for word, place in {"best": -1, "median": len(ranked) // 2, "worst": 0}.items():
            chosen.setdefault(ranked[place], word)
        try:
            sections.append(
                Section("Best, median and worst image", [_pictures(model, settings, chosen, rank, measure)])
            )
        except (OSError, ValueError) as error:  # the images may have been moved since
            warnings.append(f"no pictures: {error}")
        table = Table("Images", ["image", measure], [[name, f"{rank[name]:.3f}"] for name in ranked])
        sections.append(Section("Images, worst first", [table], folded=True))
    return Document(
        title=f"Masks: {Path(config['data']).name}, {results['model']}",
        about=f"{count(len(rows), 'image')} tested; {results['parameters']:,} parameters; "
        f"trained for {count(config['training']['steps'], 'step')} in {results['seconds']:.0f} s.",
        sections=sections,
        warnings=warnings,
        origins=[origin_text(results["run"])],
        left_out=list(results["left_out"].items()),
        data=results,
    )


def _scores(results: Mapping[str, Any]) -> Table:
    columns, cells = [], []
    for name, what in MEASURES.items():
        if name in results:
            each = results[f"{name}_per_{what}"]
            words = THRESHOLDS if what == "threshold" else [f"class {place}" for place, _ in enumerate(each, start=1)]
            columns += [Column(str(word), name) for word in ("mean", *words)]
            cells += [NONE if value is None else f"{value:.3f}" for value in (results[name], *each)]
    return Table("Mean scores", columns, [cells], left=0)


def _moved(results: Mapping[str, Any]) -> Table:
    names = [name for name in MEASURES if name in results]
    rows = {f"rotated by {row['turn']:g}": row for row in results.get("rotated", ())}
    for row in results.get("scaled", ()):
        rows |= {f"resolution x {row['scale']:g}, {word}": row[way] for way, word in WAYS.items() if way in row}
    cells = [[test, *(NONE if row[n] is None else f"{row[n]:.3f}" for n in names)] for test, row in rows.items()]
    return Table("Mean scores of rotated and scaled images", ["test", *names], cells)


def _curve(folder: Path) -> Figure:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    figure = new_figure(6.0, 2.6)
    panel = figure.subplots()
    panel.plot(*zip(*losses, strict=True), color="#0072B2", linewidth=1.0)
    panel.set(xlabel="step", ylabel="loss", yscale="log")
    thin_axes(panel)
    return Figure("curve", "Training loss", "Training loss over steps.", to_png(figure), wide=False)


def _pictures(
    model: PretrainedModel, config: MasksConfig, chosen: Mapping[str, str], rank: Mapping[str, float], measure: str
) -> Figure:
    cases = {case.name: case for case in find_pairs(config.data)}
    figure = new_figure(3.4 * len(chosen), 3.9)
    panels = figure.subplots(1, len(chosen), squeeze=False)[0]
    for panel, (name, word) in zip(panels, chosen.items(), strict=True):
        if name not in cases:
            raise ValueError(f"{config.data} no longer contains {name}")
        options = {"num_classes": config.num_classes, "instances": config.instances, "size": config.pixel_size}
        volume = read_pair(cases[name], **options)
        found = predict_mask(model, volume, config)
        low, high = np.percentile(volume.image, [0.5, 99.5])
        shown = np.moveaxis(((volume.image[:, 0] - low) / max(high - low, 1e-6)).clip(0, 1), 0, -1)
        assert volume.label is not None
        draw_slice(panel, [shown, volume.label[0], found], volume.spacing[1:], (0.0, 1.0))
        panel.set_title(f"{word}: {plain(name)[:18]}, {rank[name]:.2f}", fontsize="small")
    add_legend(figure, [] if config.instances else [f"class {k}" for k in range(1, config.num_classes or 2)])
    return Figure("pictures", "Predicted and true contours", PICTURES.format(measure), to_png(figure, dpi=110))
