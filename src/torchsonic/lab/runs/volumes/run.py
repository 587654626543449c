"""Train on a folder of volumes, test on whole cases, save; and take up a run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from torchsonic.io import write_json
from torchsonic.lab.data.volumes.cases import Case, find_cases
from torchsonic.lab.data.volumes.collection import Collection
from torchsonic.lab.data.volumes.preparation import prepare
from torchsonic.lab.data.volumes.survey import Facts, survey
from torchsonic.lab.metrics import count_parameters
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.resume import origins, refuse_changes
from torchsonic.lab.runs.saved_config import plain_config
from torchsonic.lab.runs.volumes.config import VolumesConfig, read_config
from torchsonic.lab.runs.volumes.plan import complete_config, make_model
from torchsonic.lab.runs.volumes.predict import score_cases
from torchsonic.lab.runs.volumes.split import Split, choose_split
from torchsonic.lab.training import CheckpointError, Fit, fit, make_fabric, wait_for_first
from torchsonic.lab.training.progress import counting_progress
from torchsonic.lab.training.volumes import VolumeTask
from torchsonic.models import PretrainedModel, from_pretrained

__all__ = ["load_run", "run_experiment"]

# What may differ when a run resumes, beside settings of the loop: none of it changes the weights. The names of the
# cases are compared instead of the files that gave them.
MAY_CHANGE = {"data", "split", "folds", "fold", "split_seed", "patient", "keep_going"}
MAY_CHANGE |= {"test_cases", "overlap", "cache_gb", "patch_voxels"}


def run_experiment(config: VolumesConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; goes on where an earlier run in the folder stopped.

    The folder gets ``config.json`` (completed by what the data decide), ``split.json``, ``log.jsonl``,
    ``checkpoints/``, ``model/`` and ``results.json``.

    Returns
    -------
    dict
        What ``results.json`` holds.
    """
    fabric = make_fabric(config.training)
    fabric.launch()
    show = show and fabric.is_global_zero
    run = describe_run(seed=config.training.seed, device=fabric.device)
    cases, split, facts, config, left_out = _look_at_data(config, show=show)
    digests = {fact.name: fact.digest for fact in facts}
    _refuse_changes(folder, config, split, digests)
    folder.mkdir(parents=True, exist_ok=True)
    fabric.barrier()  # no process may find what the first one is about to write
    if fabric.is_global_zero:
        write_json(folder / "config.json", plain_config(config))
        write_json(
            folder / "split.json", {"train": split.train, "test": split.test, "left_out": left_out, "digests": digests}
        )
    volumes = _load_volumes(config, [cases[name] for name in (*split.train, *split.test)], show=show)
    model = make_model(config, facts)
    result = fit(model, _make_task(config, volumes, split), config.training, folder, fabric=fabric, show=show)
    results: dict[str, Any] = {}
    if fabric.is_global_zero:
        model.save_pretrained(folder / "model")
        tested = [cases[name] for name in split.test[: config.test_cases]]
        with counting_progress("testing", len(tested), show=show) as advance:
            rows = score_cases(model, tested, config, advance=advance)
        results = {**_describe(config, model, result), **_summarise(rows), "left_out": left_out, **origins(folder, run)}
        write_json(folder / "results.json", results)
    wait_for_first(fabric)
    return results


def _look_at_data(
    config: VolumesConfig, *, show: bool
) -> tuple[dict[str, Case], Split, list[Facts], VolumesConfig, dict[str, str]]:
    """Cases by name, the split without bad ones, facts of training cases, and the configuration they complete."""
    cases = {case.name: case for case in find_cases(config.data)}
    split = choose_split(
        list(cases),
        file=config.split,
        folds=config.folds,
        fold=config.fold,
        seed=config.split_seed,
        patient=config.patient,
    )
    used = [cases[name] for name in (*split.train, *split.test)]
    with counting_progress("checking", len(used), show=show) as advance:
        facts, num_classes, left_out = survey(
            used, num_classes=config.num_classes, keep_going=config.keep_going, advance=advance
        )
    split = split.without(list(left_out))
    if not split.train:
        raise ValueError(
            f"all {len(left_out)} training cases were left out; the first one: {next(iter(left_out.values()))}"
        )
    facts = [fact for fact in facts if fact.name in split.train]
    return cases, split, facts, complete_config(config, facts, num_classes), left_out


def _refuse_changes(folder: Path, config: VolumesConfig, split: Split, digests: Mapping[str, str]) -> None:
    """Refuse to go on with a run of other settings or cases."""
    refuse_changes(folder, plain_config(config), may_change=MAY_CHANGE)
    if not (folder / "split.json").exists():
        return
    saved = json.loads((folder / "split.json").read_text(encoding="utf-8"))
    before, known = saved["train"], saved.get("digests", {})
    if before != list(split.train):
        changed = sorted(set(before) ^ set(split.train))
        raise CheckpointError(
            f"the run to be resumed had other training cases, {', '.join(changed[:3])} first; "
            "give the old ones or another folder"
        )
    changed = [name for name, digest in digests.items() if known.get(name, digest) != digest]
    if changed:
        raise CheckpointError(
            f"the run to be resumed learnt from other files of {', '.join(changed[:3])}; "
            "give the old ones or another folder"
        )


def _load_volumes(config: VolumesConfig, cases: Sequence[Case], *, show: bool) -> Collection:
    """Prepared volumes, read before training so that processes that prepare data share them."""
    assert config.common_spacing != "median"
    volumes = Collection(
        cases,
        prepare=partial(prepare, spacing=config.common_spacing, normalisation=config.normalisation),
        num_classes=config.num_classes,
        limit=config.cache_gb * 1e9,
        dtype=np.dtype(config.cache_dtype),
    )
    with counting_progress("reading", len(cases), show=show) as advance:
        for case in cases:
            if not volumes.fill(case.name):
                break
            advance()
    return volumes


def _make_task(config: VolumesConfig, volumes: Collection, split: Split) -> VolumeTask:
    assert config.num_classes is not None
    assert config.patch is not None
    return VolumeTask(
        volumes,
        split.train,
        split.test,
        num_classes=config.num_classes,
        patch=config.patch,
        batch=config.training.batch,
        seed=config.training.seed,
        foreground=config.foreground,
        augmentation=config.augmentation,
        tell_spacing=config.is_told,
        scale_by=config.scale_by,
        test_patches=config.test_patches,
    )


def _describe(config: VolumesConfig, model: PretrainedModel, result: Fit) -> dict[str, Any]:
    return {
        "task": "volumes",
        "model": config.model,
        "config": plain_config(config),
        "seconds": result.seconds,
        "samples_per_second": result.step * config.training.batch / max(result.seconds, 1e-9),
        "parameters": count_parameters(model),
        "patches": result.metrics,
    }


def _summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean Dice: over cases, each the mean of its classes, as everywhere; and of each class over its cases."""
    columns = zip(*[row["dice"] for row in rows], strict=True)
    classes = [fmean(known) if (known := [d for d in column if d is not None]) else None for column in columns]
    means = [fmean(known) for row in rows if (known := [dice for dice in row["dice"] if dice is not None])]
    return {"dice": fmean(means) if means else None, "dice_per_class": classes, "cases": list(rows)}


def load_run(folder: Path) -> tuple[PretrainedModel, VolumesConfig]:
    """The trained model of a run and its completed configuration."""
    return from_pretrained(folder / "model"), read_config(folder)
