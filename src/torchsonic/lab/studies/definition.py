"""Definition of a study: the settings of its runs, its models, learning rates and seeds, and its measures."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from torchsonic.lab.metrics.paper import paper_results
from torchsonic.lab.metrics.results import find_value

__all__ = ["Measure", "Model", "Number", "Study", "list_studies", "read_study"]

Form = Literal["plain", "percent", "error", "cost"]
Count = Literal["value", "difference", "rows_first", "rows_at_paper_maximum", "rows_near_paper"]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A column of the report."""

    title: str
    path: tuple[Any, ...]
    """Steps into ``results.json``: names of entries, and tables such as ``{test = "noise", level = 0.1}`` that choose a
    row of a list. A list of numbers at the end stands for its mean."""
    form: Form = "plain"
    """The value; in percent; as an error (1 minus it) in percent; or a cost. The lowest of the last two is best."""
    chance: float = 0.0
    """Score of guessing, in the units of ``results.json``."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """Published values, as printed, by a model of the study or the name of another one."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Test and level of a row of the paper's Table 1, whose values are the published ones."""
    patient: str = ""
    """Regular expression that finds the patient in a case name; intervals are then over patients, not seeds."""
    paths: Mapping[str, Any] = field(default_factory=dict)
    """Other paths by model, for example for one that is given the spacing."""
    only: tuple[str, ...] = ()
    """Models that are measured; all by default."""

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise ValueError(f"form must be one of {', '.join(get_args(Form))}, got {self.form!r}")

    def of(self, results: Mapping[str, Any], model: str = "") -> float | None:
        """The value of a model as printed; ``None`` if the results lack it."""
        found = find_value(results, self.paths.get(model, self.path))
        factor = 1.0 if self.form in ("plain", "cost") else 100.0
        return None if found is None else factor * (1 - found if self.form == "error" else found)

    @property
    def sign(self) -> float:
        """1 if the highest value is best, else -1."""
        return -1.0 if self.form in ("error", "cost") else 1.0


@dataclass(frozen=True, kw_only=True)
class Model:
    """A row of the report."""

    title: str
    settings: Mapping[str, Any]
    """These override the settings of the study."""
    package: str = ""
    """Package that the model needs; it is skipped if this is not installed."""
    paper: str = ""
    """Its name in the paper's Table 1."""
    note: str = ""
    ranked: bool = True
    """Whether it is ranked; it should not be if it was trained on perturbations that others see only in the test."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """A headline number of ``results/summary.json``."""

    name: str
    count: Count = "value"
    """Value of a model; first minus second; or the number of measures for which one of the models is first, reaches the
    best published value, or is within ``near`` of its own published value."""
    models: tuple[str, ...]
    measure: str = ""
    """Title of the measure; the first by default."""
    near: float = 0.0

    def __post_init__(self) -> None:
        if self.count not in get_args(Count):
            raise ValueError(f"count must be one of {', '.join(get_args(Count))}, got {self.count!r}")
        wanted = {"value": 1, "difference": 2}.get(self.count, max(1, len(self.models)))
        if len(self.models) != wanted:
            raise ValueError(f"number {self.name} needs {wanted} in models, got {len(self.models)}")
        if self.measure and self.count not in ("value", "difference"):
            raise ValueError(f"number {self.name} counts rows, so it has no measure; leave it out")


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study, as described by its file."""

    name: str
    title: str
    about: str
    kind: str
    """Of run, see :data:`torchsonic.lab.studies.plan.KINDS`."""
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    hours: float
    """Rough estimate of the core hours of all runs, used until runs have been timed."""
    settings: Mapping[str, Any]
    """Of every run."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Overrides for the learning-rate search: fewer steps, and validation data. Not needed with a single rate."""
    models: Mapping[str, Model]
    measures: tuple[Measure, ...]
    """The first decides the search and the ranks."""
    numbers: tuple[Number, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know."""


def list_studies() -> list[str]:
    """Names of the studies that come with the package."""
    return sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml"))


def read_study(name: str) -> Study:
    """A study by name, or from your own TOML file."""
    if name not in list_studies() and not name.endswith(".toml"):
        raise ValueError(f"there is no study {name!r}; choose from {', '.join(list_studies())}, or give a TOML file")
    try:
        return _parse(Path(name).stem, _load(name))
    except (tomllib.TOMLDecodeError, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{name} is not a study: {error}") from error


def _folder() -> Any:
    return files("torchsonic.lab.studies")


def _load(name: str) -> dict[str, Any]:
    file = Path(name) if name.endswith(".toml") else _folder().joinpath(f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _gather(entries: Sequence[Any]) -> list[dict[str, Any]]:
    """Measures as tables; the name of a built-in study stands for all its measures, which later entries may change."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if isinstance(entry, str) and entry not in list_studies():
            raise ValueError(f"measures must be tables or names of studies, {', '.join(list_studies())}; got {entry!r}")
        for values in _gather(_load(entry)["measures"]) if isinstance(entry, str) else (entry,):
            found[values["title"]] = {**found.get(values["title"], {}), **values}
    return list(found.values())


def _parse(name: str, values: Mapping[str, Any]) -> Study:
    """A study from the contents of its file."""
    values = {"models": {}, "measures": (), **values}
    models = {key: _make(Model, {"title": key, "settings": {}, **value}) for key, value in values["models"].items()}
    names = {model.paper: key for key, model in models.items() if model.paper}
    measures = tuple(_with_row(_make(Measure, value), names) for value in _gather(values["measures"]))
    numbers = tuple(_make(Number, value) for value in values.get("numbers", ()))
    study = _make(Study, {**values, "name": name, "models": models, "measures": measures, "numbers": numbers})
    if not (study.rates and study.seeds and models and measures):
        raise ValueError("rates, seeds, models and measures must not be empty")
    if len(study.rates) > 1 and not study.search:
        raise ValueError(
            "several rates need a [search] table with the settings of the search; add it, or give a single rate"
        )
    known = {measure.title for measure in measures} | {""}
    for measure in measures:
        if foreign := {*measure.only, *measure.paths} - set(models):
            raise ValueError(f"measure {measure.title} refers to {min(foreign)!r}, which is not a model of the study")
    for number in numbers:
        if not set(number.models) <= set(models) or number.measure not in known:
            raise ValueError(f"number {number.name} refers to a model or measure that the study does not have")
    return study


def _with_row(measure: Measure, names: Mapping[str, str]) -> Measure:
    """A measure with the published values of its row, under the models' own names."""
    if not measure.row:
        return measure
    rows = paper_results()["synthshape_halligalli"]["rows"]
    found = [row["values"] for row in rows if all(row[key] == value for key, value in measure.row.items())]
    if len(found) != 1:
        raise ValueError(f"row of {measure.title} must name one row of the paper's Table 1, got {dict(measure.row)}")
    return replace(measure, paper={names.get(name, name): value for name, value in found[0].items()})


def _make(cls: Any, values: Mapping[str, Any]) -> Any:
    known = {entry.name: entry for entry in fields(cls)}
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ValueError(
            f"{cls.__name__.lower()} has no entry {unknown[0]!r}; known entries: {', '.join(sorted(known))}"
        )
    needed = [name for name, entry in known.items() if entry.default is entry.default_factory is MISSING]
    missing = [name for name in needed if name not in values]
    if missing:
        raise ValueError(f"{cls.__name__.lower()} needs the entry {missing[0]!r}; add it")
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
