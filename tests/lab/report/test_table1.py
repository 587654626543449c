"""The report shows what the runs say, whatever state they are in."""

import json
import re
import shutil
import statistics

import pytest

from tests.lab.made_runs import ORIGIN, make_all, make_run
from torchsonic.lab.metrics import paper_results
from torchsonic.lab.report import write_document
from torchsonic.lab.report.runs import find_warnings
from torchsonic.lab.report.table1 import find_runs, make_columns, make_page, make_report, make_table, rank_lines
from torchsonic.lab.report.table1.page import compared_runs

pytest.importorskip("matplotlib")

SCRIPT = "<script>alert(1)</script>"


def columns_of(root):
    return make_columns(find_runs(root)[0])


def warnings_of(columns):
    return find_warnings(compared_runs(columns), repeats="seeds and folds")


def row_of(table, group, label):
    (row,) = [row for row in table.rows if row.group == group and row.label == label]
    return row


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    make_all(root)
    report = make_report(root)
    folder = root / "report"
    return report, folder, write_document(make_page(report), folder)


def test_ours_is_mean_and_sample_deviation_over_runs(tmp_path):
    scores = (0.5, 0.6, 0.9)
    for seed, dice in enumerate(scores):
        make_run(tmp_path, seed=seed, dice=dice)
    cell = row_of(make_table(columns_of(tmp_path)), "SynthShape: Dice", "noise 0.2").cells[0]
    assert cell.ours is not None
    assert cell.ours.mean == pytest.approx(statistics.fmean(scores))
    assert cell.ours.spread == pytest.approx(statistics.stdev(scores))
    assert (cell.ours.count, cell.paper) == (3, 0.79)
    assert cell.difference == pytest.approx(statistics.fmean(scores) - 0.79)


def test_one_run_has_no_spread_and_a_test_of_ours_no_number_of_the_paper(tmp_path):
    make_run(tmp_path)
    table = make_table(columns_of(tmp_path))
    told = row_of(table, "SynthShape: Dice", "rescaling 1.5, given the spacing").cells[0]
    assert told.ours is not None
    assert (told.ours.spread, told.paper, told.difference) == (None, None, None)
    assert row_of(table, "SynthShape: Dice", "clean").cells[0].paper is None


def test_rows_are_the_papers_in_its_order(written):
    report, *_ = written
    paper = [
        (row["test"], float(row["level"]))
        for row in paper_results()["synthshape_halligalli"]["rows"]
        if row["level"] is not None and row["test"] != "halligalli"
    ]
    assert [row.test[:2] for row in report.table.perturbed("synthshape")] == paper
    labels = [row.label for row in report.table.rows if row.group == "HalliGalli: Dice"]
    assert labels == ["clean", "noise 0.1"]


def test_unseen_arrangements_are_rows_and_a_panel_of_their_own(tmp_path):
    from torchsonic.lab.report.table1.figures import draw_levels

    tests = [(test, level) for test in ("halligalli", "unseen arrangements") for level in (0.0, 0.1, 0.2)]
    rows = [{"test": test, "level": level, "dice": 0.5} for test, level in tests]
    make_run(tmp_path, task="halligalli", unseen=0.1, rows=rows)
    table = make_table(make_columns(find_runs(tmp_path)[0]))
    labels = ["clean", "noise 0.1", "noise 0.2"]
    assert [row.label for row in table.rows if row.test] == [*labels, *[f"{x}, unseen arrangements" for x in labels]]
    panels = [panel for panel in draw_levels(table).axes if panel.has_data()]
    assert [panel.get_title() for panel in panels] == ["HalliGalli", "unseen arrangements"]
    assert {panel.get_xlabel() for panel in panels} == {"noise"}


def test_every_model_has_its_column_and_variants_stand_behind(written):
    report, folder, _ = written
    names = [*paper_results()["synthshape_halligalli"]["models"], "SonicNet (norm channel)", "OrbitNet"]
    assert [column.name for column in report.columns] == names
    for text in ((folder / "report.html").read_text(), (folder / "report.md").read_text()):
        assert all(name in text for name in names)
    cells = [cell for row in report.table.rows for cell in row.cells]
    assert len(cells) == len(names) * len(report.table.rows)


def test_rank_counts_places_of_default_models_only(tmp_path):
    make_run(tmp_path, model="sonicnet", dice=0.5)
    make_run(tmp_path, model="sonicnet", norm="channel", dice=0.99)
    assert rank_lines(make_table(columns_of(tmp_path))) == [], "nothing to compare with"
    make_run(tmp_path, model="convnet", dice=0.6)
    alone = str(rank_lines(make_table(columns_of(tmp_path))))
    assert "level with or ahead of ConvNet in 0 of 18 rows" in alone, "of two, one is always first or second"
    make_run(tmp_path, model="vit", dice=0.4)
    line = str(rank_lines(make_table(columns_of(tmp_path))))
    assert "in 18 of 18 rows under perturbation (first in 0, second in 18) among 3 models" in line
    make_run(tmp_path, model="gfnet", dice=0.6)
    assert "in 0 of 18 rows" in str(rank_lines(make_table(columns_of(tmp_path))))


def test_equal_runs_raise_no_warning(written):
    assert make_page(written[0]).warnings == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 50}, "SynthShape: different settings, steps: 50 for ConvNet; 100 for SonicNet."),
        ({"test_samples": 7}, "test samples: 7 for ConvNet"),
        ({"seed": 3}, "seeds and folds differ between models"),
        ({"fold": 2}, "seeds and folds differ between models"),
        ({"run": {**ORIGIN, "commit": "fedcba9876543210"}}, "Mixed commits"),
        ({"run": {**ORIGIN, "dirty": True}}, "Uncommitted changes: 1 of 2 runs"),
        ({"run": {**ORIGIN, "threads": 8}}, "times cannot be compared"),
        ({"run": {**ORIGIN, "busy_cores": 1.5}}, "times are unreliable"),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path, changes, words):
    make_run(tmp_path)
    make_run(tmp_path, model="convnet", **changes)
    (warning,) = warnings_of(columns_of(tmp_path))
    assert words in warning


def test_the_same_seed_twice_is_no_second_run(tmp_path):
    folder = make_run(tmp_path / "a")
    shutil.copytree(folder, tmp_path / "b")
    (warning,) = warnings_of(columns_of(tmp_path))
    assert "repeated seeds and folds, so" in warning


def test_broken_and_unfinished_runs_are_named_and_left_out(tmp_path):
    good = make_run(tmp_path, with_model=True)
    cut = make_run(tmp_path, model="convnet")
    (cut / "results.json").write_text((cut / "results.json").read_text()[:300])
    (make_run(tmp_path, model="vit") / "results.json").unlink()
    make_run(tmp_path, model="niff", rows=[{"test": "noise", "level": 0.1, "dice": float("nan")}])
    (make_run(tmp_path, model="gfnet") / "results.json").write_text('{"task": "synthshape"}')
    (make_run(tmp_path, model="s4nd") / "results.json").write_text("[]")
    other = tmp_path / "other"
    shutil.copytree(good, other)
    (other / "results.json").write_text((good / "results.json").read_text().replace("synthshape", "imagenette"))
    runs, skipped = find_runs(tmp_path)
    assert [tmp_path / run.folder for run in runs] == [good]
    reasons = {str(folder).partition("/")[2].partition("/")[0]: reason for folder, reason in skipped}
    assert "results.json is not valid JSON" in reasons["convnet"]
    assert "not finished" in reasons["vit"]
    assert "not a number" in reasons["niff"]
    assert "has no" in reasons["gfnet"]
    assert "results.json contains a list" in reasons["s4nd"]
    assert len(skipped) == 6
    page = write_document(make_page(make_report(tmp_path)), tmp_path / "report")[0].read_text()
    assert "Left out (6)" in page


def test_a_model_that_cannot_be_read_is_left_out_of_the_examples_alone(tmp_path):
    make_run(tmp_path, with_model=True)
    (make_run(tmp_path, model="convnet", with_model=True) / "model" / "model.safetensors").write_bytes(b"broken")
    report = make_report(tmp_path)
    assert len(report.columns) == 2
    ((folder, reason),) = report.skipped
    assert "convnet" in str(folder)
    assert "not among the examples" in reason


def test_no_runs_is_an_error_that_says_so(tmp_path):
    with pytest.raises(ValueError, match="no finished run"):
        make_report(tmp_path)
    with pytest.raises(ValueError, match="no folder"):
        make_report(tmp_path / "nowhere")


def test_what_runs_say_is_escaped(tmp_path):
    folder = make_run(tmp_path, run={**ORIGIN, "command": f"torchsonic `x` {SCRIPT}", "cpu": SCRIPT})
    results = json.loads((folder / "results.json").read_text())
    results["model"] = f"$m_{{odel}} | {SCRIPT}"
    results["config"]["norm"] = '"><img src=x onerror=alert(1)>'
    results["rows"].append({"test": SCRIPT, "level": 1, "dice": 0.1})
    (folder / "results.json").write_text(json.dumps(results))
    broken = tmp_path / "<b>"
    broken.mkdir()
    (broken / "results.json").write_text("{}")
    written = write_document(make_page(make_report(tmp_path)), tmp_path / "report")
    page, text = (path.read_text() for path in written[:2])
    assert "&lt;script&gt;" in page
    for form in ("<script>alert", "<img src=x", "onerror=alert(1)>"):
        assert form not in page
    outside_code = re.sub(r"(`+).*?\1", "", text)
    assert "<script" not in outside_code
    assert "<img" not in outside_code
    tables = [line for line in text.splitlines() if line.startswith("|")]
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    assert set(cells) == {5, 11}, "a bar in a name makes no new cell"


def test_files_agree_with_the_table(written):
    report, folder, paths = written
    names = {"levels", "curves", "examples_synthshape", "examples_halligalli"}
    assert {path.name for path in paths} == {"report.html", "report.md", "report.json"} | {f"{n}.png" for n in names}
    assert {path.name for path in folder.iterdir()} == {path.name for path in paths}
    data = json.loads((folder / "report.json").read_text())
    assert len(data["runs"]) == len(report.runs) == 30
    assert len(data["table"]["rows"]) == len(report.table.rows)
    place = [column["name"] for column in data["table"]["columns"]].index("SonicNet")
    (cells,) = [row["cells"] for row in data["table"]["rows"] if row["row"] == "noise 0.3"]
    assert cells[place]["ours"] == {"mean": pytest.approx(0.9), "spread": 0.0, "count": 2}
    assert (cells[place]["paper"], cells[place]["difference"]) == (0.6, pytest.approx(0.3))
    page = (folder / "report.html").read_text()
    assert re.search(r'<td class="much better[^"]*">\s*\+0\.30', page)
    assert all(path.stat().st_size > 10_000 for path in paths if path.suffix == ".png")


def test_a_single_task_makes_its_own_part_of_the_report(tmp_path):
    make_run(tmp_path, task="halligalli", with_model=True)
    report = make_report(tmp_path)
    assert {row.group for row in report.table.rows} == {"HalliGalli: Dice", "HalliGalli: cost"}
    assert [figure.name for figure in report.figures] == ["levels", "curves", "examples_halligalli"]
    assert rank_lines(report.table) == []
