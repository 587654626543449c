"""Where results say they came from."""

import sys
from pathlib import Path

import pytest
import torch

from torchsonic.lab.runs import provenance
from torchsonic.lab.runs.provenance import activity_warning, describe_run


def test_paths_below_the_current_folder_are_told_from_there(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cli", "table1", "--out", str(tmp_path / "my runs"), "--data", "/elsewhere"])
    run = describe_run(seed=3, device=torch.device("cpu"))
    assert run["command"] == "torchsonic table1 --out 'my runs' --data /elsewhere"
    assert run["seed"] == 3


@pytest.mark.parametrize(("idle", "busy"), [(100, 0.0), (75, 1.0), (0, 4.0)])
def test_cores_are_busy_for_the_part_of_a_pause_in_which_they_are_not_idle(monkeypatch, idle, busy):
    slept, counters = [], (f"cpu 0 0 {(100 - idle) * n} {idle * n} 0 0 0 0\n" for n in (1, 2))
    monkeypatch.setattr(Path, "read_text", lambda self: next(counters))
    monkeypatch.setattr(provenance.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(provenance.time, "sleep", slept.append)
    found = provenance.busy_cores()
    assert found == pytest.approx(busy)
    assert sum(slept) == provenance.BUSY_SECONDS
    assert bool(activity_warning({"busy_cores": found})) == (busy > 0)
