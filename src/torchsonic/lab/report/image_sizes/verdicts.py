"""What a report on image sizes concludes, beside the paper's curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torchsonic.lab.metrics import paper_results
from torchsonic.lab.report.image_sizes.results import Curve, SizeReport

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
