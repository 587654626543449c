"""Train on folders of images, test, save; and take up a run again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchsonic.io import write_json
from torchsonic.lab.data.images.files import ImageError
from torchsonic.lab.data.images.folder import Check, ImageFolder, find_images, leave_out_bad
from torchsonic.lab.data.images.store import ImageStore
from torchsonic.lab.metrics import count_flops, count_parameters
from torchsonic.lab.runs.images.config import DEFAULT_MODEL, STORED, ImagesConfig
from torchsonic.lab.runs.images.network import make_model, model_of_run, told_spacing, width_of_pixels
from torchsonic.lab.runs.images.saved_model import CLASSES_NAME, save_model
from torchsonic.lab.runs.images.sizes import score_size
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.resume import origins, refuse_changes
from torchsonic.lab.runs.saved_config import plain_config
from torchsonic.lab.training import CheckpointError, Fit, fit, make_fabric, wait_for_first
from torchsonic.lab.training.batch_statistics import share_batch_statistics
from torchsonic.lab.training.classification import ClassificationTask
from torchsonic.lab.training.fabric import on_first
from torchsonic.lab.training.progress import counting_progress
from torchsonic.models import Classifier

__all__ = ["find_test_images", "run_experiment"]

DECODED = 50_000
"""Most images to learn from that are decoded before training begins; those to test on always are."""
# What may differ when a run resumes, beside settings of the loop: none of it changes the weights.
MAY_CHANGE = {"data", "strict", "cache_gb", "test_images"}


def run_experiment(config: ImagesConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; goes on where an earlier run in the folder stopped.

    The folder gets ``config.json`` (completed), ``classes.json``, ``log.jsonl``, ``checkpoints/``, ``model/`` and
    ``results.json``.

    Returns
    -------
    dict
        What ``results.json`` holds.
    """
    fabric = make_fabric(config.training)
    fabric.launch()
    show = show and fabric.is_global_zero
    run = describe_run(seed=config.training.seed, device=fabric.device)
    asked, config = config, _complete(config)
    store = ImageStore(side=config.stored_side, limit=config.cache_gb * 1e9, strict=config.strict)
    train, test = on_first(fabric, lambda: _find_data(config))
    config = replace(config, check=config.check or ("decode" if len(train) <= DECODED else "header"))
    # What can be refused without reading images is: these may take minutes.
    refuse_changes(folder, plain_config(config), may_change=MAY_CHANGE)
    model, loaded = make_model(config, train.classes)
    if asked.pixel_width not in (None, 1.0) and not model.takes_spacing:
        raise ValueError(f"pixel_width={asked.pixel_width} given, but {config.label} takes no spacing; leave it out")
    told = told_spacing(model, width_of_pixels(config))
    share_batch_statistics(model)
    found = train, test
    train, test, left_out = on_first(fabric, lambda: _look_at_data(*found, config, store, show=show))
    if config.check == "decode" and not fabric.is_global_zero:
        _fill(store, train)
    facts = _facts(config.data, train, test, left_out)
    _refuse_other_images(folder, config, facts)
    folder.mkdir(parents=True, exist_ok=True)
    fabric.barrier()  # no process may find what the first one is about to write
    if fabric.is_global_zero:
        write_json(folder / "config.json", plain_config(config))
        write_json(folder / CLASSES_NAME, facts)
        if show:
            print(f"begins with: {loaded}")
    task = ClassificationTask(
        store,
        train,
        test,
        size=config.image_size,
        batch=config.training.batch,
        seed=config.training.seed,
        changes=config.changes,
        smoothing=config.label_smoothing,
        test_crop=config.test_crop,
        spacing=told,
    )
    result = fit(model, task, config.training, folder, fabric=fabric, show=show)
    replaced = fabric.all_reduce(task.replaced.int().to(fabric.device), reduce_op="sum")
    assert isinstance(replaced, torch.Tensor)
    results: dict[str, Any] = {}
    if fabric.is_global_zero:
        save_model(model, config, train.classes, folder / "model")
        with counting_progress("testing", len(test), show=show) as advance:
            hits = score_size(model, test, config.image_size, crop=config.test_crop, spacing=told, advance=advance)
        results = {
            **_describe(config, model, result, told),
            "weights": loaded,
            "top1": float(np.mean(hits[1])),
            "top5": float(np.mean(hits[5])),
            "images": {"train": len(train), "test": len(test)},
            "left_out": left_out,
            "replaced": [str(train.files[place]) for place in replaced.nonzero().flatten().tolist()],
            **origins(folder, run),
        }
        write_json(folder / "results.json", results)
    wait_for_first(fabric)
    return results


def _complete(config: ImagesConfig) -> ImagesConfig:
    """The configuration with what it leaves open and the images do not decide."""
    side = config.stored_side or round(STORED * config.image_size)
    model = config.model or (DEFAULT_MODEL if config.init is None else model_of_run(Path(config.init)))
    init = None if config.init is None else Path(config.init).as_posix()  # "run/" is "run" when it resumes
    return replace(config, stored_side=side, model=model, init=init, pixel_width=width_of_pixels(config))


def _fill(store: ImageStore, images: ImageFolder) -> None:
    """Decode images that the first process found to be good."""

    def keep(path: Path) -> None:
        with contextlib.suppress(ImageError):  # it is read again when it is needed
            store.keep(path)

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(keep, images.files))


def _find_data(config: ImagesConfig) -> tuple[ImageFolder, ImageFolder]:
    """Images to learn from and to test on, none of them opened."""
    train = find_images(config.data / "train")
    if len(train.classes) < 2:
        raise ValueError(
            f"{config.data / 'train'} holds one class only; there is nothing to tell apart, so add a folder of another"
        )
    return train, find_test_images(config, train.classes)


def _look_at_data(
    train: ImageFolder, test: ImageFolder, config: ImagesConfig, store: ImageStore, *, show: bool
) -> tuple[ImageFolder, ImageFolder, dict[str, str]]:
    """The good images to learn from and to test on, and what was left out."""
    assert config.check is not None
    checks: tuple[Check, Check] = (config.check, "decode")  # a bad test image must not be found after days of training
    left_out: dict[str, str] = {}
    with counting_progress("reading", len(train) + len(test), show=show) as advance:
        parts = []
        for images, how in zip((train, test), checks, strict=True):
            good, bad = leave_out_bad(
                images, check=how, strict=config.strict, keep=lambda _, path: store.keep(path), advance=advance
            )
            parts.append(good)
            left_out |= bad
    return parts[0], parts[1], left_out


def spread(images: ImageFolder, most: int | None) -> ImageFolder:
    """At most so many images, evenly over a sorted folder and so over its classes."""
    if most is None or most >= len(images):
        return images
    return images.take(np.unique(np.linspace(0, len(images) - 1, most).round().astype(int)).tolist())


def _facts(root: Path, train: ImageFolder, test: ImageFolder, left_out: dict[str, str]) -> dict[str, Any]:
    found = Counter(train.labels)
    counts = {name: found[number] for number, name in enumerate(train.classes)}
    # Names relative to the folder, which may be moved.
    names = "\n".join(path.relative_to(root / "train").as_posix() for path in train.files)
    digest = hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest()
    return {
        "classes": list(train.classes),
        "train": counts,
        "files": digest,
        "test": len(test),
        "left_out": left_out,
    }


def _refuse_other_images(folder: Path, config: ImagesConfig, facts: dict[str, Any]) -> None:
    """Refuse to go on with a run of other images."""
    if not (folder / CLASSES_NAME).exists():
        return
    saved = json.loads((folder / CLASSES_NAME).read_text(encoding="utf-8"))
    before = saved["train"]
    if before != facts["train"]:
        raise CheckpointError(
            f"the run to be resumed had {sum(before.values())} training images of {len(before)} classes, not "
            f"{sum(facts['train'].values())} of {len(facts['train'])}; give the old ones or another folder"
        )
    if saved.get("files", facts["files"]) != facts["files"]:
        raise CheckpointError(
            f"the run to be resumed had training images of other names than those in {config.data}; give the old ones "
            "or another folder"
        )


def _describe(
    config: ImagesConfig, model: Classifier, result: Fit, told: float | tuple[float, ...] | None
) -> dict[str, Any]:
    """Settings, costs and last validation of a run; operations are those of an image as the run shows it."""
    device = next(model.parameters()).device
    example = torch.zeros(1, 3, config.image_size, config.image_size, device=device)
    return {
        "task": "images",
        "model": config.label,
        "config": plain_config(config),
        "seconds": result.seconds,
        "data_wait": result.waiting / max(result.seconds, 1e-9),
        "samples_per_second": result.step * config.training.batch / max(result.seconds, 1e-9),
        "parameters": count_parameters(model),
        "flops": count_flops(model, example, **({} if told is None else {"spacing": told})),
        "validation": result.metrics,
    }


def find_test_images(config: ImagesConfig, classes: tuple[str, ...], data: Path | None = None) -> ImageFolder:
    """The images that a run is tested on, or those of another folder with the same classes."""
    return spread(find_images((data or config.data) / "val", classes), config.test_images)
