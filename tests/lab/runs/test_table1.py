"""One command for all runs: what it plans, what it leaves out, how long it thinks it takes."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch

from tests.lab.made_runs import make_run
from torchsonic.lab.runs.synthetic import MODELS, SyntheticConfig, evaluate_run, make_model, make_task, read_config
from torchsonic.lab.runs.synthetic import test_indices as indices_of_test
from torchsonic.lab.runs.table1 import is_finished, plan_runs, time_left, train_all

TASKS = ("synthshape", "halligalli")


def test_the_papers_protocol_has_five_folds_and_seeds():
    plan = plan_runs("paper", models=MODELS, tasks=TASKS)
    names = {config.name for config in plan}
    assert len(names) == len(plan) == 7 * 5 * 5 + 7 * 5
    assert {config.fold for config in plan if config.task == "halligalli"} == {0}


def test_every_model_gets_the_same_budget():
    for preset in ("smoke", "quick", "paper"):
        for task in TASKS:
            plan = plan_runs(preset, models=MODELS, tasks=[task])
            assert len({(c.training.steps, c.training.batch, c.test_samples) for c in plan}) == 1


def test_half_a_plan_has_all_models():
    plan = plan_runs("quick", models=MODELS, tasks=TASKS, seeds=(3, 4), steps=7)
    assert {config.model for config in plan[: len(plan) // 2]} == set(MODELS)
    assert {config.training.seed for config in plan[: len(plan) // 2]} == {3}
    assert {config.training.steps for config in plan} == {7}


def test_a_run_of_another_configuration_is_not_finished(tmp_path):
    folder = make_run(tmp_path, steps=100)
    config = read_config(folder)
    assert is_finished(config, folder)
    results = json.loads((folder / "results.json").read_text())
    del results["config"]["training"]["momentum"]  # which runs did not have in the beginning
    results["config"]["training"]["workers"] = 3
    (folder / "results.json").write_text(json.dumps(results))
    assert is_finished(config, folder)
    (other,) = plan_runs("smoke", models=["sonicnet"], tasks=["synthshape"])
    assert not is_finished(other, folder)
    (folder / "results.json").write_text("{")
    assert not is_finished(config, folder)
    assert not is_finished(config, tmp_path / "nowhere")


def test_time_left_goes_by_the_nearest_earlier_runs():
    shape, corner = plan_runs("quick", models=["vit"], tasks=TASKS)
    (other,) = plan_runs("quick", models=["gfnet"], tasks=["synthshape"])
    assert time_left([], [shape]) is None
    assert time_left([(shape, 10.0), (other, 30.0)], [shape]) == pytest.approx(10.0)
    assert time_left([(shape, 10.0)], [other]) == pytest.approx(10.0)
    assert time_left([(shape, 10.0)], [corner]) == pytest.approx(10 * 10000 * 32 * 0.02 / 4800)


def test_finished_runs_are_not_trained_again_and_a_failed_one_does_not_stop_the_rest(tmp_path, monkeypatch):
    plan = plan_runs("smoke", models=["convnet", "niff", "vit"], tasks=["halligalli"])
    trained = []

    def run(config, folder, *, show):
        trained.append(config.model)
        if config.model == "niff":
            raise FloatingPointError("the loss became nan")
        make_run(tmp_path, task=config.task, model=config.model)
        results = json.loads((folder / "results.json").read_text())
        results["config"] = asdict(config)
        (folder / "results.json").write_text(json.dumps(results))

    monkeypatch.setattr("torchsonic.lab.runs.table1.run_experiment", run)
    said = []
    (failed,) = train_all(plan, tmp_path, say=said.append)
    assert "niff" in failed
    assert "the loss became nan" in failed
    assert trained == ["convnet", "niff", "vit"]
    assert said[1].startswith("run 2 of 3: halligalli/niff/fold0-seed0, ")
    assert train_all(plan, tmp_path, say=said.append) == [failed]
    assert trained[3:] == ["niff"]
    assert "2 of 3 runs are finished already" in said


def test_held_out_samples_are_neither_learnt_from_nor_of_the_test():
    for task, whole in (("synthshape", 1600), ("halligalli", 20000)):
        usual, search = SyntheticConfig(task=task), SyntheticConfig(task=task, hold_out=0.25)
        held = set(indices_of_test(search))
        assert held <= set(make_task(usual).train)
        assert not held & set(make_task(search).train)
        assert not held & set(indices_of_test(usual))
        assert len(make_task(search).train) == 0.75 * whole


@pytest.mark.parametrize("protocol", ["own", "released"])
def test_turned_training_images_keep_their_labels_and_do_not_depend_on_the_batch(protocol):
    plain, turned = (make_task(SyntheticConfig(protocol=protocol, turn=turn)) for turn in (0.0, 180.0))
    image, _ = turned.batch(1, range(8))
    assert not torch.equal(image, plain.batch(1, range(8))[0])
    assert torch.equal(turned.batch(1, range(5, 8))[0], image[5:])
    if protocol == "released":  # whose tests show black outside, while ours go on with the border's colour
        assert (image[:, :, 0, 0] == 0).all(1).any()
    drawn = turned.data.samples

    def masks(numbers):
        label = drawn(numbers)[1]
        return (label > 0)[:, None].float(), label

    turned.data = SimpleNamespace(samples=masks)
    mask, label = turned.batch(1, range(8))
    assert ((mask[:, 0] > 0.5) == (label > 0)).float().mean() > 0.97
    assert SyntheticConfig(protocol=protocol, turn=45).name.split("/")[1].endswith("-turn45")


def test_answers_at_one_place_are_not_turned():
    with pytest.raises(ValueError, match="turn must be 0 for HalliGalli"):
        SyntheticConfig(task="halligalli", turn=10)


def test_training_never_draws_unseen_arrangements_which_have_scores_of_their_own():
    config = SyntheticConfig(task="halligalli", model="convnet", unseen=0.1, test_samples=4)
    task = make_task(config)
    drawn, unseen = (
        {tuple(row) for row in data.scenes(task.train[:8000])[0].kind}
        for data in (task.data, replace(task.data, left_out=True))
    )
    assert (len(drawn), len(unseen)) == (625 - 62, 62)
    assert not drawn & unseen
    rows = evaluate_run(make_model(config), config, show=False)["rows"]
    tests = [(row["test"], row["level"]) for row in rows]
    assert tests == [(test, level) for test in ("halligalli", "unseen arrangements") for level in (0.0, 0.1, 0.2)]


@pytest.mark.parametrize(("task", "share", "words"), [("synthshape", 0.1, "must be 0"), ("halligalli", 0.6, "0.6")])
def test_unseen_arrangements_are_at_most_half_of_those_of_halligalli(task, share, words):
    with pytest.raises(ValueError, match=f"unseen .*{words}"):
        SyntheticConfig(task=task, unseen=share)
