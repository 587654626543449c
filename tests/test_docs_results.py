"""Numbers that pages quote are those of the report they point to."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = {
    "as trained": "clean",
    "whole scene on 48 x 48": "resolution 0.75",
    "whole scene on 96 x 96": "resolution 1.5",
    "rescaled by 0.75": "rescaling 0.75",
    "rescaled by 1.5 (cut at the border)": "rescaling 1.5",
}


@pytest.fixture(scope="module")
def report():
    return json.loads((ROOT / "results" / "synthshape" / "report.json").read_text())


def cell(report, group, row, model):
    """Our score, the paper's, and how many runs ours is the mean of."""
    names = [column["name"] for column in report["table"]["columns"]]
    (found,) = [entry for entry in report["table"]["rows"] if entry["group"] == group and entry["row"] == row]
    return found["cells"][names.index(model)]


def ours(report, row, model, group="SynthShape: Dice"):
    return f"{cell(report, group, row, model)['ours']['mean']:.3f}"


def read_page(name):
    return " ".join((ROOT / "docs" / name).read_text().split())


def test_what_the_spacing_brings_is_what_was_measured(report):
    page = (ROOT / "docs" / "spacing.md").read_text()
    for words, row in ROWS.items():
        (line,) = re.findall(rf"^\| {re.escape(words)} \|(.*)\|$", page, flags=re.MULTILINE)
        told = None if row == "clean" else f"{row}, told spacing"
        expected = [ours(report, row, "ConvNet")]
        for model in ("S4ND", "SonicNet"):
            expected += [ours(report, row, model), "" if told is None else ours(report, told, model)]
        assert [number.strip() for number in line.split("|")] == expected, words
    runs = {model: cell(report, "SynthShape: Dice", "clean", model)["ours"]["count"] for model in ("SonicNet", "S4ND")}
    assert runs == {"SonicNet": 3, "S4ND": 1}, "the page names the seeds"


def test_the_page_on_the_paper_says_what_the_report_says(report):
    page = read_page("paper.md")
    rank = re.match(
        r"SonicNet is first or second in (\d+) of (\d+) rows .* among 6 models.* it is so in (\d+) of", report["rank"]
    )
    assert rank is not None
    first, rows, papers = rank.groups()
    sentence = (
        f"first or second in {first} of {rows} rows among six models; in the paper, among the same ones, in {papers}"
    )
    assert sentence in page
    place = [column["name"] for column in report["table"]["columns"]].index("SonicNet")
    apart = {
        entry["row"]: entry["cells"][place]["difference"]
        for entry in report["table"]["rows"]
        if entry["group"] == "SynthShape: Dice" and entry["cells"][place]["difference"] is not None
    }
    lowest, highest = min(apart, key=apart.get), max(apart, key=apart.get)
    assert (lowest, highest) == ("rescaling 1.5", "noise 0.3")
    assert (
        f"between {-apart[lowest]:.2f} of Dice below the paper's (rescaling by 1.5) and {apart[highest]:.2f} above"
        in page
    )
    group = "HalliGalli: Dice"
    clean, noisy = (float(ours(report, row, "SonicNet", group)) for row in ("clean", "noise 0.1"))
    assert f"One Sonic block reaches {clean:.2f}, and {noisy:.2f} under noise" in page
    assert f"NIFF stays at chance here ({float(ours(report, 'clean', 'NIFF', group)):.2f};" in page
    assert f"{float(ours(report, 'clean', 'ViT')):.2f} on clean shapes" in page
