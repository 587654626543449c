"""A run is a function of its configuration, however often it is stopped and on however many processes."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import torchsonic
from tests import programs
from tests.lab.training.run import run
from torchsonic.lab.data import SynthShape
from torchsonic.lab.training import CheckpointError, SegmentationTask, TrainingConfig, fit
from torchsonic.lab.training.checkpoint import kept_weights, read_checkpoint, write_checkpoint
from torchsonic.lab.training.fabric import make_fabric
from torchsonic.lab.training.loggers import read_log
from torchsonic.lab.training.optimiser import MovingAverage, make_optimiser, one_cycle, set_rate, staircase

pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")
PROGRAM = Path(__file__).parent / "run.py"


def words(folder: Path, **config) -> list:
    return [PROGRAM, folder, "--config", json.dumps(config)]


def finish(folder: Path, **config) -> dict[str, torch.Tensor]:
    run(folder, **config)
    return torchsonic.from_pretrained(folder / "model").state_dict()


def losses(folder: Path) -> list[float]:
    return [entry["loss"] for entry in read_log(folder / "log.jsonl") if "loss" in entry]


class Quadratic:
    """Learn one number: nothing to wait for."""

    def __init__(self):
        self.scores = iter([0.1, 0.9, 0.5, 0.4, 0.3, 0.2])

    def batch(self, step, samples):
        return torch.tensor([float(step * 4 + i) for i in samples])

    def loss(self, model, batch):
        return (model.weight - 3).square().mean() + 0.0 * batch.sum()

    def evaluate(self, model):
        return {"score": next(self.scores), "weight": model.weight.item()}


class Number(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1))


def small(**config) -> TrainingConfig:
    return TrainingConfig(**{"steps": 6, "batch": 4, "log_every": 1, "checkpoint_every": 2, "clip": 0.0, **config})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, finish(folder)


def test_a_run_killed_again_and_again_ends_bit_identical(whole, tmp_path):
    expected_folder, expected = whole
    chance = random.Random(0)
    kills = 0
    while not (tmp_path / "done").exists():
        process = programs.start(words(tmp_path))
        log, before = tmp_path / "log.jsonl", losses(tmp_path) if (tmp_path / "log.jsonl").exists() else []
        deadline = time.monotonic() + 120
        while process.exitcode is None and time.monotonic() < deadline:
            if kills < 2 and log.exists() and len(losses(tmp_path)) >= len(before) + chance.randint(2, 5):
                time.sleep(0.01 * chance.random())
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        process.join(120)
        assert process.exitcode in (0, -signal.SIGKILL)
    assert kills == 2
    state = torchsonic.from_pretrained(tmp_path / "model").state_dict()
    assert all(torch.equal(state[key], expected[key]) for key in expected)
    assert losses(tmp_path) == losses(expected_folder)


def test_workers_do_not_change_the_run(whole, tmp_path):
    _, expected = whole
    state = finish(tmp_path, workers=2)
    assert all(torch.equal(state[key], expected[key]) for key in expected)


def test_two_processes_give_the_loss_curve_of_one(tmp_path):
    # Two devices: no dropout. Started as by torchrun, it is the number of processes that counts.
    programs.run_ranks(words(tmp_path / "double", steps=12, devices=2))
    run(tmp_path / "single", steps=12, mode_dropout=0.0)
    run(tmp_path / "accumulated", steps=12, mode_dropout=0.0, accumulate=2)
    single, double, accumulated = (losses(tmp_path / name) for name in ("single", "double", "accumulated"))
    assert len(single) == 12
    torch.testing.assert_close(torch.tensor(double), torch.tensor(single), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.tensor(accumulated), torch.tensor(single), rtol=1e-4, atol=1e-4)


def test_the_best_weights_are_left_in_the_model(tmp_path):
    model, task = Number(), Quadratic()
    result = fit(model, task, small(evaluate_every=2), tmp_path, show=False)
    assert result.metrics["score"] == 0.9
    assert model.weight.item() == result.metrics["weight"]
    scores = [entry["score"] for entry in read_log(tmp_path / "log.jsonl") if "score" in entry]
    assert scores == [0.1, 0.9, 0.5]


@pytest.mark.parametrize("every", [0, 2])
def test_a_failing_last_evaluation_costs_no_training(tmp_path, every):
    config = small(checkpoint_every=100, evaluate_every=every)
    task = Quadratic()
    task.scores = iter([0.1, 0.9][:every])
    with pytest.raises(StopIteration):
        fit(Number(), task, config, tmp_path / "failed", show=False)
    task = Quadratic()
    task.scores = iter([0.95])
    task.loss = None  # nothing is trained any more
    model = Number()
    result = fit(model, task, config, tmp_path / "failed", show=False)
    whole = Number()
    expected = fit(whole, Quadratic(), small(checkpoint_every=100), tmp_path / "whole", show=False)
    assert (result.step, result.metrics["score"]) == (6, 0.95)
    assert torch.equal(model.weight, whole.weight)
    assert expected.metrics["weight"] == result.metrics["weight"]


def test_the_moving_average_is_what_is_scored_and_left(tmp_path):
    plain, averaged = Number(), Number()
    fit(plain, Quadratic(), small(), tmp_path / "plain", show=False)
    result = fit(averaged, Quadratic(), small(ema=0.9), tmp_path / "averaged", show=False)
    assert 0 < averaged.weight.item() < plain.weight.item()
    assert result.metrics["weight"] == averaged.weight.item()


def test_statistics_are_averaged_with_the_weights():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    average = MovingAverage(model, 0.5)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(30, 33):  # late enough for the decay to be its own
        with torch.no_grad():
            model[0].weight.add_(1.0)
        model(torch.randn(4, 1, 5, 5) * 3)
        average.update(model, step)
        for name in ("0.weight", "1.running_mean", "1.running_var"):
            expected[name] = 0.5 * expected[name] + 0.5 * model.state_dict()[name]
    own = {name: value.clone() for name, value in model.state_dict().items()}
    with average.applied(model):
        for name in ("0.weight", "1.running_mean", "1.running_var"):
            torch.testing.assert_close(model.state_dict()[name], expected[name])
        assert not torch.equal(model[1].running_var, own["1.running_var"])
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())
    older = MovingAverage(model, 0.5)
    older.load_state_dict({"0.weight": torch.zeros(2, 1, 1, 1)}, model)
    assert torch.equal(older.weights["0.weight"], torch.zeros(2, 1, 1, 1))
    assert torch.equal(older.weights["1.running_var"], own["1.running_var"])


def test_a_finished_run_is_not_run_again(tmp_path):
    model = Number()
    fit(model, Quadratic(), small(), tmp_path, show=False)
    again = Number()
    result = fit(again, Quadratic(), small(), tmp_path, show=False)
    assert again.weight.item() == model.weight.item()
    assert result.step == 6
    assert result.losses == []


def test_another_configuration_is_not_resumed(tmp_path):
    fit(Number(), Quadratic(), small(), tmp_path, show=False)
    with pytest.raises(CheckpointError, match=r"learning_rate=0\.01, not 0.1; use the old value or another folder"):
        fit(Number(), Quadratic(), small(learning_rate=0.1), tmp_path, show=False)
    with pytest.raises(CheckpointError, match="has another model"):
        fit(nn.Linear(2, 2), Quadratic(), small(), tmp_path, show=False)


def test_a_loss_that_explodes_is_named(tmp_path):
    task = Quadratic()
    task.loss = lambda model, batch: model.weight.sum() * float("nan")
    with pytest.raises(FloatingPointError, match="became nan at step 1; lower learning_rate"):
        fit(Number(), task, small(), tmp_path, show=False)


def test_a_full_disk_ends_in_a_clear_message_and_the_old_checkpoint(tmp_path, monkeypatch):
    real, count = os.fsync, []

    def fsync(handle):
        count.append(handle)
        if len(count) > 4:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(CheckpointError, match=r"cannot write .*No space left on device; free some space"):
        fit(Number(), Quadratic(), small(checkpoint_every=1), tmp_path, show=False)
    monkeypatch.setattr(os, "fsync", real)
    result = fit(Number(), Quadratic(), small(checkpoint_every=1), tmp_path, show=False)
    assert result.step == 6
    assert result.losses[0][0] > 1
    assert not list(tmp_path.rglob(".*"))


def test_bf16_trains_and_fp16_asks_for_an_accelerator(tmp_path):
    torch.manual_seed(0)
    model = torchsonic.create_model("synthshape_sonicnet", width=8, depth=1, backbone_options={"num_modes": 6})
    task = SegmentationTask(SynthShape(size=(16, 16)), range(20), range(100, 104), batch=4)
    result = fit(model, task, small(precision="bf16"), tmp_path, show=False)
    assert all(torch.isfinite(torch.tensor(loss)) for _, loss in result.losses)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    with pytest.raises(ValueError, match="fp16 needs an accelerator"):
        make_fabric(small(precision="fp16", accelerator="cpu"))


def test_the_rate_rises_and_falls():
    rates = [one_cycle(step, 101, 0.3) for step in range(101)]
    assert rates[0] == pytest.approx(0.04)
    assert rates[30] == max(rates) == pytest.approx(1)
    assert rates[100] == pytest.approx(1e-4)
    assert rates[:31] == sorted(rates[:31])
    assert rates[30:] == sorted(rates[30:], reverse=True)
    assert one_cycle(0, 1, 0.3) > 0


@pytest.mark.parametrize("steps", [2, 7, 20, 2000])
def test_one_cycle_momentum_is_that_of_pytorch(steps):
    config = small(steps=steps, learning_rate=0.01, schedule="one-cycle-momentum")
    ours = make_optimiser(Number(), config)
    theirs = torch.optim.AdamW(Number().parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(theirs, max_lr=0.01, total_steps=steps)
    for step in range(steps):
        set_rate(ours, step, config)
        found, wanted = (group.param_groups[0] for group in (ours, theirs))
        assert (found["lr"], *found["betas"]) == pytest.approx((wanted["lr"], *wanted["betas"]), rel=1e-9), step
        theirs.step()
        if step < steps - 1:
            schedule.step()
    with pytest.raises(ValueError, match="one-cycle-momentum belongs to adamw, not to sgd; use one-cycle"):
        small(optimiser="sgd", schedule="one-cycle-momentum")


def test_all_parameters_decay_only_if_asked_for():
    model = torchsonic.create_model("synthshape_sonicnet", width=8, depth=1, backbone_options={"num_modes": 6})
    for decay, expected in (("matrices", {0.1, 0.0}), ("all", {0.1})):
        optimiser = make_optimiser(model, small(weight_decay=0.1, decay=decay))
        assert {group["weight_decay"] for group in optimiser.param_groups} == expected


def test_the_staircase_divides_by_ten():
    rates = [staircase(step, 200, 0.1, 0.25) for step in range(200)]
    assert rates[:20] == [one_cycle(step, 200, 0.1) for step in range(20)]
    assert [rates[step] for step in (20, 49, 50, 99, 100, 150, 199)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.001, 0.001]
    )


@pytest.mark.parametrize("nesterov", [True, False])
def test_sgd_follows_its_momentum(tmp_path, nesterov):
    model = Number()
    config = small(
        optimiser="sgd", learning_rate=0.1, momentum=0.5, nesterov=nesterov, schedule="staircase", warmup=0.0
    )
    fit(model, Quadratic(), config, tmp_path, show=False)
    weight, speed = 0.0, 0.0
    for step in range(6):
        gradient = 2 * (weight - 3) + config.weight_decay * weight
        speed = 0.5 * speed + gradient if step else gradient
        rate = 0.1 * 0.1 ** (step // 2)
        weight -= rate * (gradient + 0.5 * speed if nesterov else speed)
    assert model.weight.item() == pytest.approx(weight, rel=1e-5)


def test_a_run_older_than_a_setting_is_resumed_with_its_default(tmp_path):
    fit(Number(), Quadratic(), small(), tmp_path, show=False)
    path = tmp_path / "checkpoints" / "last.ckpt"
    state = read_checkpoint(path)
    for name in ("momentum", "nesterov", "schedule", "stair", "decay"):
        del state["config"][name]
    del state["waiting"]
    write_checkpoint(path, state)
    assert fit(Number(), Quadratic(), small(), tmp_path, show=False).step == 6
    with pytest.raises(CheckpointError, match="schedule=one-cycle, not staircase"):
        fit(Number(), Quadratic(), small(schedule="staircase"), tmp_path, show=False)


def test_waiting_for_data_is_counted(tmp_path):
    task = Quadratic()
    quick = task.batch
    task.batch = lambda step, samples: (time.sleep(0.02), quick(step, samples))[1]
    result = fit(Number(), task, small(), tmp_path, show=False)
    assert 0.12 <= result.waiting <= result.seconds
    waits = [entry["waiting"] for entry in read_log(tmp_path / "log.jsonl") if "loss" in entry]
    assert waits == sorted(waits)
    assert waits[-1] == result.waiting


def test_a_kill_between_last_and_best_changes_nothing(tmp_path, monkeypatch):
    """The best weights of two runs, of which one was killed while it wrote them."""
    whole, killed = Number(), Number()
    config = small(evaluate_every=2, ema=0.0)
    fit(whole, Quadratic(), config, tmp_path / "whole", show=False)
    saved = []

    def fail(path, state):
        saved.append(path.name)
        if len(saved) == 3:  # the second save that is a new best: step 4
            raise CheckpointError("killed")
        write_checkpoint(path, state)

    monkeypatch.setattr("torchsonic.lab.training.checkpoint.write_checkpoint", fail)
    task = Quadratic()
    with pytest.raises(CheckpointError, match="killed"):
        fit(killed, task, config, tmp_path / "killed", show=False)
    monkeypatch.undo()
    task.scores = iter([0.9, 0.5])  # those of steps 4 and 6
    fit(killed, task, config, tmp_path / "killed", show=False)
    assert torch.equal(killed.weight, whole.weight)


def test_weights_are_kept_along_the_way(tmp_path):
    model = Number()
    fit(model, Quadratic(), small(keep_every=2), tmp_path, show=False)
    kept = dict(kept_weights(tmp_path))
    values = [state["weight"].item() for state in kept.values()]
    assert list(kept) == [0, 2, 4, 6]
    assert values[0] == 0.0
    assert values == sorted(set(values))  # it learns to go up to 3
    assert torch.equal(kept[6]["weight"], model.weight.detach())


def test_averaged_weights_are_kept_as_they_are_saved(tmp_path):
    model = Number()
    fit(model, Quadratic(), small(keep_every=3, ema=0.9), tmp_path, show=False)
    assert torch.equal(dict(kept_weights(tmp_path))[6]["weight"], model.weight.detach())


def test_no_weights_are_kept_unasked(tmp_path):
    fit(Number(), Quadratic(), small(), tmp_path, show=False)
    assert not list(kept_weights(tmp_path))


def test_modes_learn_slowly(tmp_path):
    torch.manual_seed(0)
    model = torchsonic.create_model("synthshape_sonicnet", width=8, depth=1, backbone_options={"num_modes": 6})
    before = {key: value.clone() for key, value in model.state_dict().items()}
    task = SegmentationTask(SynthShape(size=(16, 16)), range(20), range(100, 104), batch=4)
    fit(model, task, small(mode_lr_scale=0.0), tmp_path, show=False)
    moved = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert not any("raw_" in key or "limit" in key for key in moved)
    assert any("mix_in" in key for key in moved)


@pytest.mark.parametrize(
    "bad",
    [
        *({"steps": 0}, {"ema": 1.0}, {"warmup": -0.1}, {"learning_rate": 0.0}, {"clip": -1.0}, {"accumulate": 0}),
        *({"momentum": 1.0}, {"momentum": 0.8}, {"nesterov": False}, {"stair": 0.0}, {"stair": 0.5}),
        *({"momentum": 0.0, "optimiser": "sgd"}, {"timeout": 0.0}),
    ],
)
def test_bad_settings_name_themselves(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        TrainingConfig(**bad)


def test_a_batch_that_does_not_divide_is_refused(tmp_path):
    with pytest.raises(ValueError, match="batch must be divisible"):
        fit(Number(), Quadratic(), small(accumulate=3), tmp_path, show=False)
