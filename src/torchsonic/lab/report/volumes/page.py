"""The page on segmented volumes: scores with intervals, differences, lesions, costs, and pictures of each case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchsonic import __version__
from torchsonic.lab.metrics.detection import MEASURES as LESION_MEASURES
from torchsonic.lab.metrics.detection import SHARES
from torchsonic.lab.report import Cell, Code, Column, Document, Figure, Group, Prose, Section, Table
from torchsonic.lab.report.document import MINUS, NONE, Text
from torchsonic.lab.report.runs import commit_of, count, decimal, origin_text, signed
from torchsonic.lab.report.volumes.results import Evaluation, ModelResult, as_data, case_warnings, compare

OPEN = 6
"""Cases whose pictures are shown without a click."""
MEASURES = {"dice": "Dice", "nsd": "NSD"}
COSTS = ("parameters, M", "s per case", "peak, MB")
LESION_WORDS = {"auroc": "AUROC", "ap": "AP", "f1": "F1"}
LESION_COUNTS = ("lesions", "found", "missed", "false_alarms")
PICTURES = (
    "Coloured lines are predictions, dashed white lines the ground truth. Slices are perpendicular to the coarsest "
    "axis and pass through the largest structure; the framed slice has the most wrong voxels. Pixels are drawn to "
    "scale."
)


def make_page(evaluation: Evaluation) -> Document:
    """The page on an evaluation."""
    cases, warnings = evaluation.cases, case_warnings(evaluation)
    pictured = [_case(evaluation, place, name) for place, name in enumerate(cases) if name in evaluation.pictures]
    others = [name for name in cases if name not in evaluation.pictures]
    skipped = f", {len(evaluation.skipped)} left out" if evaluation.skipped else ""
    about = f"{count(len(cases), 'case')}{skipped}; {count(len(evaluation.models), 'row')} of scores."
    notes = Section("What is counted", _explanations(evaluation), folded=True)
    sections = [Section("Scores", [_scores(evaluation), notes]), *_differences(evaluation), *_lesions(evaluation)]
    sections.append(Section("Cases, worst first", [_overview(evaluation)]))
    if pictured:
        sections.append(Section("Pictures, worst case first", [Prose(PICTURES, "remark"), *pictured]))
    if others:
        sections.append(Section("Scores of each case", [_case_table(evaluation, others)]))
    return Document(
        title=evaluation.title,
        about=f"{about} Written {evaluation.run['date']} by torchsonic {__version__}.",
        warnings=warnings,
        sections=sections,
        origins=[origin_text(evaluation.run), *map(_origin, evaluation.models)],
        left_out=evaluation.skipped,
        data={**as_data(evaluation), "torchsonic": __version__, "warnings": warnings},
    )


def _pairs(groups: Sequence[str]) -> list[Column]:
    return [Column(measure, group) for group in groups for measure in MEASURES.values()]


def _scores(evaluation: Evaluation) -> Table:
    """The mean over classes where there are several, then each class, then costs if any are known."""
    several = ["mean"] if len(evaluation.classes) > 1 else []
    costs = [_costs(model) for model in evaluation.models]
    known = any(words != NONE for row in costs for words in row)
    columns: list[list[Cell]] = []
    summaries = [model.summary() for model in evaluation.models]
    for entries in zip(*[[*[s[name] for name in several], *s["classes"]] for s in summaries], strict=True):
        columns += [_mark_best([_estimate(entry[measure]) for entry in entries]) for measure in MEASURES]
    rows = zip(evaluation.models, zip(*columns, strict=True), costs, strict=True)
    return Table(
        "Dice and NSD of each model and class, and its cost",
        ["", *_pairs([*several, *evaluation.classes]), *(COSTS if known else ())],
        [[model.name, *scores, *(cost if known else ())] for model, scores, cost in rows],
    )


def _estimate(found: Mapping[str, Any], *, key: str = "mean", show: Callable[[float], str] = decimal) -> Cell:
    if found[key] is None:
        return Cell(NONE)
    return Cell(show(found[key]), "" if found["low"] is None else f"{show(found['low'])} to {show(found['high'])}")


def _mark_best(column: Sequence[Cell]) -> list[Cell]:
    scores = [float(cell.text) for cell in column if cell.text != NONE]
    best = f"{max(scores):.3f}" if len(scores) > 1 else None
    return [replace(cell, mark="best") if cell.text == best else cell for cell in column]


def _costs(model: ModelResult) -> list[str]:
    millions = None if model.parameters is None else model.parameters / 1e6
    return [decimal(millions), *_time_and_peak(model.seconds(), model.peak_bytes())]


def _time_and_peak(seconds: float | None, peak: int | None) -> list[str]:
    return [decimal(seconds, 2 if (seconds or 0) < 10 else 1), decimal(None if peak is None else peak / 1e6, 0)]


def _differences(evaluation: Evaluation) -> list[Section]:
    rows = [
        [
            f"{d['first']} {MINUS} {d['second']}",
            *[_estimate(d[m], show=signed) for m in MEASURES],
            str(d["dice"]["count"]),
        ]
        for d in compare(evaluation.models)
    ]
    note = (
        "Paired differences over the cases that both models have. An interval that excludes zero indicates a real "
        "difference."
    )
    table = Table("Differences between models", ["difference of means", *MEASURES.values(), "cases"], rows, [note])
    return [Section("Differences", [table])] if rows else []


def _lesions(evaluation: Evaluation) -> list[Section]:
    rows = []
    for model in evaluation.models:
        found = model.lesions(evaluation.threshold)
        if found is not None:
            overall = found["overall"]
            estimates = [_estimate(overall[name], key="value") for name in LESION_MEASURES]
            shares = "/".join(decimal(overall[name], 2) for name in SHARES)
            rows.append([model.name, *estimates, *[str(overall[name]) for name in LESION_COUNTS], shares])
    measures = [LESION_WORDS.get(name, name) for name in LESION_MEASURES]
    headers = ["model", *measures, *[name.replace("_", " ") for name in LESION_COUNTS], "TP/FP/FN per case"]
    return [Section("Lesions", [Table("Detection of lesions", headers, rows)])] if rows else []


def _overview(evaluation: Evaluation) -> Table:
    rows = []
    for place, name in enumerate(evaluation.cases):
        link = f"case{place}" if name in evaluation.pictures else ""
        scores = [decimal(m.cases[name].mean("dice")) if name in m.cases else NONE for m in evaluation.models]
        rows.append([Cell(name, link=link), _spacing(evaluation, name), *scores])
    headers = ["case", "spacing (D, H, W)", *[f"{model.name}, Dice" for model in evaluation.models]]
    return Table("Mean Dice of each case", headers, rows, left=2)


def _case(evaluation: Evaluation, place: int, name: str) -> Section:
    figure = Figure(f"pictures/{place:03d}_{name}", name, "", evaluation.pictures[name], "webp")
    blocks = [figure, _case_table(evaluation, [name])]
    return Section(f"{name}, {_spacing(evaluation, name)}", blocks, folded=place >= OPEN, anchor=f"case{place}")


def _case_table(evaluation: Evaluation, names: Sequence[str]) -> Table:
    """Scores of every class of some cases; of several, under their names."""
    rows, timed = [], evaluation.is_timed
    for name in names:
        rows += [Group(f"{name}, {_spacing(evaluation, name)}")] if len(names) > 1 else []
        for model, found in [(model, model.cases[name]) for model in evaluation.models if name in model.cases]:
            costs = _time_and_peak(found.seconds, found.peak_bytes) if timed else []
            rows.append([model.name, *[decimal(row[m]) for row in found.scores for m in MEASURES], *costs])
    title = f"Scores of {names[0]}" if len(names) == 1 else "Scores of each case"
    return Table(title, ["", *_pairs(evaluation.classes), *(COSTS[1:] if timed else ())], rows)


def _spacing(evaluation: Evaluation, name: str) -> str:
    """Millimetres along D, H and W."""
    return " \u00d7 ".join(f"{step:.3g}" for step in evaluation.spacings[name]) + " mm"


def _origin(model: ModelResult) -> Text:
    words: tuple[str | Code, ...] = (f"{model.name}: ", Code(model.source))
    if model.origin.get("command"):
        words += (", trained by ", Code(str(model.origin["command"])))
    return words + ((f" at commit {commit_of(model.origin)}",) if model.origin.get("commit") else ())


def _explanations(evaluation: Evaluation) -> list[str]:
    """What the numbers are."""
    found = [
        "Means over cases with 95 % bootstrap intervals (2000 draws of cases with replacement, seed 0). Bold: the "
        "best of a column.",
        "Dice: 2 |P and L| / (|P| + |L|) of the voxels of a class in prediction and label. NSD: the fraction of the "
        f"border voxels of both that lie within {evaluation.tolerance:g} mm of the other border (MONAI's surface "
        "Dice). A class that is in neither prediction nor label has no score in that case; a class that is in only "
        "one of them scores 0. Means are taken over the classes of a case first, then over cases.",
    ]
    if evaluation.is_timed:
        found.append(
            "Time is for the whole prediction of a case, after a warm-up. Peak memory is the most that PyTorch had "
            "allocated at any time during a prediction, in the case that needed most, excluding the network and the "
            "image."
        )
    if any(case.lesions is not None for model in evaluation.models for case in model.cases.values()):
        found.append(
            "Lesions: candidates are extracted around the peaks of the probability map and matched with lesions at an "
            "intersection over union of at least 0.1. F1, sensitivity and precision count candidates with a confidence "
            f"of at least {evaluation.threshold:g}. AUROC is for cases (lesion or none), AP for lesions. TP/FP/FN: "
            "lesions found, false alarms and missed lesions, divided by the number of cases."
        )
    return found
