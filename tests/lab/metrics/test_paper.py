"""The paper's numbers are found by the names that models give."""

import pytest

from torchsonic.lab.metrics import PaperCost, paper_cost, paper_results
from torchsonic.models.registry import MODELS

NAMED = [(name, preset) for name in MODELS for preset in MODELS[name].paper]


@pytest.mark.parametrize(("name", "preset"), NAMED)
def test_every_row_that_a_model_names_is_there(name, preset):
    entry = MODELS[name]
    axes = len(entry.input_size) - 1
    cost = paper_cost(entry.paper[preset], entry.task, axes)
    assert preset == "" or preset in entry.presets
    assert cost.params_millions is not None
    assert (cost.gflops is None) == (axes == 3)


def test_one_name_in_two_tables_is_told_apart_by_the_task():
    assert paper_cost("SonicNet", "segmentation", 2) == PaperCost(0.072, 0.012)
    assert paper_cost("SonicNet", "segmentation", 3) == PaperCost(2.59, None)


def test_a_model_without_a_row_has_no_cost():
    assert paper_cost(None, "classification", 2) == PaperCost(None, None)


@pytest.mark.parametrize("data", ["prostate158", "promis"])
def test_shares_of_findings_agree_with_the_rates_printed_beside_them(data):
    rows = paper_results()["external_validation"][data]
    for place in (0, 1):
        tp, fp, fn = (rows[name][place] for name in ("tp", "fp", "fn"))
        for name, value, slope in (
            ("sensitivity", tp / (tp + fn), 1 / (tp + fn)),
            ("precision", tp / (tp + fp), 1 / (tp + fp)),
            ("f1", 2 * tp / (2 * tp + fp + fn), 2 / (2 * tp + fp + fn)),
        ):
            assert rows[name][place] == pytest.approx(value, abs=0.0055 * slope), name  # shares have two digits


def test_results_are_a_fresh_copy():
    paper_results().clear()
    assert paper_results()
