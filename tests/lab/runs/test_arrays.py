"""Runs on arrays: they learn, resume with the same bits, hold samples out, and are tested at other rates."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")

from torchsonic.cli import main
from torchsonic.io import read_json, write_json
from torchsonic.lab.data.arrays import Arrays, write_arrays
from torchsonic.lab.runs.arrays import (
    ArrayExperiment,
    ArraysConfig,
    ArrayTask,
    load_run,
    run_experiment,
    score_rates,
    split_arrays,
)
from torchsonic.lab.runs.settings import plain_settings
from torchsonic.lab.training import CheckpointError, TrainingConfig


def waves(count, *, seed):
    """Signals of two classes: slow and fast waves of any phase."""
    generator = np.random.default_rng(seed)
    label, time = generator.integers(0, 2, count), np.arange(32) / 32
    phase = generator.uniform(0, 2 * np.pi, (count, 1))
    x = np.cos(2 * np.pi * (2 + 4 * label[:, None]) * time + phase).astype(np.float32)
    return Arrays(torch.from_numpy(x[:, None]), torch.from_numpy(label))


@pytest.fixture(scope="module")
def signals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signals")
    for part, count, seed in (("train", 60, 0), ("test", 30, 1)):
        write_arrays(folder / f"{part}.npz", waves(count, seed=seed))
    return folder


def small_config(data, *, steps=40, **changes):
    training = TrainingConfig(steps=steps, batch=16, checkpoint_every=10, log_every=5, accelerator="cpu")
    options = {"model": "sonic_sequence", "model_options": ("width=8", "strides=1,2", "num_modes=8"), **changes}
    return ArraysConfig(data=data, training=training, **options)


def test_a_run_learns_and_told_networks_answer_alike_at_other_rates(signals, tmp_path):
    results = run_experiment(small_config(signals, rates=(0.5, 2.0)), tmp_path, show=False)
    assert results["accuracy"] == 1.0
    assert [row["rate"] for row in results["rows"]] == [0.5, 2.0]
    assert all(row["told"] == row["back"] == 1.0 for row in results["rows"])  # the waves lie within both bands
    model, config = load_run(tmp_path)
    assert config.rates == (0.5, 2.0)
    assert score_rates(model, waves(30, seed=1))[0] == {"rate": 1.0, "accuracy": 1.0}


def test_networks_that_are_not_told_are_tested_as_they_are_and_resampled(signals):
    from torchsonic.models import create_model

    row = score_rates(create_model("cnn_sequence", num_classes=2), waves(5, seed=0), (2.0,))[0]
    assert set(row) == {"rate", "accuracy", "back"}


def test_what_is_held_out_is_not_learnt_from_and_the_test_is_not_looked_at(signals, tmp_path):
    write_arrays(tmp_path / "train.npz", waves(60, seed=0))  # and no test.npz
    config = small_config(tmp_path, hold_out=0.25)
    train, test = split_arrays(config)
    assert (len(train), len(test)) == (45, 15)
    assert torch.equal(torch.cat([train.x, test.x]), waves(60, seed=0).x)


@pytest.mark.parametrize(("evaluate_every", "count"), [(0, 4), (10, 30)])
def test_the_loop_scores_all_samples_only_to_choose_the_best_step(signals, monkeypatch, evaluate_every, count):
    monkeypatch.setattr("torchsonic.lab.runs.arrays.GLANCE", 4)
    config = small_config(signals)
    experiment = ArrayExperiment(replace(config, training=replace(config.training, evaluate_every=evaluate_every)))
    experiment.train, experiment.tested = split_arrays(config)
    assert len(experiment.task(show=False).test) == count


def test_a_resumed_run_ends_with_the_same_bits_and_names_its_commits(signals, tmp_path, monkeypatch):
    config = small_config(signals, steps=20)
    run_experiment(config, tmp_path / "whole", show=False)

    def stop(self, step, samples):
        if step == 12:
            raise KeyboardInterrupt
        return original(self, step, samples)

    original = ArrayTask.batch
    monkeypatch.setattr(ArrayTask, "batch", stop)
    monkeypatch.setattr("torchsonic.lab.runs.provenance._git", lambda *words: "" if "status" in words else "first")
    with pytest.raises(KeyboardInterrupt):
        run_experiment(config, tmp_path / "parts", show=False)
    monkeypatch.setattr(ArrayTask, "batch", original)
    monkeypatch.setattr("torchsonic.lab.runs.provenance._git", lambda *words: "" if "status" in words else "second")
    results = run_experiment(config, tmp_path / "parts", show=False)
    assert results["run"]["commit"] == "second"
    assert results["run"]["earlier_commits"] == ["first"]
    assert "earlier_commits" not in read_json(tmp_path / "whole" / "results.json")["run"]
    weights = [load_run(tmp_path / name)[0].state_dict() for name in ("whole", "parts")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    with pytest.raises(CheckpointError, match="label_smoothing"):
        run_experiment(replace(config, label_smoothing=0.1), tmp_path / "parts", show=False)


def test_a_run_that_is_older_than_bending_does_not_resume_with_it(tmp_path):
    settings = plain_settings(small_config(tmp_path))
    del settings["bend"]
    write_json(tmp_path / "config.json", settings)
    (tmp_path / "checkpoints").mkdir()
    ArrayExperiment(small_config(tmp_path)).refuse_changes(tmp_path)
    with pytest.raises(CheckpointError, match=r"had bend=0\.0, not 0\.1"):
        ArrayExperiment(small_config(tmp_path, bend=0.1)).refuse_changes(tmp_path)


def test_samples_are_functions_of_seed_and_number_alone():
    images = Arrays(torch.rand(20, 1, 12, 12), torch.zeros(20, dtype=torch.int64))
    config = ArraysConfig(turn=90.0, scale=0.2, shift=0.1, bend=0.05, training=TrainingConfig(batch=6))
    task = ArrayTask(images, images, config)
    whole, part = task.batch(3, range(6)), task.batch(3, range(2, 4))
    assert torch.equal(whole.x[2:4], part.x)
    assert not torch.equal(task.batch(4, range(6)).x, whole.x)


@pytest.mark.parametrize("change", [{"turn": 90.0}, {"scale": 0.2}, {"shift": 0.1}, {"bend": 0.05}])
def test_each_change_alone_moves_images(change):
    images = Arrays(torch.rand(6, 1, 12, 12), torch.zeros(6, dtype=torch.int64))
    training = TrainingConfig(batch=6)
    still, moved = (
        ArrayTask(images, images, ArraysConfig(training=training, **own)).batch(0, range(6)) for own in ({}, change)
    )
    assert ((moved.x - still.x).abs().amax((1, 2, 3)) > 1e-4).all()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model": "sonicnet2d"}, "model must be one of"),
        ({"hold_out": 1.0}, "hold_out"),
        ({"rates": (0.0,)}, "rates"),
        ({"model": "steerable", "model_options": ("order=4",)}, "model_options"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, problem):
    with pytest.raises(ValueError, match=problem):
        ArraysConfig(**changes)


def test_signals_do_not_turn(signals, tmp_path):
    with pytest.raises(ValueError, match="belong to images"):
        run_experiment(small_config(signals, turn=10.0), tmp_path, show=False)


def test_the_command_trains(signals, tmp_path, capsys):
    words = ["train", "arrays", "--preset", "smoke", "--data", str(signals), "--out", str(tmp_path), "--rates", "2"]
    options = ["--model", "sonic_sequence", "--model-options", "width=4", "strides=2", "--accelerator", "cpu"]
    assert main([*words, *options]) == 0
    assert "at 2 times the rate" in capsys.readouterr().out
