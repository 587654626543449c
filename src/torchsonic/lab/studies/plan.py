"""The runs of a study: which are done, and how long the others will take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from torchsonic.io import read_json
from torchsonic.lab.runs import arrays, images, masks, nnunet, synthetic, volumes
from torchsonic.lab.runs.run import same_settings
from torchsonic.lab.runs.settings import merged, parse_settings, with_absolute_paths
from torchsonic.lab.studies.definition import Measure, Study
from torchsonic.lab.training.loggers import read_log

__all__ = ["KINDS", "Planned", "best_rate", "plan_runs", "time_left"]

KINDS: Mapping[str, tuple[type, Callable[..., dict[str, Any]]]] = {
    "arrays": (arrays.ArraysConfig, arrays.run_experiment),
    "images": (images.ImagesConfig, images.run_experiment),
    "masks": (masks.MasksConfig, masks.run_experiment),
    "nnunet": (nnunet.NnunetConfig, nnunet.run_experiment),
    "synthetic": (synthetic.SyntheticConfig, synthetic.run_experiment),
    "volumes": (volumes.VolumesConfig, volumes.run_experiment),
}
"""Settings of a run, and the function that trains and tests it."""
DIVERGED = "diverged.json"


@dataclass(frozen=True)
class Planned:
    """One run of a study."""

    study: Study
    model: str
    part: Literal["search", "final"]
    rate: float
    """Learning rate of the run; for final runs the best one, or the first until the search has finished."""
    seed: int
    folder: Path
    data: Path
    is_ready: bool = True
    """Whether its rate is known."""

    @property
    def missing(self) -> str:
        """The package that is needed but not installed; empty if none."""
        package = self.study.models[self.model].package
        return package if package and find_spec(package) is None else ""

    @property
    def name(self) -> str:
        """Description for the console."""
        return f"{self.part} {self.model}, rate {self.rate:g}, seed {self.seed}"

    def config(self) -> Any:
        """Settings of the run: those of the study, of the search, of the model."""
        settings = merged(self.study.settings, self.study.search if self.part == "search" else {})
        settings = merged(settings, self.study.models[self.model].settings)
        settings = merged(settings, {"training": {"learning_rate": self.rate, "seed": self.seed}})
        if "data" in settings:
            settings["data"] = str(self.data / settings["data"])
        config = parse_settings(KINDS[self.study.kind][0], settings, f"study {self.study.name}, {self.model}")
        return with_absolute_paths(config)

    def train(self) -> dict[str, Any]:
        """Train and test it, or continue where it stopped."""
        return KINDS[self.study.kind][1](self.config(), self.folder, show=False)

    def results(self) -> dict[str, Any] | None:
        """Results of the run, ``{}`` if it diverged; ``None`` if it is not done, or had other settings."""
        config = self.config()
        for name in ("results.json", DIVERGED):
            try:
                found = read_json(self.folder / name)
                if same_settings(found["config"], config):
                    return {} if name == DIVERGED else found
            except (OSError, ValueError, KeyError):
                continue
        return None

    def log(self) -> list[dict[str, Any]]:
        """Lines of its log so far."""
        path = self.folder / "log.jsonl"
        return read_log(path) if path.exists() else []


def plan_runs(study: Study, out: Path, data: Path) -> list[Planned]:
    """All runs in training order: the search, then one seed after another, so that no model gets ahead of others."""
    if study.kind not in KINDS:
        raise ValueError(f"study {study.name}: kind must be one of {', '.join(KINDS)}, got {study.kind!r}")
    models, first = list(study.models), study.seeds[0]
    search = [
        Planned(study, model, "search", rate, first, out / "search" / model / f"rate{rate:g}", data)
        for model in models
        for rate in study.rates
    ]
    best = {model: best_rate(study, [run for run in search if run.model == model]) for model in models}
    final = [
        Planned(
            study, model, "final", best[model] or study.rates[0], seed, out / "final" / model / f"seed{seed}", data,
            is_ready=best[model] is not None,
        )
        for seed in study.seeds
        for model in models
    ]  # fmt: skip
    return [*(search if len(study.rates) > 1 else ()), *final]


def best_rate(study: Study, search: Sequence[Planned]) -> float | None:
    """The rate with the best validation score (the first if tied); ``None`` until the model's search has finished."""
    if len(search) == 1:
        return search[0].rate
    measure: Measure = study.measures[0]
    scores: dict[float, float] = {}
    for run in search:
        if (results := run.results()) is None:
            return None
        value = measure.of(results, run.model)
        scores[run.rate] = float("-inf") if value is None else measure.sign * value
    return max(scores, key=lambda rate: scores[rate])


def time_left(runs: Iterable[Planned]) -> float | None:
    """Remaining seconds of training, from the pace of the model so far, or of all models; ``None`` before any run."""
    runs = list(runs)
    paces: dict[str, list[float]] = {}
    for run in runs:
        if (line := next((line for line in reversed(run.log()) if "seconds" in line), None)) is not None:
            paces.setdefault(run.model, []).append(line["seconds"] / line["step"])
    if not paces:
        return None
    usual = fmean(pace for each in paces.values() for pace in each)
    total = 0.0
    for run in runs:
        if not run.missing and run.results() is None:
            done = max((line["step"] for line in run.log()), default=0)
            pace = fmean(paces[run.model]) if run.model in paces else usual
            total += (run.config().training.steps - done) * pace
    return total
