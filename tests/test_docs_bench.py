"""Numbers of speed that pages quote are those of the stored benchmarks."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.goals import speed_up, step_over_floor

ROOT = Path(__file__).parents[1]
FASTER = "step: times faster than"


def stored(name):
    return json.loads((ROOT / "results" / "bench" / f"{name}.json").read_text())


def read(page):
    return " ".join((ROOT / page).read_text().split())


@pytest.fixture(scope="module")
def operator():
    return stored("operator")


@pytest.fixture(scope="module")
def goals(operator):
    """What was measured, by group and quantity."""
    return {(row["group"], row["quantity"]): row["measured"] for row in operator["summary"]}


def span(values, digits):
    low, high = min(values), max(values)
    return f"{low:.{digits}f}", f"{high:.{digits}f}"


def over_convolution(operator):
    low_rank = [record for record in operator["entries"] if record["group"] == "low-rank"]
    return [speed_up(record, "conv3", "train_step", "kept") for record in low_rank]


def test_the_page_on_speed_says_what_was_measured(operator, goals):
    page = read("docs/performance.md")
    border = "step with a border of 16: times faster than 3x3 conv, pages kept"
    for words, quantity in (
        ("times faster than the paper's order, pages kept", f"{FASTER} paper's order, pages kept"),
        ("the same, pages not kept", f"{FASTER} paper's order, pages not kept"),
        ("the same with a border of 16 zeros", border),
        ("float32 error over that of the paper's order, at most", "float32 error / paper's order"),
    ):
        assert f"| {words} | {goals['low-rank', quantity]:.2f} | {goals['equal', quantity]:.2f} |" in page
    quantity = f"{FASTER} 3x3 conv, pages kept"
    few, all_ = goals["low-rank", quantity], goals["equal", quantity]
    low, high = span(over_convolution(operator), 2)
    assert f"3x3(x3) convolution, pages kept | {few:.2f} ({low} to {high}) | {all_:.2f} |" in page
    bordered = goals["low-rank", border]
    assert f"{few:.2f} at M <= C/4 (goal 5), {bordered:.2f} with a border (goal 3), {all_:.2f} at M = C" in page
    over = [step_over_floor(record, "kept") for record in operator["entries"]]
    assert "Step over its floor: {} to {}, goal 1.25".format(*span(over, 2)) in page
    assert f"**{goals['low-rank', 'operations of a 2-D step, one chunk']:.0f} operations, goal 150.**" in page
    again = [
        1 / speed_up(record, "sonic", "train_step", "kept", own="sonic_recompute") for record in operator["entries"]
    ]
    assert "recomputing takes {} to {} times as long".format(*span(again, 2)) in page


def test_other_pages_say_the_same_in_fewer_digits(operator, goals):
    quantity = f"{FASTER} 3x3 conv, pages kept"
    few, all_ = f"{goals['low-rank', quantity]:.1f}x faster", f"{goals['equal', quantity]:.2f}x"
    low, high = span(over_convolution(operator), 1)
    quantity_bordered = "step with a border of 16: times faster than 3x3 conv, pages kept"
    border, all_bordered = (goals[group, quantity_bordered] for group in ("low-rank", "equal"))
    kept, freed = (goals["low-rank", f"{FASTER} paper's order, pages {pages}"] for pages in ("kept", "not kept"))
    equal = goals["equal", f"{FASTER} paper's order, pages kept"]
    pages = ("README.md", "docs/measured.md", "docs/choosing.md", "docs/paper.md")
    readme, measured, choosing, paper = map(read, pages)
    for page in (readme, measured):
        assert f"against a 3x3(x3) convolution | {few} ({low}x to {high}x) |" in page
    assert f"with C modes and wrap-around borders | {border:.1f}x; {all_} |" in measured
    assert f"| with C modes {all_}: the convolution is faster |" in readme
    assert f"a border of 16 zeros | {border:.1f}x | with C modes {all_bordered:.2f}x |" in readme
    assert f"{kept:.1f}x faster ({freed:.1f}x if freed memory is not kept); {equal:.1f}x |" in measured
    assert f"| training step | {few} ({low}x to {high}x) | {all_} |" in choosing
    assert f"{kept:.1f}x faster than the paper's order at M <= C/4, and {equal:.1f}x at M = C" in paper


CONTENDERS = ("sonic", "paper_order", "conv3", "attention")


@pytest.fixture(scope="module")
def roofline():
    """Rows of the predicted times by size and contender."""
    return {(row["size"], row["contender"]): row for row in stored("roofline")["rows"]}


def test_the_table_of_predicted_times_is_that_of_the_stored_ones(roofline):
    page = (ROOT / "docs" / "gpu.md").read_text()
    start = page.index("| Sonic / paper's order / 3x3 convolution / attention |")
    header, _, *lines = page[start:].split("\n\n")[0].splitlines()
    devices = [cell.strip() for cell in header.strip("|").split("|")[1:]]
    assert len(lines) == 5
    for line in lines:
        words, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        channels, modes, *size = re.findall(r"\d+", words)
        name = f"{len(size)}d-{channels}-{modes}-{size[0]}"
        for device, cell in zip(devices, cells, strict=True):
            times = [1e3 * roofline[name, contender]["predicted"][device] for contender in CONTENDERS]
            assert cell == " / ".join(f"{t:.2f}" if t < 10 else f"{t:,.0f}" for t in times), (words, device)


def test_the_table_of_operations_is_that_of_the_stored_counts(roofline):
    page = (ROOT / "docs" / "gpu.md").read_text()
    for words, contender in (
        ("Sonic, Triton", "sonic"),
        ("the paper's order", "paper_order"),
        ("3x3 convolution", "conv3"),
    ):
        row = roofline["2d-64-16-128", contender]
        assert f"| {words} | {row['operations']} | {row['bytes'] / 1e6:,.0f} |" in page


def test_how_far_the_prediction_is_from_the_clock_is_said(roofline):
    longer = {
        contender: [
            row["cpu_measured"] / row["cpu_predicted"] for (_, name), row in roofline.items() if name == contender
        ]
        for contender in CONTENDERS[:3]
    }
    sentence = (
        "a Sonic step takes {} to {} times as long as predicted, one in the paper's order {} to {} times, "
        "and a 3x3 convolution {} to {} times"
    )
    assert sentence.format(*(end for ratios in longer.values() for end in span(ratios, 1))) in read("docs/gpu.md")
    apart = [ours / conv for ours, conv in zip(longer["sonic"], longer["conv3"], strict=True)]
    assert [round(end) for end in (min(apart), max(apart))] == [2, 5], "the page says two to five"
