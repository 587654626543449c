"""One run, whatever the task: prepare, train, test, save; and take up a run that stopped.

A task is a subclass of :class:`Experiment`. What is the same for all is here and nowhere else: one process at a time
in a folder, refusal of changed settings, what is written when, and where results come from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from torchsonic.io import follow_umask, read_json, write_json
from torchsonic.lab.metrics import count_parameters
from torchsonic.lab.runs.folder import write_config
from torchsonic.lab.runs.lock import locked
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.settings import complete_settings, merged, plain_settings, public_settings, with_absolute_paths
from torchsonic.lab.training import CheckpointError, Fit, Task, fit, make_fabric, wait_for_first
from torchsonic.lab.training.fabric import on_first
from torchsonic.lab.training.loop import MAY_CHANGE
from torchsonic.models import PretrainedModel

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Experiment", "refuse_changes", "run", "same_settings"]

NO_EFFECT = {"cache_gb", "keep_going", "strict", *MAY_CHANGE}
"""Settings that change neither weights nor scores."""

C = TypeVar("C")
M = TypeVar("M", bound=PretrainedModel)


class Experiment(ABC, Generic[C, M]):
    """What a task supplies: data and network, the task of the loop, the test, and a description.

    Its settings have those of the loop in ``training``; their paths become absolute.
    """

    kind: ClassVar[str]
    """Of :data:`torchsonic.lab.runs.folder.KINDS`."""
    may_change: ClassVar[Collection[str]] = ()
    """Settings that have no effect on the weights, which may be others when a run is resumed."""

    def __init__(self, config: C) -> None:
        self.config = with_absolute_paths(config)
        self.facts: Mapping[str, Mapping[str, Any]] = {}
        """What was found in the data, by the name of the file that is to hold it."""

    @abstractmethod
    def prepare(self, folder: Path, fabric: Fabric, *, show: bool) -> M:
        """Look at the data, complete ``config``, fill ``facts``, and return the untrained network.

        Everything that can be refused is refused here: nothing is written yet.
        """

    @abstractmethod
    def task(self, *, show: bool) -> Task:
        """What the loop asks for: batches, loss and score."""

    @abstractmethod
    def test(self, model: M, *, show: bool) -> dict[str, Any]:
        """Results of the trained network."""

    @abstractmethod
    def describe(self, model: M, result: Fit) -> dict[str, Any]:
        """``task``, ``model`` and whatever else results say of the training."""

    def finish(self, fabric: Fabric) -> None:
        """Gather what processes know, on all of them, when training has ended."""

    def save(self, model: M, folder: Path) -> None:
        """Write the trained network."""
        model.save_pretrained(folder)

    def refuse_changes(self, folder: Path) -> None:
        """Refuse to go on with a run of other settings."""
        before = getattr(self.config, "before", {})
        refuse_changes(folder, plain_settings(self.config), may_change=self.may_change, before=before)


def run(experiment: Experiment, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; goes on where an earlier run in the folder stopped.

    Returns
    -------
    dict
        What ``results.json`` holds; empty on all processes but the first.

    Raises
    ------
    RunLockedError
        If another process is at work in the folder.
    CheckpointError
        If the folder holds a run of other settings or data.
    """
    training = experiment.config.training
    fabric = make_fabric(training)
    fabric.launch()
    with _locked_by_first(fabric, folder):
        show = show and fabric.is_global_zero
        origin = describe_run(seed=training.seed, device=fabric.device)
        model = experiment.prepare(folder, fabric, show=show)
        experiment.refuse_changes(folder)
        fabric.barrier()  # no process may find what the first one is about to write
        if fabric.is_global_zero:
            write_config(folder, experiment.kind, experiment.config)
            origin |= _note_start(folder, origin)
            for name, facts in experiment.facts.items():
                write_json(folder / name, facts)
        result = fit(model, experiment.task(show=show), experiment.config.training, folder, fabric=fabric, show=show)
        experiment.finish(fabric)
        results: dict[str, Any] = {}
        if fabric.is_global_zero:
            experiment.save(model, folder / "model")
            for path in (folder / "model").iterdir():  # safetensors writes weights that only their owner can read
                follow_umask(path)
            results = {**_describe(experiment, model, result), **experiment.test(model, show=show)}
            results |= _origins(folder, origin)
            write_json(folder / "results.json", results)
        wait_for_first(fabric)
    return results


@contextmanager
def _locked_by_first(fabric: Fabric, folder: Path) -> Iterator[None]:
    """Lock the folder, on the first process; what it finds, all raise."""
    with ExitStack() as stack:

        def lock() -> None:
            stack.enter_context(locked(folder))

        on_first(fabric, lock)
        yield


def _describe(experiment: Experiment, model: PretrainedModel, result: Fit) -> dict[str, Any]:
    return {
        "config": public_settings(experiment.config),
        "seconds": result.seconds,
        "samples_per_second": result.step * experiment.config.training.batch / max(result.seconds, 1e-9),
        "parameters": count_parameters(model),
        **experiment.describe(model, result),
    }


def refuse_changes(
    folder: Path, settings: Mapping[str, Any], *, may_change: Collection[str], before: Mapping[str, Any] | None = None
) -> None:
    """Refuse to go on with a run whose ``config.json`` has other settings than those given as JSON holds them.

    Not compared are settings that are younger than the run, unless ``before`` says what it did, and those that have
    no effect on the weights:
    ``may_change``, and some of the loop.
    """
    if not (folder / "checkpoints").exists() or not (folder / "config.json").exists():
        return
    # Those of the loop, too, although it looks for itself: that would be after the configuration is written.
    _compare(merged(before or {}, read_json(folder / "config.json")), settings, {*may_change, *MAY_CHANGE})


def same_settings(saved: Mapping[str, Any], config: Any) -> bool:
    """Whether results with the settings ``saved`` are those that a run of ``config`` would have.

    Not compared is what has no effect on results, and what ``config`` leaves to the data.
    """
    before = plain_settings(complete_settings(type(config), saved, "results"))
    given = {name: value for name, value in plain_settings(config).items() if value is not None}
    try:
        _compare(before, given, NO_EFFECT)
    except CheckpointError:
        return False
    return True


def _compare(saved: Mapping[str, Any], settings: Mapping[str, Any], may_change: Collection[str]) -> None:
    for name, value in settings.items():
        before = saved.get(name, value)
        if name in may_change or before == value or _is_same_path(before, value):
            continue
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            _compare(before, value, may_change)
            continue
        raise CheckpointError(
            f"the run to resume had {name}={before}, not {value}; use the old value or another folder"
        )


def _is_same_path(before: Any, value: Any) -> bool:
    """Whether a path may be the one that an earlier version stored as it was typed, from wherever that was."""
    if not isinstance(before, str) or not isinstance(value, str) or Path(before).is_absolute():
        return False
    parts = [part for part in Path(before).parts if part != ".."]
    return Path(value).is_absolute() and bool(parts) and list(Path(value).parts[-len(parts) :]) == parts


def _note_start(folder: Path, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Write down which commit takes up a run; those of earlier starts, where they are others."""
    path = folder / "commits.json"
    before = read_json(path)["commits"] if path.exists() and (folder / "checkpoints").exists() else []
    commit = f"{origin['commit']} with changes" if origin["dirty"] else str(origin["commit"])
    write_json(path, {"commits": [*(known for known in before if known != commit), commit]})
    others = [known for known in before if known != commit]
    return {"earlier_commits": others} if others else {}


def _origins(folder: Path, run: dict[str, Any]) -> dict[str, Any]:
    """Where results come from: ``run`` trained, and ``tested`` tested again if training was finished before it."""
    try:
        before = read_json(folder / "results.json")["run"]
    except (OSError, ValueError, KeyError):
        return {"run": run}
    return {"run": before, "tested": run}
