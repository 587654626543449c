"""The pages of recipes: means as the paper takes them, and its numbers under ours."""

import json
import math

import pytest

from recipes import table2
from recipes.networks import Workplace
from recipes.page import beside_paper
from torchsonic.lab.metrics import paper_results

DATASET = table2.DATASETS["acdc"]


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def make_results(out, *, folds):
    """Scores of five cases in two folds, one of which has no second class, and what the folds cost."""
    words = ["--acdc", "/acdc", "--out", str(out), "--networks", "sonicnet", "--folds", *map(str, folds)]
    place = Workplace(table2.make_options().parse_args(words))
    dice = {"a": [0.9, 0.5], "b": [0.7, None], "c": [0.4, 0.2], "d": [0.6, 0.4], "e": [0.5, 0.3]}
    cases = {
        name: {"scores": [{"class": k + 1, "dice": value, "nsd": value} for k, value in enumerate(values)]}
        for name, values in dice.items()
    }
    model = {"name": "sonicnet", "source": str(out / "predictions" / "ACDC" / "sonicnet"), "cases": cases}
    write(out / "evaluation" / "ACDC" / "report.json", {"models": [model]})
    splits = [{"val": ["a", "b"]}, {"val": ["c", "d", "e"]}, *({"val": []} for _ in range(3))]
    write(place.preprocessed / DATASET.folder / "splits_final.json", splits)
    for fold, seconds in ((0, 3600.0), (1, 7200.0)):
        cost = {"parameters": 2_588_000, "seconds": seconds, "peak_bytes": 10**9 * (fold + 1)}
        write(place.trained(DATASET, "sonicnet") / f"fold_{fold}" / "cost.json", cost)
    return place


def test_scores_are_means_over_cases_then_classes_then_folds(tmp_path):
    place = make_results(tmp_path, folds=[0, 1])
    first = ((0.9 + 0.7) / 2 + 0.5) / 2  # a class that a case does not have is left out
    second = ((0.4 + 0.6 + 0.5) / 3 + (0.2 + 0.4 + 0.3) / 3) / 2
    wanted = 100 * (first + second) / 2
    assert table2._scores(place, DATASET, "sonicnet") == pytest.approx([wanted, wanted])


def test_costs_are_mean_hours_and_the_highest_memory(tmp_path):
    assert make_results(tmp_path, folds=[0, 1]).costs(DATASET, "sonicnet") == [2.588, 1.5, 2.0]


def test_a_page_is_written_without_the_other_data_set(tmp_path):
    place = make_results(tmp_path, folds=[0, 1])
    table2.make_page(place.options)
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["networks"]["sonicnet"]["kits_dsc"] is None
    assert report["networks"]["sonicnet"]["runtime_hours"] == 1.5
    text = (tmp_path / "report" / "report.md").read_text()
    assert "1000 x 250 iterations, SGD 0.01, weight decay 1e-05, batch 2" in text
    for name, numbers in paper_results()["medical_3d"]["rows"].items():
        if name not in table2.PAPER_ROWS.values():
            assert f"| {name} | {numbers[0]:.2f} |" in text, "rows that the paper quotes are quoted"


def test_the_papers_number_stands_under_ours():
    table = beside_paper("T", ["x", "y"], [("a", [1.0, None], [2.0, 3.0]), ("b", [math.nan, 4.0], [None, None])])
    (_, x, y), (_, none, own) = table.lines
    assert (x.text, x.note) == ("1.00", "paper 2.00")
    assert (y.text, y.note) == ("\u2013", "paper 3.00")
    assert (none.text, none.note, own.text) == ("\u2013", "", "4.00")
