"""All runs behind Table 1, one after another; what is done is not done again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from torchsonic.io import read_json
from torchsonic.lab.runs.protocols import ProtocolName
from torchsonic.lab.runs.synthetic import (
    SyntheticConfig,
    TaskName,
    apply_preset,
    parse_config,
    repeats,
    run_experiment,
)
from torchsonic.lab.training.checkpoint import CheckpointError
from torchsonic.lab.training.loop import MAY_CHANGE

# Of a sample, roughly: HalliGalli has one block instead of four, computed for four pixels.
RELATIVE_COST = {"synthshape": 1.0, "halligalli": 0.02}


def plan_runs(
    preset: str,
    *,
    models: Sequence[Any],
    tasks: Sequence[TaskName],
    protocol: ProtocolName = "own",
    seeds: Sequence[int] = (),
    folds: Sequence[int] = (),
    **changes: int | None,
) -> list[SyntheticConfig]:
    """Configurations in the order of training.

    Seeds and folds are the outer loops: whoever stops half-way has fewer runs of each model, not fewer models.

    Parameters
    ----------
    preset
        ``smoke``, ``demo``, ``quick`` or ``paper``.
    protocol
        Of SynthShape; the released one has no HalliGalli.
    seeds, folds
        By default 0, or all five of each with the preset ``paper``; HalliGalli and the released protocol have no folds.
    changes
        ``steps``, ``batch`` and ``test_samples`` that replace the preset's; ``None`` leaves it.
    """
    usual = [repeats(preset, task, protocol) for task in tasks]
    seeds = seeds or sorted({seed for own, _ in usual for seed in own})
    folds = folds or sorted({fold for _, own in usual for fold in own})
    given = {name: value for name, value in changes.items() if value is not None}
    own = {name: given.pop(name) for name in ("test_samples",) if name in given}
    plan = []
    for seed, fold, task, model in product(seeds, folds, tasks, models):
        if task == "synthshape" or fold == folds[0]:
            number = fold if task == "synthshape" else 0
            config = apply_preset(SyntheticConfig(task=task, model=model, protocol=protocol, fold=number), preset)
            plan.append(replace(config, **own, training=replace(config.training, seed=seed, **given)))
    return plan


def is_finished(config: SyntheticConfig, folder: Path) -> bool:
    """Whether a folder holds the results of just this configuration."""
    try:
        saved = parse_config(read_json(folder / "results.json")["config"])
        return _with_effect(saved) == _with_effect(config)
    except (OSError, ValueError, KeyError):
        return False


def _with_effect(config: SyntheticConfig) -> SyntheticConfig:
    """A configuration with defaults for what has no effect on its results."""
    usual = {option.name: option.default for option in fields(config.training) if option.name in MAY_CHANGE}
    return replace(config, training=replace(config.training, **usual))


def train_all(
    configs: Sequence[SyntheticConfig], out: Path, *, say: Callable[[str], None] = print, show: bool = True
) -> list[str]:
    """Train what is not finished, each in its folder under ``out``.

    Parameters
    ----------
    say
        Takes one line before each run: which it is, and about how long all that is left will take.

    Returns
    -------
    list of str
        Runs that failed, with the reason; the others went on.
    """
    waiting = [config for config in configs if not is_finished(config, out / config.name)]
    if len(waiting) < len(configs):
        say(f"{len(configs) - len(waiting)} of {len(configs)} runs are finished already")
    took: list[tuple[SyntheticConfig, float]] = []
    failed = []
    for number, config in enumerate(waiting):
        left = time_left(took, waiting[number:])
        rest = "" if left is None else f", {duration(left)} left in all"
        say(f"run {number + 1} of {len(waiting)}: {config.name}{rest}")
        start = time.perf_counter()
        try:
            run_experiment(config, out / config.name, show=show)
        except (CheckpointError, FloatingPointError, OSError, ValueError) as error:
            if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # the other processes would wait for this one for ever
                raise
            failed.append(f"{config.name}: {error}")
            say(f"failed: {failed[-1]}")
            continue
        took.append((config, time.perf_counter() - start))
    return failed


def time_left(took: Sequence[tuple[SyntheticConfig, float]], waiting: Iterable[SyntheticConfig]) -> float | None:
    """Seconds that runs will take: as long per sample as earlier runs of that model and task, or of that task, or all.

    Examples
    --------
    >>> time_left([(SyntheticConfig(), 10.0)], [SyntheticConfig(model="vit"), SyntheticConfig()])
    20.0
    """
    if not took:
        return None
    total = 0.0
    for config in waiting:
        same = [(c, s) for c, s in took if (c.task, c.model) == (config.task, config.model)]
        alike = same or [(c, s) for c, s in took if c.task == config.task] or took
        total += _samples(config) * sum(s for _, s in alike) / sum(_samples(c) for c, _ in alike)
    return total


def _samples(config: SyntheticConfig) -> float:
    return config.training.steps * config.training.batch * RELATIVE_COST[config.task]


def duration(seconds: float) -> str:
    """A rough length of time in words.

    Examples
    --------
    >>> duration(20), duration(600), duration(9000)
    ('less than a minute', 'about 10 min', 'about 2.5 h')
    """
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes} min" if minutes < 100 else f"about {minutes / 60:.1f} h"
