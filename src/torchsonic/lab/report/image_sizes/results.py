"""What runs achieve at several image sizes, and what follows from that beside the paper's curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchsonic.lab.data.images.folder import ImageFolder, leave_out_bad
from torchsonic.lab.data.images.store import ImageStore
from torchsonic.lab.metrics import paper_results
from torchsonic.lab.metrics.classification import accuracy_interval, degradation, degradation_interval
from torchsonic.lab.report.runs import group_by, load_runs, read_results
from torchsonic.lab.runs.images import ImagesConfig, find_test_images, load_run, score_sizes
from torchsonic.lab.runs.images.config import Size, rows_and_columns
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.settings import plain_settings
from torchsonic.lab.training.loop import MAY_CHANGE
from torchsonic.lab.training.progress import counting_progress

FEW_TIMES = 3
"""Accuracy over that of guessing, below which there is little to be lost."""
NO_EFFECT = {"seed", "strict", "cache_gb", "check", "test_sizes", *MAY_CHANGE}
"""Settings in which runs of one network may differ and be pooled."""


@dataclass(frozen=True)
class Point:
    """One size; shares of images, percent lost, and 95 % intervals over images."""

    size: Size
    top1: float
    top5: float
    top1_interval: tuple[float, float]
    loss: float
    loss_interval: tuple[float, float]
    spread: float | None
    """Standard deviation of top-1 over runs, where there are several."""


@dataclass(frozen=True)
class RunFacts:
    """One run: where it lies, what it cost, and its hits by size and whether it was told the spacing."""

    folder: Path
    config: ImagesConfig
    results: Mapping[str, Any]
    can_be_told: bool
    num_classes: int
    hits: Mapping[tuple[Size, bool], tuple[NDArray[np.bool_], NDArray[np.bool_]]]

    @property
    def num_images(self) -> int:
        return len(next(iter(self.hits.values()))[0])


@dataclass(frozen=True)
class Curve:
    """A network, given the spacing or not, over sizes; runs that differ only in their seed are pooled."""

    model: str
    told: bool | None
    """``None`` for a network that cannot use the spacing."""
    train_size: int
    points: tuple[Point, ...]
    runs: tuple[RunFacts, ...]
    resized: bool = False
    """Whether images were first resized back to the training size, a control for networks without spacing."""

    @property
    def name(self) -> str:
        """The network, and whether it was given the spacing."""
        control = f", images resized to {self.train_size} px" if self.resized else ""
        return (
            self.model + {None: "", True: ", given the spacing", False: ", not given the spacing"}[self.told] + control
        )

    @property
    def is_sonic(self) -> bool:
        """Whether it is one of ours rather than a rival."""
        return "sonic" in (self.runs[0].config.model or self.model)

    def at(self, size: Size) -> Point | None:
        return next((point for point in self.points if point.size == size), None)

    @property
    def has_learnt(self) -> bool:
        """Whether there is something to be lost: whether it is well above guessing at the training size.

        That is three times guessing or, where classes are few, half of the way from guessing to no mistake.
        """
        point, chance = self.at(self.train_size), 1 / self.runs[0].num_classes
        return point is not None and point.top1 >= min(FEW_TIMES * chance, (1 + chance) / 2)


@dataclass(frozen=True)
class SizeReport:
    """Everything the files show."""

    curves: tuple[Curve, ...]
    runs: tuple[RunFacts, ...]
    images: int
    left_out: Mapping[str, str]
    run: Mapping[str, Any]

    @property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(sorted({point.size for curve in self.curves for point in curve.points}, key=rows_and_columns))


def score_runs(
    folders: Sequence[Path],
    sizes: Sequence[Size],
    *,
    data: Path | None = None,
    control: bool = False,
    strict: bool = False,
    cache_gb: float = 4.0,
    device: str = "cpu",
    show: bool = True,
) -> SizeReport:
    """Test runs at several sizes; images that runs share are decoded once.

    ``data`` is the folder of the images if they have moved since training. With ``control``, networks that cannot use
    the spacing are also tested on images resized back to the training size.
    """
    run = describe_run(seed=0, device=torch.device(device))
    loaded = load_runs(folders, lambda folder: (folder, *load_run(folder), read_results(folder)), "images")
    for folder, _, config, *_ in loaded:
        if data is None and not config.data.is_dir():
            raise ValueError(f"the images of {folder} are no longer in {config.data}; use --data to say where they are")
    images = [find_test_images(config, classes, data) for _, _, config, classes, _ in loaded]
    stores: dict[ImageFolder, tuple[ImageFolder, ImageStore]] = {}
    left_out: dict[str, str] = {}
    found = []
    for (folder, model, config, classes, results), tested in zip(loaded, images, strict=True):
        if tested not in stores:
            store = ImageStore(limit=cache_gb * 1e9)
            with counting_progress("reading", len(tested), show=show) as advance:
                good, bad = leave_out_bad(
                    tested, strict=strict, keep=lambda _, path, store=store: store.keep(path), advance=advance
                )
            stores[tested] = good, store
            left_out |= bad
        good, store = stores[tested]
        options = {"train_size": config.image_size, "crop": config.test_crop, "pixel_width": config.pixel_width or 1.0}
        count = len(good) * len({*sizes, config.image_size})
        with counting_progress(config.label, count, show=show) as advance:
            options |= {"control": control, "store": store, "advance": advance}
            scores = score_sizes(model.to(device), good, sizes, **options)
        hits = {(score.size, score.told): (score.top1, score.top5) for score in scores}
        found.append(RunFacts(folder, config, results, model.takes_spacing, len(classes), hits))
    return SizeReport(tuple(make_curves(found)), tuple(found), found[0].num_images, left_out, run)


def make_curves(runs: Sequence[RunFacts]) -> list[Curve]:
    """Curves of runs, pooled over seeds; first without the spacing, then with it."""
    curves = []
    for members in group_by(runs, lambda run: (run.num_images, *sorted(settings_of(run).items()))).values():
        name, train_size = _name(members[0], runs), members[0].config.image_size
        for told in (False, True):
            if all((train_size, told) in member.hits for member in members):
                kind = told if members[0].can_be_told else None
                points = tuple(_points(members, train_size, told=told))
                curves.append(Curve(name, kind, train_size, points, tuple(members), told and kind is None))
    return curves


def settings_of(run: RunFacts) -> dict[str, str]:
    """What may change the results of a run, as words by name."""
    saved = plain_settings(run.config)
    flat = {**saved, **saved["training"], **saved["changes"], "pixel_width": saved["pixel_width"] or 1.0}
    return {name: str(value) for name, value in flat.items() if name not in {"training", "changes", *NO_EFFECT}}


def _name(run: RunFacts, runs: Sequence[RunFacts]) -> str:
    """The network of a run, and what else tells it from other runs of the same network."""
    same = [settings_of(other) for other in runs if other.config.label == run.config.label]
    words = []
    if len({other.config.image_size for other in runs}) > 1:
        words.append(f"at {run.config.image_size} px")
    for name, value in settings_of(run).items():
        if name not in ("image_size", "stored_side", "pixel_width") and len({other[name] for other in same}) > 1:
            words.append(f"{name.replace('_', ' ')} {value}")
    return " ".join([run.config.label, ", ".join(words)]).strip()


def _points(runs: Sequence[RunFacts], train_size: int, *, told: bool) -> list[Point]:
    sizes = sorted({size for size, _ in runs[0].hits}, key=rows_and_columns)
    pooled = {size: [np.stack([run.hits[size, told][place] for run in runs]) for place in (0, 1)] for size in sizes}
    reference, points = pooled[train_size][0], []
    for size, (top1, top5) in pooled.items():
        mean, each = float(top1.mean()), top1.mean(1)
        point = Point(
            size,
            mean,
            float(top5.mean()),
            accuracy_interval(top1),
            degradation(float(reference.mean()), mean),
            (0.0, 0.0) if size == train_size else degradation_interval(reference, top1),
            float(np.std(each, ddof=1)) if len(each) > 1 else None,
        )
        points.append(point)
    return points


PAPER_TRAIN_SIZE = 224
PLAIN = "resnet50"
# What is hoped for at the training size: hardly less accurate than a plain network that is much larger.
MOST_POINTS_LESS, LARGEST_PART = 2.0, 1 / 5


def paper_curves() -> dict[str, dict[int, float]]:
    """The paper's percent lost at each size, by operator."""
    found = dict(paper_results()["imagenet_resolution_degradation_percent"])
    sizes = found.pop("resolutions")
    return {name: dict(zip(sizes, values, strict=True)) for name, values in found.items()}


def verdict_lines(report: SizeReport) -> list[str]:
    """For each Sonic network with the spacing: where it loses less than all others, and what it costs.

    Networks that have learned too little, or were trained at another size, are not compared.
    """
    others = [curve for curve in report.curves if not curve.is_sonic]
    lines = []
    for curve in report.curves:
        if not (curve.is_sonic and curve.told) or not others:
            continue
        if not curve.has_learnt:
            lines.append(f"{curve.name}: has learned too little to be compared.")
            continue
        rivals = [rival for rival in others if rival.has_learnt and rival.train_size == curve.train_size]
        left_out = [rival.name for rival in others if rival not in rivals]
        if left_out:
            reason = "learned too little, or trained at another size"
            lines.append(f"{curve.name}: not compared with {', '.join(left_out)} ({reason}).")
        lines += _cost_lines(curve, rivals)
        pairs = _pairs(curve, rivals)
        if not pairs:
            continue
        less = [size for size, (own, best) in pairs.items() if own < best]
        half = [size for size, (own, best) in pairs.items() if own <= best / 2 and own < best]
        words = [f"{curve.name}: loses less than every other network at {len(less)} of {len(pairs)} sizes"]
        words.append(f"at most half as much as the best of them at {len(half)}")
        detail = ", ".join(f"{size} px {own:.1f} against {best:.1f}" for size, (own, best) in pairs.items())
        lines.append(f"{'; '.join(words)} ({detail} percent).")
    return lines


def _cost_lines(curve: Curve, rivals: Sequence[Curve]) -> list[str]:
    """A network beside each plain one: accuracy at the training size, and parameters."""
    lines = []
    for plain in rivals:
        own, other = curve.at(curve.train_size), plain.at(plain.train_size)
        if plain.runs[0].config.model != PLAIN or plain.resized or own is None or other is None:
            continue
        points = 100 * (other.top1 - own.top1)
        part = curve.runs[0].results["parameters"] / plain.runs[0].results["parameters"]
        met = points <= MOST_POINTS_LESS and part <= LARGEST_PART
        lines.append(
            f"{curve.model}: {abs(points):.1f} points {'less' if points > 0 else 'more'} than {plain.model} at "
            f"{curve.train_size} px, with {part:.2f} of its parameters. Within {MOST_POINTS_LESS:g} points with at "
            f"most {LARGEST_PART:g} of the parameters: {'yes' if met else 'no'}."
        )
    return lines


def _pairs(curve: Curve, rivals: Sequence[Curve]) -> Mapping[Size, tuple[float, float]]:
    """Percent lost by a curve and by the rival that loses least, at each size but that of training."""
    pairs = {}
    for point in curve.points:
        others = [found.loss for rival in rivals if (found := rival.at(point.size)) and not math.isnan(found.loss)]
        if point.size != curve.train_size and others and not math.isnan(point.loss):
            pairs[point.size] = (point.loss, min(others))
    return pairs
