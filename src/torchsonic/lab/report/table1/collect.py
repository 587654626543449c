"""The runs under a folder, as the columns of a table: one column for each model and each way of building it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from torchsonic.lab.metrics.paper import paper_results
from torchsonic.lab.report.runs import group_by, read_results
from torchsonic.lab.report.style import read_losses
from torchsonic.lab.runs.protocols import OWN
from torchsonic.lab.runs.released import RELEASED
from torchsonic.lab.runs.synthetic import PROTOCOLS, SyntheticConfig, TaskName, usual_settings

# Runs of another protocol are another task: their numbers share no row with ours.
TASKS = {"synthshape": OWN.title, "released": RELEASED.title, "halligalli": "HalliGalli"}
NOT_THE_MODEL = {"task", "model", "protocol", "fold", "test_samples", "training"}
DEFAULTS = {option.name: option.default for option in fields(SyntheticConfig)}
COSTS = ("parameters", "flops", "seconds", "samples_per_second")

Test = tuple[str, float, bool]
"""Name of a test, its level, and whether the model was given the spacing."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One finished run."""

    folder: Path
    """Within the folder that was searched."""
    task: str
    model: str
    config: Mapping[str, Any]
    costs: Mapping[str, float]
    """Some of :data:`COSTS`; what was not measured is missing."""
    scores: Mapping[Test, float]
    """Dice; the clean test of SynthShape is ``("clean", 0.0, False)``."""
    losses: tuple[tuple[int, float], ...]
    """Step and loss, from the log."""
    origin: Mapping[str, Any]
    """Command, commit, seed and machine."""

    @property
    def training(self) -> Mapping[str, Any]:
        return self.config["training"]

    @property
    def fold(self) -> int:
        """The fold held out."""
        return self.config.get("fold", 0)

    @property
    def options(self) -> tuple[tuple[str, Any], ...]:
        """Options of the network that differ from the defaults; lists as text, so that columns can be grouped."""
        usual = {**DEFAULTS, **usual_settings(self.config.get("protocol", "own"), self.model)}
        changed = {
            name: json.dumps(value) if isinstance(value, list | dict) else value
            for name, value in self.config.items()
            if name not in NOT_THE_MODEL and value != usual.get(name)
        }
        return tuple(sorted(changed.items()))


@dataclass(frozen=True)
class Column:
    """All runs of a model, of both tasks."""

    name: str
    """As the paper writes it, with the options that are not the default ones."""
    paper: str | None
    """The paper's column to compare with; it has one for each model, beside which variants stand too."""
    model: str
    options: tuple[tuple[str, Any], ...]
    runs: tuple[Run, ...]

    @property
    def is_default(self) -> bool:
        """Whether this is the model of the paper's column rather than a variant."""
        return not self.options

    def of(self, task: str) -> tuple[Run, ...]:
        """The runs of one task."""
        return tuple(run for run in self.runs if run.task == task)


def find_runs(root: Path) -> tuple[list[Run], list[tuple[Path, str]]]:
    """All finished runs under a folder, in order of their paths, and the folders left out with the reason."""
    runs, skipped = [], []
    for folder in sorted({path.parent for name in ("results.json", "config.json") for path in root.rglob(name)}):
        here = folder.relative_to(root)
        try:
            if (folder / "results.json").exists():
                runs.append(_read(folder, here))
            elif not (folder.parent / "config.json").exists():  # else it is the model of a run
                skipped.append((here, "not finished: there is no results.json yet"))
        except KeyError as error:
            skipped.append((here, f"results.json has no {error}"))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            skipped.append((here, " ".join(str(error).removeprefix(f"{folder}{os.sep}").split())))
    return runs, skipped


def _read(folder: Path, here: Path) -> Run:
    results = read_results(folder)
    task, config = results["task"], results["config"]
    if task not in get_args(TaskName):
        raise ValueError(f"a run on {task}; use torchsonic {'report' if task == 'masks' else 'evaluate'} RUN")
    if config.get("protocol", "own") not in PROTOCOLS:
        raise ValueError(f"results.json: protocol is {config['protocol']!r}, which this version does not know")
    task = "released" if config.get("protocol") == "released" else task
    scores = {} if task == "halligalli" else {("clean", 0.0, False): _number(results["clean"], "clean")}
    for row in results["rows"]:
        test, level = str(row["test"]), _number(row["level"], "level")
        scores[test, level, False] = _number(row["dice"], f"{test} {level:g}")
        if row.get("told") is not None:
            scores[test, level, True] = _number(row["told"], f"{test} {level:g}")
    for name in ("steps", "batch", "seed"):
        _number(config["training"][name], name)
    _number(config.get("fold", 0), "fold")
    return Run(
        folder=here,
        task=task,
        model=str(results["model"]),
        config=config,
        costs={name: _number(results[name], name) for name in COSTS if results.get(name) is not None},
        scores=scores,
        losses=read_losses(folder / "log.jsonl"),
        origin=dict(results.get("run", {})),
    )


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"results.json: {name} is {value!r}, not a number")
    return value


def make_columns(runs: Iterable[Run]) -> list[Column]:
    """Columns in the paper's order; behind a model its variants, and at the end what the paper does not have."""
    names = {name.lower(): name for name in paper_results()["synthshape_halligalli"]["models"]}
    order = {model: place for place, model in enumerate(names)}
    shown = names | {"orbitnet": "OrbitNet"}
    columns = []
    for (model, options), members in group_by(runs, lambda run: (run.model, run.options)).items():
        words = ", ".join(f"{option} {value}" for option, value in options)
        name = shown.get(model, model) + (f" ({words})" if words else "")
        columns.append(Column(name, names.get(model), model, options, tuple(members)))
    return sorted(columns, key=lambda column: (order.get(column.model, len(order)), bool(column.options), column.name))
