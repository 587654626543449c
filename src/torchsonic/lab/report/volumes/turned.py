"""The page on runs whose test cases were rotated, or stored with other axis orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchsonic.lab.data.volumes import find_cases
from torchsonic.lab.metrics.results import find_value
from torchsonic.lab.metrics.volumes import bootstrap_mean
from torchsonic.lab.report import Document, Prose, Section, Table
from torchsonic.lab.report.document import NONE, Cell
from torchsonic.lab.report.runs import count, join_values, origin_text
from torchsonic.lab.runs.folder import read_facts
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.volumes import load_run, score_cases
from torchsonic.lab.training.progress import counting_progress

__all__ = ["make_page", "score_run"]

COUNTED = (
    "Mean Dice over classes, then over cases, with a 95 % bootstrap interval. Rotated: each case is rotated about a "
    "random axis, the same for all networks, on a grid large enough for all of it, with linear interpolation; outside, "
    "the border voxels are repeated. Predictions are brought back to the case's own grid and scored there. Stored: the "
    "same voxels with other axis orders and directions."
)
ABOUT = (
    "Orientation given: the network knows how the array lies in space. Not given: it assumes the orientation of the "
    "training cases. Resampled: the array is first resampled along the axes of the training cases, which works for any "
    "network."
)
WAYS = {"told": "given", "untold": "not given", "back": "resampled"}


def score_run(
    folder: Path, *, turns: Sequence[float], storages: int, data: Path | None, most: int | None, device: str
) -> dict[str, Any]:
    """Test a finished run on at most ``most`` of its test cases: unchanged, rotated, and with other axis orders."""
    model, config = load_run(folder)
    model.to(device)
    names = read_facts(folder / "split.json", "test")["test"][:most]
    if not names:
        raise ValueError(f"{folder} has no test cases; name a run with folds, or with a split file that has some")
    here = {case.name: case for case in find_cases(data or config.data)}
    if missing := [name for name in names if name not in here]:
        place = data or config.data
        raise ValueError(f"case {missing[0]} of {folder} is not in {place}; use --data to say where its test cases are")
    config = replace(config, test_turns=tuple(turns), test_storages=storages)
    with counting_progress(f"testing {folder.name}", len(names), show=True) as advance:
        rows = score_cases(model, [here[name] for name in names], config, advance=advance)
    origin = describe_run(seed=config.training.seed, device=next(model.parameters()).device)
    return {
        "run": str(folder),
        "model": config.model,
        "name": config.name.removeprefix("volumes/"),
        "cases": rows,
        "tested": origin,
    }


def make_page(runs: Sequence[Mapping[str, Any]]) -> Document:
    """The page on what :func:`score_run` found."""
    tests = [{key: row[key] for key in ("turn", "storages") if key in row} for row in runs[0]["cases"][0]["turned"]]
    titles = [f"rotated by {t['turn']:g}\u00b0" if "turn" in t else f"stored in {t['storages']} ways" for t in tests]
    rows = []
    for run in runs:
        for way in (way for way in WAYS if way in run["cases"][0]["turned"][0]):
            paths = [("dice",), *(("turned", test, way) for test in tests)]
            found = [[find_value(case, path) for case in run["cases"]] for path in paths]
            rows.append([run["name"], WAYS[way], *map(_cell, found)])
    table = Table("Dice", ["run", "orientation", "unchanged", *titles], rows, left=2)
    return Document(
        title="Rotated volumes, and other axis orders",
        about=f"{count(len(runs), 'run')}; cases: {join_values(len(run['cases']) for run in runs)}. {ABOUT}",
        sections=[Section("Dice", [table, Prose(COUNTED, "remark")])],
        origins=[origin_text(run["tested"]) for run in runs[:1]],
        data={"runs": list(runs)},
    )


def _cell(cases: Sequence[float | None]) -> Cell:
    """Mean over cases."""
    found = bootstrap_mean(case for case in cases if case is not None)
    if found["mean"] is None:
        return Cell(NONE)
    note = "" if found["low"] is None else f"{found['low']:.3f} to {found['high']:.3f}"
    return Cell(f"{found['mean']:.3f}", note)
