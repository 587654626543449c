"""Which runs make up a row of the table, and which cases they are tested on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchsonic.lab.data.volumes import Case, find_cases
from torchsonic.lab.runs.volumes import VolumesConfig, load_run
from torchsonic.models import PretrainedError, PretrainedModel

__all__ = ["ScoreRow", "TrainedRun", "find_tests", "load_trained", "make_rows"]


@dataclass(frozen=True)
class TrainedRun:
    """A finished run, ready to predict."""

    folder: Path
    model: PretrainedModel
    config: VolumesConfig
    tests: tuple[str, ...]
    learnt: tuple[str, ...]
    origin: dict[str, Any]

    @property
    def row(self) -> str:
        """The model, without fold and seed."""
        return Path(self.config.name).parent.name


@dataclass(frozen=True)
class ScoreRow:
    """A line of the table: a network told the spacing or not, on the cases of all runs that share the line."""

    name: str
    runs: tuple[TrainedRun, ...]
    tell_spacing: bool


def load_trained(folder: Path, device: str) -> TrainedRun:
    """The run in a folder."""
    try:
        model, config = load_run(folder)
        split = json.loads((folder / "split.json").read_text(encoding="utf-8"))
        tests, learnt = tuple(split["test"]), tuple(split["train"])
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, PretrainedError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{folder} holds no finished run on volumes: {error}") from error
    try:
        model = model.to(device).eval()
    except RuntimeError as error:
        raise ValueError(f"device {device}: {error}") from error
    return TrainedRun(folder, model, config, tests, learnt, dict(results.get("run", {})))


def find_tests(runs: Sequence[TrainedRun], external: Path | None, data: Path | None) -> dict[str, Case]:
    """Cases to be predicted, by name."""
    folders = [run.folder.resolve() for run in runs]
    twice = [folder for folder in folders if folders.count(folder) > 1]
    if twice:
        raise ValueError(f"{twice[0]} is given twice; name each run once")
    if external is not None:
        for run in runs:
            seen = _learnt_in(run, external)
            if seen:
                raise ValueError(
                    f"--external {external} holds {seen}, which {run.folder} was trained on; name other cases"
                )
        return {case.name: case for case in find_cases(external)}
    found: dict[str, Case] = {}
    for run in runs:
        folder = data or run.config.data
        here = {case.name: case for case in find_cases(folder)}
        for name in run.tests:
            if name not in here:
                raise ValueError(f"case {name} of {run.folder} is not in {folder}; use --data to say where it is")
            if name in found and found[name] != here[name]:
                raise ValueError(f"case {name} is one in {folder} and another elsewhere; evaluate these runs apart")
            found[name] = here[name]
    if not found:
        raise ValueError(f"{runs[0].folder} has no test cases; use --external to name a folder of cases")
    return dict(sorted(found.items()))


def _learnt_in(run: TrainedRun, folder: Path) -> str | None:
    """A case of a folder that a run has learnt from, known by its file."""
    if not run.config.data.is_dir():
        return None
    files = {file.resolve() for case in find_cases(run.config.data) if case.name in run.learnt for file in case.images}
    return next((case.name for case in find_cases(folder) if {file.resolve() for file in case.images} & files), None)


def make_rows(runs: Sequence[TrainedRun], external: tuple[str, ...] | None) -> list[ScoreRow]:
    """Lines of the table; ``external`` are the names of cases that all runs predict."""
    groups: dict[str, list[TrainedRun]] = {}
    for run in runs:
        groups.setdefault(_settings(run), []).append(run)
    lines: list[tuple[str, list[TrainedRun]]] = []
    for members in groups.values():
        tested = [case for run in members for case in (run.tests if external is None else external)]
        shared = len(set(tested)) == len(tested)  # each case is tested once
        lines += [(members[0].row, members)] if shared else [(f"{r.row} {r.folder.name}", [r]) for r in members]
    names = [name for name, _ in lines]
    rows = []
    for name, members in lines:
        label = name if names.count(name) == 1 else f"{name} ({members[0].folder})"
        if members[0].config.is_told:
            rows += [ScoreRow(f"{label}, {word}", tuple(members), word == "told") for word in ("told", "not told")]
        else:
            rows.append(ScoreRow(label, tuple(members), True))
    return rows


def _settings(run: TrainedRun) -> str:
    """All that runs of a row have in common: everything but which cases are learnt from, and what these decide."""
    training = replace(run.config.training, seed=0)
    return repr(replace(run.config, fold=0, split=None, patch=None, training=training))
