"""Numbers and sentences as text, alike for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchsonic.lab.report.catalogue import NOTES as COST_NOTES
from torchsonic.lab.report.table1.collect import Run
from torchsonic.lab.report.table1.table import Cell, Estimate, Row

if TYPE_CHECKING:
    from torchsonic.lab.report.table1.write import Report

__all__ = ["NONE", "about_line", "best_places", "difference_words", "number_words", "origin_words", "paper_words"]

NONE = "\u2013"
MINUS, TIMES = "\u2212", "\u00d7"
DIGITS = {"dice": 3, "parameters": 3, "flops": 3, "seconds": 0, "samples_per_second": 1}
EXPLANATIONS = (
    "Ours: mean over runs, with the standard deviation (of a sample) and the number of runs where there are several. "
    "Paper: the number printed there, mean over its folds and seeds, at its own budget. "
    "Difference: ours less the paper's for Dice, ours divided by the paper's for costs.",
    "A variant of a model, named in brackets, stands beside the paper's one number for that model.",
    "Dice leaves the background out, as in the paper, and takes all pixels of the test together. HalliGalli counts the "
    "central patch only, over both classes: a constant answer scores about 0.33, a random one about 0.5.",
    "HalliGalli asks whether one block can read and combine the corners, not whether it generalises: training sees all "
    "625 scenes, with noise of its own, of 0 to 0.12. The test's noise, 0.1, is in that range; whether the paper "
    "trained with noise is not known.",
    "Told the spacing: the rescaled image comes with its true pixel spacing, for models that can use it; the paper has "
    "no such test. Resolution: the whole scene rendered with 0.75 and 1.5 times as many pixels on each axis, ours too; "
    "rescaling 1.5 shows the middle of the image only, so that shapes are cut at its border.",
    *COST_NOTES[:1],
    "The paper's GFLOPs are twice its GMACs, which fit an image of 32 x 32 pixels; ours is 64 x 64.",
)


def number_words(estimate: Estimate | None, kind: str) -> str:
    """Mean, spread and number of runs."""
    if estimate is None:
        return NONE
    digits = DIGITS[kind]
    mean = f"{estimate.mean:.{digits}f}"
    if estimate.spread is None or kind in ("parameters", "flops"):
        return mean
    return f"{mean} ± {estimate.spread:.{digits}f} ({estimate.count})"


def paper_words(cell: Cell, kind: str) -> str:
    """The paper's number, with the digits it is printed with."""
    if cell.paper is None:
        return NONE
    return f"{cell.paper:.2f}" if kind == "dice" else f"{cell.paper:.3f}"


def difference_words(cell: Cell, kind: str) -> str:
    """Signed difference of scores, or ratio of costs."""
    if cell.difference is None or cell.ours is None or not cell.paper:
        return NONE
    if kind != "dice":
        return f"{TIMES}{cell.ours.mean / cell.paper:.2f}"
    text = f"{abs(cell.difference):.2f}"
    sign = "±" if float(text) == 0 else "+" if cell.difference > 0 else MINUS
    return sign + text


def best_places(row: Row) -> set[int]:
    """Columns whose score is the highest of ours, as printed."""
    if row.kind != "dice":
        return set()
    scores: Mapping[int, float] = {n: round(c.ours.mean, DIGITS["dice"]) for n, c in enumerate(row.cells) if c.ours}
    return {place for place, score in scores.items() if score == max(scores.values())} if len(scores) > 1 else set()


def origin_words(run: Run) -> str:
    """Commit, seed, date and machine of a run, in what is known of them."""
    origin = run.origin
    commit = str(origin.get("commit") or "unknown")[:10]
    words = [f"commit {commit}{' with uncommitted changes' if origin.get('dirty') else ''}"]
    words.append(f"seed {run.training.get('seed', NONE)}, fold {run.fold}")
    words += [str(origin[name]) for name in ("date", "cpu") if origin.get(name)]
    words += [f"threads {origin['threads']}"] if origin.get("threads") else []
    words += [f"torch {origin['torch']}"] if origin.get("torch") else []
    return ", ".join(words)


def about_line(report: Report) -> str:
    """How many runs of how many models."""
    count, models = len(report.runs), len(report.columns)
    skipped = f", {report.num_left_out} left out" if report.num_left_out else ""
    return (
        f"{count} {'run' if count == 1 else 'runs'}{skipped}; {models} {'column' if models == 1 else 'columns'}. "
        f"Written {report.date} by torchsonic {report.version}."
    )
