"""Training on folders of images, and a test at the training size and others."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchsonic.lab.data.images import ImageFolder, find_images, leave_out_bad
from torchsonic.lab.data.images.files import map_images
from torchsonic.lab.data.images.store import ImageStore
from torchsonic.lab.metrics import count_flops
from torchsonic.lab.runs.folder import read_facts
from torchsonic.lab.runs.images import network
from torchsonic.lab.runs.images.config import DEFAULT_MODEL, STORED, ImagesConfig
from torchsonic.lab.runs.images.predict import score_rows, score_size
from torchsonic.lab.runs.images.task import ClassificationTask
from torchsonic.lab.runs.run import Experiment, run
from torchsonic.lab.training import CheckpointError, Fit
from torchsonic.lab.training.batch_statistics import share_batch_statistics
from torchsonic.lab.training.fabric import on_first
from torchsonic.lab.training.progress import counting_progress
from torchsonic.models import Classifier
from torchsonic.models.model_folder import HUB
from torchsonic.models.pretrained import locate

if TYPE_CHECKING:
    from lightning_fabric import Fabric

DECODED = 50_000
"""Most images to learn from that are decoded before training begins; those to test on always are."""


class ImageExperiment(Experiment[ImagesConfig, Classifier]):
    """Classification of photographs; ``classes.json`` holds the classes, how many images each has, and bad ones."""

    kind = "images"
    may_change = ("data", "strict", "cache_gb", "test_images", "test_sizes")
    train: ImageFolder
    test_images: ImageFolder
    store: ImageStore
    told: float | tuple[float, ...] | None
    weights: str
    left_out: dict[str, str]
    loop_task: ClassificationTask
    replaced: list[str]

    def prepare(self, folder: Path, fabric: Fabric, *, show: bool) -> Classifier:
        asked, self.config = self.config, _complete(self.config)
        found = on_first(fabric, lambda: _find_data(self.config))
        check = self.config.check or ("decode" if len(found[0]) <= DECODED else "header")
        self.config = config = replace(self.config, check=check)
        self.store = ImageStore(side=config.stored_side, limit=config.cache_gb * 1e9, strict=config.strict)
        # What can be refused without reading images is: these may take minutes.
        super().refuse_changes(folder)
        model, self.weights = network.make_model(config, found[0].classes)
        if asked.pixel_width not in (None, 1.0) and not model.takes_spacing:
            width = f"pixel_width={asked.pixel_width}"
            raise ValueError(f"{width} given, but {config.label} takes no spacing; leave it out")
        self.told = network.told_spacing(model, network.width_of_pixels(config))
        share_batch_statistics(model)
        looked = on_first(fabric, lambda: _look_at_data(*found, config, self.store, show=show))
        self.train, self.test_images, self.left_out = looked
        if check == "decode" and not fabric.is_global_zero:
            # What the first process found to be good; one that cannot be read here is read again when it is needed.
            deque(map_images(self.store.keep, self.train.files), maxlen=0)
        self.facts = {network.CLASSES_NAME: _facts(config.data, self.train, self.test_images, self.left_out)}
        if show and config.init is not None:
            print(f"starts with: {self.weights}")
        return model

    def refuse_changes(self, folder: Path) -> None:
        super().refuse_changes(folder)
        _refuse_other_images(folder, self.config, self.facts[network.CLASSES_NAME])

    def task(self, *, show: bool) -> ClassificationTask:
        self.loop_task = ClassificationTask(self.store, self.train, self.test_images, self.config, spacing=self.told)
        return self.loop_task

    def finish(self, fabric: Fabric) -> None:
        replaced = fabric.all_reduce(self.loop_task.replaced.int().to(fabric.device), reduce_op="sum")
        assert isinstance(replaced, torch.Tensor)
        self.replaced = [str(self.train.files[place]) for place in replaced.nonzero().flatten().tolist()]

    def save(self, model: Classifier, folder: Path) -> None:
        network.save_model(model, self.config, self.train.classes, folder)

    def test(self, model: Classifier, *, show: bool) -> dict[str, Any]:
        images, config = self.test_images, self.config
        with counting_progress("testing", len(images), show=show) as advance:
            options = {"crop": config.test_crop, "spacing": self.told}
            hits = score_size(model, images, config.image_size, advance=advance, **options)
        with counting_progress(
            "testing sizes", len(config.test_sizes), show=show and bool(config.test_sizes)
        ) as advance:
            width = {"train_size": config.image_size, "pixel_width": network.width_of_pixels(config)}
            rows = score_rows(model, images, config.test_sizes, crop=config.test_crop, advance=advance, **width)
        return {
            "top1": float(np.mean(hits[1])),
            "top5": float(np.mean(hits[5])),
            "rows": rows,
            "images": {"train": len(self.train), "test": len(images)},
            "left_out": self.left_out,
            "replaced": self.replaced,
        }

    def describe(self, model: Classifier, result: Fit) -> dict[str, Any]:
        # Operations are those of an image as the run shows it.
        size, device = self.config.image_size, next(model.parameters()).device
        told = {} if self.told is None else {"spacing": self.told}
        return {
            "task": "images",
            "model": self.config.label,
            "weights": self.weights,
            "data_wait": result.waiting / max(result.seconds, 1e-9),
            "flops": count_flops(model, torch.zeros(1, 3, size, size, device=device), **told),
            "validation": result.metrics,
        }


def run_experiment(config: ImagesConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; see :func:`torchsonic.lab.runs.run.run`."""
    return run(ImageExperiment(config), folder, show=show)


def _complete(config: ImagesConfig) -> ImagesConfig:
    """The configuration with what it leaves open and the images do not decide."""
    side = config.stored_side or round(STORED * config.image_size)
    model = config.model or (DEFAULT_MODEL if config.init is None else network.model_of_run(Path(config.init)))
    init = config.init
    if init is not None and not init.startswith(HUB):
        locate(init)  # a mistyped folder is refused before images are looked at
        init = Path(os.path.abspath(init)).as_posix()  # "run/" is "run" when it resumes, from wherever that is
    return replace(config, stored_side=side, model=model, init=init, pixel_width=network.width_of_pixels(config))


def _find_data(config: ImagesConfig) -> tuple[ImageFolder, ImageFolder]:
    """Images to learn from and to test on, none of them opened."""
    train = find_images(config.data / "train")
    if len(train.classes) < 2:
        raise ValueError(
            f"{config.data / 'train'} has only one class, so there is nothing to tell apart; add another folder"
        )
    if not config.hold_out:
        return train, find_test_images(config, train.classes)
    counts = np.floor(np.arange(len(train) + 1) * config.hold_out)  # evenly over the sorted files and so over classes
    held = np.diff(counts) > 0
    learnt, tested = (train.take(np.flatnonzero(places).tolist()) for places in (~held, held))
    return learnt, spread(tested, config.test_images)


def _look_at_data(
    train: ImageFolder, test: ImageFolder, config: ImagesConfig, store: ImageStore, *, show: bool
) -> tuple[ImageFolder, ImageFolder, dict[str, str]]:
    """The good images to learn from and to test on, and what was left out."""
    assert config.check is not None
    with counting_progress("reading", len(train) + len(test), show=show) as advance:
        look = partial(leave_out_bad, strict=config.strict, keep=lambda _, path: store.keep(path), advance=advance)
        train, bad = look(train, check=config.check)
        test, also_bad = look(test, check="decode")  # a bad one must not be found after days of training
    return train, test, bad | also_bad


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
    classes = {"classes": list(train.classes), "train": counts}
    return {**classes, "files": digest, "test": len(test), "left_out": left_out}


def _refuse_other_images(folder: Path, config: ImagesConfig, facts: Mapping[str, Any]) -> None:
    """Refuse to go on with a run of other images."""
    if not (folder / network.CLASSES_NAME).exists():
        return
    saved = read_facts(folder / network.CLASSES_NAME, "train")
    before = saved["train"]
    if before != facts["train"]:
        raise CheckpointError(
            f"the run to resume had {sum(before.values())} training images of {len(before)} classes, not "
            f"{sum(facts['train'].values())} of {len(facts['train'])}; use the old ones or another folder"
        )
    if saved.get("files", facts["files"]) != facts["files"]:
        raise CheckpointError(
            f"the run to resume had training images with other names than those in {config.data}; use the old ones "
            "or another folder"
        )


def find_test_images(config: ImagesConfig, classes: tuple[str, ...], data: Path | None = None) -> ImageFolder:
    """The images that a run is tested on, or those of another folder with the same classes."""
    return spread(find_images((data or config.data) / "val", classes), config.test_images)
