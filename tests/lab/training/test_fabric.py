"""A process that is lost ends the run of all, in bounded time; then the run goes on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torchsonic
from tests import programs
from torchsonic.lab.training import TrainingConfig, make_fabric
from torchsonic.lab.training.loggers import read_log

pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")
PROGRAM = Path(__file__).parent / "run.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
COMMAND = ["-m", "torchsonic.cli", "train", "synthshape", "--preset", "smoke", "--depth", "1", "--test-samples", "1"]
SOON = 120  # seconds; far below the half hour that processes wait for each other


def steps_logged(folder: Path) -> int:
    log = folder / "log.jsonl"
    return max((entry["step"] for entry in read_log(log)), default=0) if log.exists() else 0


def wait_for_step(folder: Path, step: int, exit_code: Callable[[], int | None]) -> None:
    deadline = time.monotonic() + 900
    while steps_logged(folder) < step:
        assert exit_code() is None, "the run ended too early"
        assert time.monotonic() < deadline, "the run is too slow"
        time.sleep(0.01)


def children(parent: int) -> dict[int, int]:
    """Processes that torchrun started, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(re.search(r"^PPid:\s+(\d+)", (folder / "status").read_text(), flags=re.MULTILINE)[1]) == parent:
                environment = dict(line.split("=", 1) for line in (folder / "environ").read_text().split("\0") if line)
                found[int(environment["RANK"])] = int(folder.name)
        except (OSError, KeyError):
            continue
    return found


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_accelerator_is_named():
    with pytest.raises(ValueError, match="accelerator='cuda': there is no CUDA device here; use cpu or auto"):
        make_fabric(TrainingConfig(accelerator="cuda"))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")
def test_the_same_command_goes_on_after_a_process_was_killed(tmp_path):
    """Under torchrun, with the weights of an undisturbed run in the end."""
    pytest.importorskip("tyro")
    killed = [*TORCHRUN, *COMMAND, "--out", str(tmp_path / "killed")]
    run = Path("synthshape/sonicnet/fold0-seed0")
    process = subprocess.Popen(killed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_step(tmp_path / "killed" / run, 12, process.poll)  # the checkpoint is that of step 10
    os.kill(children(process.pid)[1], signal.SIGKILL)
    assert process.wait(timeout=SOON) != 0
    assert not (tmp_path / "killed" / run / "results.json").exists()
    subprocess.run(killed, check=True, timeout=900, stdout=subprocess.DEVNULL)
    programs.run_ranks([*COMMAND, "--out", tmp_path / "whole"])
    found, expected = (torchsonic.from_pretrained(tmp_path / n / run / "model") for n in ("killed", "whole"))
    expected = expected.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in found.state_dict().items())


@pytest.mark.parametrize("blow", ["SIGKILL", "SIGSTOP"])
def test_a_process_that_is_lost_or_stuck_ends_the_other(tmp_path, blow):
    """Without torchrun, which would end it anyway: a lost one is noticed at once, a stuck one after the timeout."""
    timeout = 30.0 if blow == "SIGKILL" else 0.15
    config = {"steps": 100_000, "checkpoint_every": 1000, "devices": 2, "timeout": timeout}
    log = tmp_path / "said"
    first, second = programs.start_ranks([PROGRAM, tmp_path, "--config", json.dumps(config)], log=log)
    try:
        wait_for_step(tmp_path, 3, lambda: first.exitcode)
        os.kill(second.pid, getattr(signal, blow))
        first.join(SOON)
        assert first.exitcode not in (0, None)
        found = "closed by peer|reset by peer|Broken pipe" if blow == "SIGKILL" else "[Tt]imed out"
        assert re.search(found, log.read_text())
    finally:
        for process in (first, second):
            process.kill()
            process.join()


def test_fsdp_refuses_fp16(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ValueError, match="strategy fsdp does not allow; use bf16 or fp32"):
        make_fabric(TrainingConfig(precision="fp16", strategy="fsdp", accelerator="cuda"))
