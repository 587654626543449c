"""The numbers of a report on image sizes as words, the same in all its files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torchsonic.lab.metrics import paper_results
from torchsonic.lab.report.image_sizes.results import Curve, SizeReport

__all__ = [
    "PAPER_TRAIN_SIZE",
    "about_line",
    "accuracy_rows",
    "budget_rows",
    "explanations",
    "loss_rows",
    "paper_curves",
    "title",
    "top5_rows",
    "verdict_lines",
]

PAPER_TRAIN_SIZE = 224
PLAIN = "resnet50"
# What is hoped for at the training size: hardly less accurate than a plain network that is much larger.
MOST_POINTS_LESS, LARGEST_PART = 2.0, 1 / 5
Rows = tuple[list[str], list[list[str]]]


def paper_curves() -> dict[str, dict[int, float]]:
    """The paper's percent lost at each size, by operator."""
    found = dict(paper_results()["imagenet_resolution_degradation_percent"])
    sizes = found.pop("resolutions")
    return {name: dict(zip(sizes, values, strict=True)) for name, values in found.items()}


def title(report: SizeReport) -> str:
    """What the report is about."""
    control = ", rivals also on images resized back" if any(curve.resized for curve in report.curves) else ""
    return f"Accuracy over image sizes{control}"


def about_line(report: SizeReport) -> str:
    """What was tested."""
    sizes = ", ".join(map(str, report.sizes))
    trained = ", ".join(f"{size} px" for size in sorted({run.config.image_size for run in report.runs}))
    return f"{len(report.runs)} runs trained at {trained}, tested on {report.images} images at {sizes} px."


def _header(report: SizeReport) -> list[str]:
    return ["network", *[f"{size} px" for size in report.sizes]]


def accuracy_rows(report: SizeReport) -> Rows:
    """Top-1 of each curve and size, with 95 % intervals."""
    rows = []
    for curve in report.curves:
        cells = [_share(curve, size) for size in report.sizes]
        rows.append([curve.name, *cells])
    return _header(report), rows


def _share(curve: Curve, size: int) -> str:
    point = curve.at(size)
    if point is None:
        return ""
    spread = "" if point.spread is None else f" ± {100 * point.spread:.1f}"
    low, high = point.top1_interval
    return f"{100 * point.top1:.1f}{spread} ({100 * low:.1f} to {100 * high:.1f})"


def top5_rows(report: SizeReport) -> Rows:
    """Top-5 of each curve and size."""
    points = [[curve.at(size) for size in report.sizes] for curve in report.curves]
    rows = [
        [curve.name, *["" if point is None else f"{100 * point.top5:.1f}" for point in line]]
        for curve, line in zip(report.curves, points, strict=True)
    ]
    return _header(report), rows


def loss_rows(report: SizeReport) -> Rows:
    """Percent of top-1 lost relative to the training size, with 95 % intervals; then the paper's.

    Losses of networks trained at another size belong under other sizes: only the figure, over ratios, shows these then.
    """
    rows = []
    for curve in report.curves:
        rows.append([curve.name, *[_loss(curve, size) for size in report.sizes]])
    comparable = all(curve.train_size == PAPER_TRAIN_SIZE for curve in report.curves)
    for name, losses in paper_curves().items() if comparable else ():
        cells = [f"{losses[size]:.1f}" if size in losses else "" for size in report.sizes]
        rows.append([f"paper, {name}, trained at {PAPER_TRAIN_SIZE} px", *cells])
    return _header(report), rows


def _loss(curve: Curve, size: int) -> str:
    point = curve.at(size)
    if point is None:
        return ""
    if size == curve.train_size:
        return "0"
    if math.isnan(point.loss):
        return "-"
    low, high = point.loss_interval
    return f"{point.loss:.1f} ({low:.1f} to {high:.1f})"


def verdict_lines(report: SizeReport) -> list[str]:
    """Of each Sonic network that is told the spacing: where it loses less than the best rival, and what it costs.

    Networks that have learnt too little to lose anything are not compared, nor those of another training size.
    """
    others = [curve for curve in report.curves if not curve.is_sonic]
    lines = []
    for curve in report.curves:
        if not (curve.is_sonic and curve.told) or not others:
            continue
        if not curve.has_learnt:
            lines.append(f"{curve.name}: has learnt too little to be compared.")
            continue
        rivals = [rival for rival in others if rival.has_learnt and rival.train_size == curve.train_size]
        left_out = [rival.name for rival in others if rival not in rivals]
        if left_out:
            reason = "learnt too little or trained at another size"
            lines.append(f"{curve.name}: not compared with {', '.join(left_out)} ({reason}).")
        lines += _cost_lines(curve, rivals)
        pairs = _pairs(curve, rivals)
        if not pairs:
            continue
        less = [size for size, (own, best) in pairs.items() if own < best]
        half = [size for size, (own, best) in pairs.items() if own <= best / 2 and own < best]
        words = [f"{curve.name}: loses less than every rival at {len(less)} of {len(pairs)} sizes"]
        words.append(f"at most half of the best rival's loss at {len(half)}")
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
            f"{curve.train_size} px, with {part:.2f} of its parameters; within {MOST_POINTS_LESS:g} points with at "
            f"most {LARGEST_PART:g}: {'yes' if met else 'no'}."
        )
    return lines


def _pairs(curve: Curve, rivals: Sequence[Curve]) -> Mapping[int, tuple[float, float]]:
    """Percent lost by a curve and by the rival that loses least, at each size but that of training."""
    pairs = {}
    for point in curve.points:
        others = [found.loss for rival in rivals if (found := rival.at(point.size)) and not math.isnan(found.loss)]
        if point.size != curve.train_size and others and not math.isnan(point.loss):
            pairs[point.size] = (point.loss, min(others))
    return pairs


def budget_rows(report: SizeReport) -> Rows:
    """What each network costs and was trained with."""
    headers = ["network", "parameters, M", "GFLOPs", "steps", "batch", "seeds", "training, min", "waiting for data"]
    rows = []
    for curve in report.curves:
        if curve.told or curve.resized:  # the same network as the line before
            continue
        facts = [run.results for run in curve.runs]
        training = curve.runs[0].config.training
        minutes = sum(fact["seconds"] for fact in facts) / len(facts) / 60
        wait = sum(fact["data_wait"] for fact in facts) / len(facts)
        rows.append(
            [
                curve.model,
                f"{facts[0]['parameters'] / 1e6:.3f}",
                f"{facts[0]['flops'] / 1e9:.3g}",
                f"{training.steps:,}",
                str(training.batch),
                ", ".join(str(run.config.training.seed) for run in curve.runs),
                f"{minutes:.1f}",
                f"{100 * wait:.1f} %",
            ]
        )
    return headers, rows


def explanations() -> list[str]:
    """What is counted."""
    return [
        "Every size shows the same square of each scene, resized without aliasing from the file; a network that is "
        "told the spacing hears the training size over the test size.",
        "Percent lost is (top-1 at the training size - top-1) / top-1 at the training size. Intervals are 95 %, over "
        "images: Wilson's for accuracy, a bootstrap for losses, in which an image keeps its answers at both sizes and "
        "those of all seeds; what another seed would change is not in them, but behind the sign ±.",
        "The paper's networks were trained on ImageNet at 224 px for 200,000 steps; ours with the budget below. Only "
        "the shape of the curves can be compared, and sizes as ratios to the training size.",
    ]
