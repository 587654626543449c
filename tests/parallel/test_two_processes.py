"""Several devices give what one gives."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.parallel.training import CONFIG, make_model, make_task
from torchsonic.lab.training import TrainingConfig, fit
from torchsonic.lab.training.checkpoint import kept_weights
from torchsonic.lab.training.loggers import read_log

pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")
pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch was built without distributed")
ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """What two processes left behind; launched once, also if several workers test."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "two-processes"
    try:
        folder.mkdir()
    except FileExistsError:
        deadline = time.monotonic() + 900
        while not (folder / "finished").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        return folder
    command = [*TORCHRUN, "-m", "tests.parallel.program", str(folder)]
    done = subprocess.run(command, cwd=ROOT, timeout=900, capture_output=True, text=True)
    (folder / "finished").write_text(done.stdout + done.stderr)
    return folder


@pytest.fixture(scope="session")
def results(folder):
    assert (folder / "results.json").exists(), (folder / "finished").read_text()[-6000:]
    return json.loads((folder / "results.json").read_text())


def test_shared_modes_give_what_one_device_gives_with_all_gradients(results):
    """Outputs, gradients of inputs and of every parameter, in float64."""
    cases = {name: errors for name, errors in results.items() if name.startswith("modes: ")}
    assert len(cases) == 9
    assert all(len(errors) > 8 for errors in cases.values())
    worst = {name: max(errors, key=errors.get) for name, errors in cases.items()}
    assert all(cases[name][part] < 1e-10 for name, part in worst.items()), {
        n: (p, cases[n][p]) for n, p in worst.items()
    }


def test_shared_modes_agree_in_float32(results):
    assert max(results["float32"].values()) < 1e-5


def test_a_plan_of_torch_shares_modes_out(results):
    assert max(results["plan"].values()) < 1e-10


def test_a_process_keeps_the_responses_of_its_own_modes_in_evaluation(results):
    found = results["evaluation"]
    assert found["same entry"]
    assert found["modes kept"] == 3
    assert found["changed"] < 1e-5


def test_questions_about_all_modes_are_answered(results):
    assert results["about_all_modes"]["error"] < 1e-6
    assert "num_modes=7, own_modes=0:4" in results["about_all_modes"]["repr"]


def test_steps_of_an_optimiser_agree_and_are_saved_whole(results):
    found = results["steps"]
    assert found["norm"] < 1e-5
    assert found["weights"] < 1e-4
    assert found["checkpoint"] == found["saved"] == pytest.approx(found["weights"])


def test_sharing_modes_out_saves_memory(results):
    assert 0.4 < results["memory"]["ratio"] < 0.65


def test_mistakes_are_named(results):
    found = results["refusals"]
    assert "num_modes=1 in parts of 1 leaves no mode for the last of 2 processes" in found["too few modes"]
    assert "no Sonic layer in Linear" in found["no layer"]
    assert "for Sonic layers, got Linear" in found["another layer"]
    assert "call parallelize_modes once, and before shard_parameters" in found["twice"]
    assert found["twice in a plan"] == found["modes last"] == found["twice"]
    assert "mesh must have one dimension, got 2; select one of them by name (data, modes)" in found["two dimensions"]
    assert found["two dimensions, sharded"] == found["two dimensions"]
    assert "mesh must be a DeviceMesh" in found["no mesh"]
    assert "gather it with save_pretrained" in found["export"]
    assert "call it before parallelize_modes" in found["drawing"]
    assert "once_differentiable" in found["second derivative"]
    assert "already sharded" in found["sharded twice"]


@pytest.mark.parametrize("shape", ["2x1", "1x2"])
def test_samples_and_modes_share_a_mesh(results, shape):
    assert max(results[f"grid {shape}"].values()) < 1e-4


def test_a_sharded_network_can_be_asked_about_a_window_and_saved(results):
    found = results["sharded_window"]
    assert found["error"] < 1e-5
    assert found["saved"]
    assert found["still sharded"]


def test_fsdp_gives_the_loss_curve_of_one_process(folder, results, tmp_path):
    model = make_model()
    single = fit(model, make_task(), TrainingConfig(**{**CONFIG, "devices": 1}), tmp_path, show=False)
    log = [entry["loss"] for entry in read_log(folder / "fsdp" / "log.jsonl") if "loss" in entry]
    expected = [loss for _, loss in single.losses]
    torch.testing.assert_close(torch.tensor(log), torch.tensor(expected), rtol=1e-4, atol=1e-4)
    weights = torch.load(folder / "expected.pt", weights_only=True)
    torch.testing.assert_close(weights, dict(model.state_dict()), rtol=1e-3, atol=1e-3)
    kept = dict(kept_weights(folder / "fsdp"))
    assert list(kept) == [0, 4, 8]
    torch.testing.assert_close(kept[8], weights)


def test_fsdp_resumes_to_the_same_bits(results):
    assert results["training"]["same bits"]
    assert results["training"]["whole"]


def test_a_run_goes_on_with_another_strategy_or_alone(folder, results):
    assert results["training"]["with ddp"] < 1e-3
    model = make_model()
    result = fit(model, make_task(), TrainingConfig(**{**CONFIG, "devices": 1}), folder / "single", show=False)
    assert [step for step, _ in result.losses] == [5, 6, 7, 8]
    expected = torch.load(folder / "expected.pt", weights_only=True)
    torch.testing.assert_close(dict(model.state_dict()), expected, rtol=1e-3, atol=1e-3)


def test_the_example_of_the_documentation_runs(results):
    assert results["example"]["modes"] == 32


def test_processes_that_find_different_checkpoints_do_not_go_on(results):
    assert "processes found checkpoints of different steps: 4, 0;" in results["training"]["refused"]
