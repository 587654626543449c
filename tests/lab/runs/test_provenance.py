"""Where results say they came from."""

import sys

import torch

from torchsonic.lab.runs.provenance import describe_run


def test_paths_below_the_current_folder_are_told_from_there(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cli", "table1", "--out", str(tmp_path / "my runs"), "--data", "/elsewhere"])
    run = describe_run(seed=3, device=torch.device("cpu"))
    assert run["command"] == "torchsonic table1 --out 'my runs' --data /elsewhere"
    assert run["seed"] == 3
