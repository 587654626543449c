"""A study searches equally, goes on where it stopped, says which commits it mixes, and ranks what is trained alone."""

import json
import shutil
import time
from dataclasses import replace

import pytest
import torch

pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")

from tests import programs
from tests.lab.runs.test_arrays import waves
from torchsonic.cli import main
from torchsonic.io import read_json, write_json
from torchsonic.lab.data.arrays import write_arrays
from torchsonic.lab.report import print_document, to_markdown
from torchsonic.lab.report.study import make_page
from torchsonic.lab.runs.lock import RunLockedError, locked
from torchsonic.lab.runs.run import same_settings
from torchsonic.lab.runs.settings import parse_settings, plain_settings
from torchsonic.lab.runs.synthetic import SyntheticConfig, apply_preset, evaluate_run, make_model
from torchsonic.lab.runs.volumes import VolumesConfig
from torchsonic.lab.studies import Measure, Number, list_studies, plan_runs, read_study, run_study, time_left
from torchsonic.lab.studies.outcome import Outcome, estimate, find_numbers, find_outcomes, ranks
from torchsonic.lab.studies.plan import KINDS
from torchsonic.lab.studies.runner import _train

STUDY = """
title = "Waves"
about = "Slow and fast."
kind = "arrays"
rates = [1e-2, 3e-3]
seeds = [0, 1]
hours = 0.1
[settings]
data = "waves"
rates = [2.0]
training = { steps = 40, batch = 16, log_every = 2, accelerator = "cpu" }
[search]
hold_out = 0.25
training = { steps = 6 }
[models.sonic]
title = "Sonic"
settings = { model = "sonic_sequence", model_options = ["width=8", "strides=1", "num_modes=8"] }
[models.cnn]
title = "Convolutions"
settings = { model = "cnn_sequence", model_options = ["widths=4,4", "strides=2,2"] }
[models.other]
settings = { model = "cnn_sequence" }
package = "a_package_that_nobody_has"
ranked = false
[[measures]]
title = "accuracy, %"
path = ["accuracy"]
form = "percent"
chance = 0.5
paper = { S4 = 99.6 }
[[measures]]
title = "told"
path = ["rows", { rate = 2.0 }, "told"]
only = ["sonic"]
[[numbers]]
name = "waves.accuracy"
models = ["sonic"]
[[numbers]]
name = "waves.gain"
count = "difference"
models = ["sonic", "cnn"]
[[numbers]]
name = "waves.rows_first"
count = "rows_first"
models = ["sonic"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the data, the definition and a finished study."""
    root = tmp_path_factory.mktemp("study")
    (root / "data" / "waves").mkdir(parents=True)
    for part, count, seed in (("train", 60, 0), ("test", 30, 1)):
        write_arrays(root / "data" / "waves" / f"{part}.npz", waves(count, seed=seed))
    (root / "waves.toml").write_text(STUDY)
    study = read_study(str(root / "waves.toml"))
    for part in ("search", "final"):
        for planned in plan_runs(study, root / "out", root / "data"):
            if planned.part == part and not planned.missing:
                planned.train()
    return root


@pytest.fixture(scope="module")
def study(folder):
    return read_study(str(folder / "waves.toml"))


def test_every_model_is_searched_alike_on_validation_data_before_its_seeds(study, tmp_path):
    runs = plan_runs(study, tmp_path, tmp_path)
    search = [run for run in runs if run.part == "search"]
    assert {(run.model, run.rate) for run in search} == {(m, r) for m in study.models for r in study.rates}
    assert all(run.config().hold_out == 0.25 and run.config().training.steps == 6 for run in search)
    final = runs[len(search) :]
    assert [(run.seed, run.model) for run in final] == [(s, m) for s in study.seeds for m in study.models]
    assert not any(run.is_ready for run in final)
    assert all(run.config().hold_out == 0 and run.config().training.steps == 40 for run in final)
    assert time_left(runs) is None


def test_final_runs_take_the_best_rate_of_the_search(study, folder, tmp_path):
    for planned in plan_runs(study, folder / "out", folder / "data"):
        if planned.part == "search" and not planned.missing:
            copy = tmp_path / planned.folder.relative_to(folder / "out")
            copy.mkdir(parents=True)
            results = read_json(planned.folder / "results.json")
            write_json(copy / "results.json", {**results, "accuracy": 1.0 if planned.rate == 3e-3 else 0.5})
    final = [run for run in plan_runs(study, tmp_path, folder / "data") if run.part == "final"]
    assert {run.rate for run in final if not run.missing} == {3e-3}
    assert all(run.is_ready != bool(run.missing) for run in final)


def test_a_diverged_run_is_the_worst_of_its_search_and_not_tried_again(study, folder, tmp_path):
    for planned in plan_runs(study, tmp_path, folder / "data"):
        if planned.part == "search":
            planned.folder.mkdir(parents=True)
            settings = plain_settings(planned.config())
            write_json(planned.folder / "diverged.json", {"reason": "nan", "config": settings})
            assert planned.results() == {}
            other = {**settings, "training": {**settings["training"], "steps": 1 + settings["training"]["steps"]}}
            write_json(planned.folder / "diverged.json", {"reason": "nan", "config": other})
            assert planned.results() is None


def test_only_what_is_not_done_is_trained_and_with_the_same_bits(study, folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "out", tmp_path / "out")
    again = tmp_path / "out" / "final" / "cnn" / "seed1"
    before = (again / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(again)
    said = []
    monkeypatch.setattr("torchsonic.lab.studies.runner.current_commit", lambda: "fedcba98765")
    assert run_study(study, tmp_path / "out", folder / "data", models=["sonic"], say=lambda _: None) == []
    assert not again.exists(), "models that were not asked for are not trained"
    assert run_study(study, tmp_path / "out", folder / "data", say=said.append) == []
    assert len(said) == 2
    assert "new ones will be from fedcba9876" in said[0]
    assert said[1].startswith("7 of 12 runs done")
    assert said[1].endswith("next: final cnn, rate 0.01, seed 1")
    assert (again / "model" / "model.safetensors").read_bytes() == before


def test_a_fault_in_the_code_of_one_run_is_reported_like_any_other_failure(study, folder, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("no gradient")

    monkeypatch.setitem(KINDS, "arrays", (KINDS["arrays"][0], fail))
    planned = plan_runs(study, tmp_path, folder / "data")[0]
    assert _train(planned, torch.get_num_threads()) == "AssertionError: no gradient"


@pytest.mark.parametrize("change", [{"label_smoothing": 0.1}, {"rates": [0.5]}, {"test_samples": 7}])
def test_runs_of_other_settings_are_not_done(study, folder, change):
    """Also those that only change what is tested, which a training that resumes may."""
    other = replace(study, settings={**study.settings, **change})
    assert all(run.results() is None for run in plan_runs(other, folder / "out", folder / "data"))


def test_runs_older_than_a_setting_count_with_what_they_did():
    still = {"augmentation": {"shift": 0.0}}
    saved = plain_settings(VolumesConfig())
    del saved["augmentation"]["shift"]
    assert not same_settings(saved, VolumesConfig())
    assert same_settings(saved, parse_settings(VolumesConfig, still, "test"))
    assert not same_settings({**saved, "fold": 3}, parse_settings(VolumesConfig, still, "test"))
    assert same_settings({**saved, "cache_gb": 1.0}, parse_settings(VolumesConfig, still, "test"))


def test_the_page_has_intervals_ranks_published_numbers_and_what_was_left_out(study, folder):
    page = make_page(study, folder / "out", folder / "data")
    text = to_markdown(page)
    assert "8 of 12 runs" in text
    assert "S4" in text
    assert "needs a_package_that_nobody_has" in text
    assert [figure.name for figure in page.figures] == ["curves"]
    numbers = {number["name"]: number for number in page.data["numbers"]}
    assert numbers["waves.accuracy"]["value"] == 100.0
    assert numbers["waves.accuracy"]["seeds"] == [0, 1]
    assert numbers["waves.accuracy"]["steps"] == [40]
    assert numbers["waves.rows_first"]["value"] == 2
    values = page.data["models"]
    gain = [values["sonic"]["values"]["accuracy, %"][s] - values["cnn"]["values"]["accuracy, %"][s] for s in (0, 1)]
    assert numbers["waves.gain"]["value"] == pytest.approx(sum(gain) / 2)


def test_mixed_commits_are_said(study, folder, tmp_path):
    shutil.copytree(folder / "out", tmp_path / "out")
    path = tmp_path / "out" / "final" / "cnn" / "seed1" / "results.json"
    results = read_json(path)
    results["run"]["earlier_commits"] = ["0123456789abcdef"]
    write_json(path, results)
    warnings = " ".join(make_page(study, tmp_path / "out", folder / "data").warnings)
    assert "Mixed commits" in warnings
    assert "0123456789" in warnings


def test_a_killed_study_leaves_no_run_behind_and_goes_on(folder, tmp_path):
    (tmp_path / "long.toml").write_text(STUDY.replace("steps = 6 }", "steps = 100000, checkpoint_every = 5 }"))
    words = ["-m", "torchsonic.cli", "study", tmp_path / "long.toml", "--out", tmp_path / "out"]
    process = programs.start([*words, "--data", folder / "data"])
    first = tmp_path / "out" / "search" / "sonic" / "rate0.01"
    wait_for(lambda: (first / "checkpoints" / "last.ckpt").exists())
    process.kill()
    process.join()
    wait_for(lambda: is_free(first))
    step = json.loads((first / "log.jsonl").read_text().splitlines()[-1])["step"]
    study = read_study(str(tmp_path / "long.toml"))
    assert time_left(plan_runs(study, tmp_path / "out", folder / "data")) > 0
    assert step > 0


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def is_free(folder):
    try:
        with locked(folder):
            return True
    except RunLockedError:
        return False


ORIGIN = {"command": "torchsonic study", "commit": "0123456789", "dirty": False, "date": "2026-01-01"}


class Logged:
    """A run of which only the log matters."""

    def __init__(self, study, losses):
        self.study, self.losses, self.seed = study, losses, 0

    def config(self):
        return KINDS["arrays"][0]()

    def log(self):
        return [{"step": step, "loss": loss} for step, loss in enumerate(self.losses, start=1)]


@pytest.mark.parametrize(
    ("accuracy", "losses", "problem"),
    [
        (0.95, [1.0] * 20 + [0.1] * 60, ""),
        (0.52, [1.0] * 80, "close to chance"),
        (0.95, [1.0 - 0.01 * step for step in range(80)], "falling steeply"),
    ],
)
def test_what_is_not_trained_has_no_rank(study, accuracy, losses, problem):
    good = Outcome("sonic", ((Logged(study, [1.0] * 20 + [0.1] * 60), {"accuracy": 0.9}),), 1)
    other = Outcome("cnn", ((Logged(study, losses), {"accuracy": accuracy}),), 1)
    assert problem in other.problem
    assert bool(other.problem) == bool(problem)
    places = ranks({"sonic": good, "cnn": other}, study.measures[0])
    assert places == ({"sonic": 1} if problem else {"cnn": 1, "sonic": 2})


def test_the_lowest_cost_is_the_best(study):
    cost = Measure(title="seconds", path=("seconds",), form="cost")
    losses = [1.0] * 20 + [0.1] * 60
    outcomes = {
        model: Outcome(model, ((Logged(study, losses), {"accuracy": 0.9, "seconds": seconds}),), 1)
        for model, seconds in (("sonic", 2.5), ("cnn", 1.5))
    }
    assert cost.of({"seconds": 2.5}) == 2.5
    assert ranks(outcomes, cost) == {"cnn": 1, "sonic": 2}


def test_numbers_count_rows_of_the_paper(study):
    """Three rows: first and at the paper's maximum, near the paper's own value, and neither."""
    values = ({"a": 0.904, "b": 0.878, "c": 0.1}, {"a": 0.8, "b": 0.95, "c": 0.2})
    measures = tuple(
        Measure(title=key, path=(key,), row={"test": key}, paper={"sonic": 0.9, "cnn": best})
        for key, best in (("a", 0.9), ("b", 0.97), ("c", 1.0))
    )
    numbers = tuple(
        Number(name=count, count=count, models=("sonic",), near=0.02)
        for count in ("rows_first", "rows_at_paper_maximum", "rows_near_paper")
    )
    models = {model: study.models[model] for model in ("sonic", "cnn")}
    changed = replace(
        study, models=models, measures=(replace(study.measures[0], path=("a",), chance=0.0), *measures), numbers=numbers
    )
    losses = [1.0] * 20 + [0.1] * 60
    outcomes = {
        model: Outcome(model, ((Logged(changed, losses), {**found, "run": ORIGIN}),), 1)
        for model, found in zip(("sonic", "cnn"), values, strict=True)
    }
    found = {number["name"]: (number["value"], number["of"]) for number in find_numbers(changed, outcomes)}
    assert found == {"rows_first": (1, 3), "rows_at_paper_maximum": (1, 3), "rows_near_paper": (2, 3)}
    alone = {**outcomes, "cnn": Outcome("cnn", (), 1)}
    assert "rows_first" not in {number["name"] for number in find_numbers(changed, alone)}, "its rival has not run"


def test_a_measure_may_lie_elsewhere_for_one_model(study):
    measure = Measure(title="rescaled", path=("dice",), paths={"sonic": ["told"]})
    assert measure.of({"dice": 0.5, "told": 0.9}) == 0.5
    assert measure.of({"dice": 0.5, "told": 0.9}, "sonic") == 0.9


def test_measures_of_another_study_can_be_taken_over_and_changed(tmp_path):
    path = tmp_path / "mine.toml"
    head, rest = STUDY.split("[settings]")
    models = "[settings]" + rest[: rest.index("[[measures]]")]
    changed = '{ title = "rotation 30", paths = { sonic = ["turned"] } }'
    path.write_text(f'{head}measures = ["table1", {changed}]\n{models}')
    theirs, ours = read_study("table1").measures, read_study(str(path)).measures
    assert [measure.title for measure in ours] == [measure.title for measure in theirs]
    assert [m.title for m, other in zip(ours, theirs, strict=True) if m.paths != other.paths] == ["rotation 30"]
    path.write_text(f'{head}measures = ["table7"]\n{models}')
    with pytest.raises(ValueError, match="got 'table7'"):
        read_study(str(path))


def test_unseen_arrangements_are_a_measure_that_the_search_of_halligalli_lacks(tmp_path):
    study = read_study("halligalli")
    measured = {}
    for planned in plan_runs(study, tmp_path, tmp_path):
        if planned.model == "convnet" and planned.seed == 0:
            config = replace(planned.config(), test_samples=4)
            results = evaluate_run(make_model(config), config, show=False)
            measured[planned.part] = {m.title for m in study.measures if m.of(results) is not None}
    assert measured["final"] == {measure.title for measure in study.measures}
    assert measured["search"] == {"clean", "noise 0.1", "noise 0.2"}


def test_patients_are_the_unit_where_a_measure_says_so(study):
    measure = replace(study.measures[0], path=("dice",), form="plain", patient="p[0-9]")
    seeds = [
        {"cases": [{"case": "p1_a", "dice": [0.2, 0.4]}, {"case": "p1_b", "dice": [0.5, None]}]},
        {"cases": [{"case": "p1_a", "dice": [0.1, 0.1]}, {"case": "p2_a", "dice": [0.8, 1.0]}]},
    ]
    outcome = Outcome("sonic", tuple((Logged(study, []), results) for results in seeds), 2)
    assert outcome.values(measure) == pytest.approx({"p1": (0.3 + 0.5 + 0.1) / 3, "p2": 0.9})
    assert outcome.estimate(measure).count == 2


def test_intervals_are_students():
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.303 / 3**0.5)
    assert estimate([1.0]).half is None
    assert estimate([]) is None


def test_the_study_of_the_released_protocol_trains_as_that_protocol_does(tmp_path):
    for planned in plan_runs(read_study("table1_released"), tmp_path, tmp_path):
        config = planned.config()
        usual = apply_preset(SyntheticConfig(protocol="released", model=config.model), "paper")
        found = replace(config.training, seed=0, checkpoint_every=usual.training.checkpoint_every)
        turn = 0.0 if planned.study.models[planned.model].ranked else 180.0
        assert replace(config, training=found) == replace(usual, turn=turn), planned.model


@pytest.mark.parametrize("name", list_studies())
def test_the_studies_of_the_package_can_be_planned(name, tmp_path):
    study = read_study(name)
    assert study.kind in KINDS
    runs = plan_runs(study, tmp_path, tmp_path)
    assert len({run.folder for run in runs}) == len(runs)
    for planned in runs:
        config = planned.config()
        assert config.training.learning_rate == planned.rate
        assert not getattr(config.training, "evaluate_every", 0)  # which would choose weights by the test
    search = [run.config() for run in runs if run.part == "search"]
    assert len({config.training.steps for config in search}) <= 1
    assert len(study.seeds) >= 3
    assert not any(outcome.runs for outcome in find_outcomes(study, runs).values())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("hours = 0.1", ""), "hours"),
        (('form = "percent"', 'form = "share"'), "form must be"),
        (('models = ["sonic"]', 'models = ["nobody"]'), "refers to a model"),
        (("about", "abut"), "abut"),
        (('title = "Waves"', "title = "), "not a study"),
        (("about = ", "# about = "), "study needs the entry 'about'; add it"),
        (("[search]", "[settings.other]"), r"several rates need a \[search\] table"),
        (('only = ["sonic"]', 'only = ["sonnet"]'), "measure told refers to 'sonnet', which is not a model"),
        (('models = ["sonic", "cnn"]', 'models = ["sonic"]'), "waves.gain needs 2 in models, got 1"),
        (('count = "rows_first"', 'count = "rows_first"\nmeasure = "told"'), "waves.rows_first counts rows"),
    ],
)
def test_damaged_studies_are_refused(tmp_path, change, problem):
    (tmp_path / "bad.toml").write_text(STUDY.replace(*change))
    with pytest.raises(ValueError, match=problem):
        read_study(str(tmp_path / "bad.toml"))


def test_unknown_studies_are_refused_with_those_there_are():
    with pytest.raises(ValueError, match="rotated_mnist"):
        read_study("rotated")


def test_commands_list_show_and_summarise(folder, tmp_path, capsys):
    assert main(["study"]) == 0
    assert "rotated_mnist" in capsys.readouterr().out
    words = ["--out", str(folder / "out"), "--data", str(folder / "data")]
    assert main(["study", str(folder / "waves.toml"), *words, "--show"]) == 0
    assert "8 of 12 runs are done" in capsys.readouterr().out
    assert main(["study", str(folder / "waves.toml"), *words, "--models", "sonnet"]) == 1
    assert "'sonnet', only sonic, cnn, other" in capsys.readouterr().err
    assert main(["summary", str(folder / "out" / "report"), "--out", str(tmp_path / "summary.json")]) == 0
    numbers = json.loads((tmp_path / "summary.json").read_text())["numbers"]
    assert [number["name"] for number in numbers] == ["waves.accuracy", "waves.gain", "waves.rows_first"]
    assert {"value", "interval", "seeds", "steps", "command", "commit", "date"} <= set(numbers[0])
    (tmp_path / "report.json").write_text('{"models": []}')
    assert main(["summary", str(tmp_path), "--out", str(tmp_path / "summary.json")]) == 1
    assert "report.json is not the report of a study" in capsys.readouterr().err


def test_many_measures_have_rows_beside_what_was_published(tmp_path, capsys):
    page = make_page(read_study("table1"), tmp_path, tmp_path)
    (table,) = [block for block in page.sections[0].blocks if block.title == "Results"]
    assert table.columns[1].full == "SonicNet"
    assert [row[0] for row in table.rows][:5] == ["rank", "seeds", "parameters", "clean", "distortion 2"]
    published = {column.title: place for place, column in enumerate(table.columns) if column.group == "published"}
    best = {name: table.lines[4][place].mark for name, place in published.items()}
    assert {name for name, mark in best.items() if mark} == {"ConvNet", "SonicNet"}
    assert not any(cell.mark for cell in table.lines[3])
    print_document(page)
    assert "distortion 2" in capsys.readouterr().out  # on one line
