"""The page of a study: ranking over seeds, learning-rate search, learning curves, and what is left to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchsonic.lab.report.document import NONE, Cell, Column, Document, Figure, Group, Items, Prose, Section, Table
from torchsonic.lab.report.files import to_png
from torchsonic.lab.report.runs import Compared, count, decimal, find_warnings, origin_text
from torchsonic.lab.report.style import draw_band, log_scale, plain, read_losses, smooth
from torchsonic.lab.runs.table1 import duration
from torchsonic.lab.studies.definition import Measure, Study
from torchsonic.lab.studies.outcome import Outcome, find_numbers, find_outcomes, ranks
from torchsonic.lab.studies.plan import Planned, plan_runs, time_left
from torchsonic.viz.style import PALETTE, new_figure, thin_axes

COLOURS = (*PALETTE, "#777777")
LEGEND_WIDTH = 96
"""Characters that fit beside each other below a figure."""
MOST_COLUMNS = 8
"""Measures with a column each; if there are more, they have rows."""
PUBLISHED = "Published, each with its own training budget"
DIGITS = {"plain": 3, "percent": 2, "error": 2, "cost": 2}


def make_page(study: Study, out: Path, data: Path) -> Document:
    """The page of a study with all results so far."""
    runs = plan_runs(study, out, data)
    outcomes = find_outcomes(study, runs)
    done = [(run, results) for outcome in outcomes.values() for run, results in outcome.runs if results]
    search = [(run, results) for run in runs if run.part == "search" and (results := run.results())]
    compared = [
        Compared(name=run.model, settings={}, repeat=(run.rate, run.seed)[place], origin=results["run"], group=group)
        for place, (group, pairs) in enumerate((("Search", search), ("", done)))
        for run, results in pairs
    ]
    skipped = {
        study.models[run.model].title: f"needs {run.missing}" for run in runs if run.missing and run.results() is None
    }
    numbers = find_numbers(study, outcomes)
    sections = [_results(study, outcomes), *_search(study, runs), *_curves(study, outcomes)]
    return Document(
        title=study.title,
        about=f"{study.about} {status_line(runs)}",
        sections=[*sections, Section("Notes", [Items(study.notes)])] if study.notes else sections,
        warnings=find_warnings(compared),
        origins=[origin_text(results["run"], f"{run.model}, seed {run.seed}") for run, results in done],
        left_out=list(skipped.items()),
        data={"study": study.name, "numbers": numbers, "models": {m: _data(study, o) for m, o in outcomes.items()}},
    )


def status_line(runs: Sequence[Planned]) -> str:
    """How many runs are done, and the remaining time."""
    finished = sum(run.results() is not None for run in runs)
    if finished == len(runs):
        return f"All {len(runs)} runs are done."
    left = time_left(runs)
    rest = f"about {runs[0].study.hours:g} h" if left is None else duration(left)
    return f"{finished} of {count(len(runs), 'run')} are done; {rest} of one core left."


def _results(study: Study, outcomes: Mapping[str, Outcome]) -> Section:
    """A row per model and per published one; if there are many measures, a column."""
    places = [ranks(outcomes, measure) for measure in study.measures]
    rows: list[list[Any]] = []
    for model, outcome in outcomes.items():
        columns = zip(study.measures, places, strict=True)
        cells = [_cell(outcome, measure, place.get(model) == 1) for measure, place in columns]
        sizes = [results["parameters"] for _, results in outcome.runs if results]
        size = f"{sizes[0]:,}" if sizes else NONE
        rank = str(places[0].get(model, NONE))
        rows.append(
            [study.models[model].title, outcome.problem or rank, f"{len(outcome.runs)}/{outcome.planned}", size, *cells]
        )
    published = _published(study)
    headers = ["model", "rank", "seeds", "parameters", *(measure.title for measure in study.measures)]
    kinds = {bool(measure.patient) for measure in study.measures}
    units = {False: "seeds", True: "patients (each averaged over seeds)"}
    over = units[kinds.pop()] if len(kinds) == 1 else f"{units[True]} where cases are scored, otherwise over seeds"
    notes = [
        f"Mean and 95 % interval over {over}. Only trained models are ranked, by {study.measures[0].title}.",
        *(f"{model.title}: {model.note}" for model in study.models.values() if model.note),
    ]
    if len(study.measures) <= MOST_COLUMNS:
        groups = [Group(PUBLISHED), *published] if published else []
        return Section("Results", [Table("Results", headers, [*rows, *groups], notes)])
    above = ["", *(row[0] for row in rows), *(Column(row[0], "published") for row in published)]
    turned = list(zip(headers, *rows, *published, strict=True))[1:]
    notes += [f"{PUBLISHED}."] if published else []
    return Section("Results", [Table("Results", above, turned, notes)])


def _published(study: Study) -> list[list[Any]]:
    """Rows of published values; the best of each measure is highlighted."""
    best = [max(m.paper.values(), key=lambda value: m.sign * value, default=None) for m in study.measures]
    rows = []
    for name in dict.fromkeys(name for measure in study.measures for name in measure.paper):
        values = [(m.paper.get(name), DIGITS[m.form], top) for m, top in zip(study.measures, best, strict=True)]
        cells = [Cell(decimal(v, digits), mark="best" if v == top is not None else "") for v, digits, top in values]
        rows.append([study.models[name].title if name in study.models else name, "", "", "", *cells])
    return rows


def _cell(outcome: Outcome, measure: Measure, is_best: bool) -> Cell:
    found = outcome.estimate(measure)
    if found is None:
        return Cell(NONE)
    digits = DIGITS[measure.form]
    note = "" if found.half is None else f"±{found.half:.{digits}f}"
    return Cell(decimal(found.mean, digits), note, "best" if is_best else "")


def _search(study: Study, runs: Sequence[Planned]) -> list[Section]:
    """Validation scores by rate; the chosen one is highlighted."""
    if len(study.rates) == 1:
        return []
    measure, rows = study.measures[0], []
    for model in study.models:
        own = {run.rate: run.results() for run in runs if run.model == model and run.part == "search"}
        final = next((run for run in runs if run.model == model and run.part == "final"), None)
        chosen = final.rate if final is not None and final.is_ready else None
        words = {
            rate: "diverged" if found == {} else decimal(measure.of(found or {}, model), DIGITS[measure.form])
            for rate, found in own.items()
        }
        cells = [Cell(words[rate], mark="best" if rate == chosen else "") for rate in study.rates]
        rows.append([study.models[model].title, *cells])
    text = (
        "Each model was trained briefly at each rate and tested on validation data, with the same settings for all. "
        "The final runs use the best rate."
    )
    headers = ["model", *(f"rate {rate:g}" for rate in study.rates)]
    ends = (min(study.rates), max(study.rates))
    edge = sorted(
        {study.models[run.model].title for run in runs if run.part == "final" and run.is_ready and run.rate in ends}
    )
    if edge:
        text += (
            f" For these models the best rate is the lowest or highest tried, so a better one may lie outside the "
            f"range: {', '.join(edge)}."
        )
    return [Section("Learning-rate search", [Prose(text), Table(f"{measure.title}, validation", headers, rows)])]


def _curves(study: Study, outcomes: Mapping[str, Outcome]) -> list[Section]:
    found = {m: [c for run, _ in o.runs if (c := read_losses(run.folder / "log.jsonl"))] for m, o in outcomes.items()}
    found = {model: curves for model, curves in found.items() if curves}
    if not found:
        return []
    names = [plain(study.models[model].title) for model in found]
    columns = max(1, min(4, LEGEND_WIDTH // max(map(len, names))))
    figure = new_figure(7.6, 3.8 + 0.2 * math.ceil(len(names) / columns))
    panel, handles = figure.subplots(), {}
    for place, (name, curves) in enumerate(zip(names, found.values(), strict=True)):
        style = {"color": COLOURS[place % len(COLOURS)], "linestyle": "-" if place < len(COLOURS) else "--"}
        handles[name] = draw_band(panel, [smooth(curve) for curve in curves], style)
    thin_axes(panel)
    log_scale(panel)
    panel.set(xlabel="step", ylabel="training loss")
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False)
    caption = "Training loss over steps: mean over seeds; the band runs from the lowest to the highest seed."
    return [Section("Learning curves", [Figure("curves", "Learning curves", caption, to_png(figure))])]


def _data(study: Study, outcome: Outcome) -> dict[str, Any]:
    values = {measure.title: outcome.values(measure) for measure in study.measures}
    rates = sorted({run.rate for run, _ in outcome.runs})
    return {"problem": outcome.problem, "rate": rates, "values": values}
