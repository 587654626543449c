"""The doctor on the CPU, and what it says of devices that fail."""

import importlib
import json
import sys

import pytest
import torch

from torchsonic import doctor
from torchsonic.cli import main
from torchsonic.cli.doctor import report_line

CPU = torch.device("cpu")


def test_a_quick_look_at_the_cpu_finds_everything_well(tmp_path, capsys):
    out = tmp_path / "doctor.json"
    status = main(["doctor", "--quick", "--device", "cpu", "--out", str(out)])
    printed = capsys.readouterr()
    found = json.loads(out.read_text())
    assert status == 0, printed.err
    assert {f["verdict"] for f in found["cpu"]} == {"ok", "left out"}
    assert {f["check"] for f in found["cpu"] if f["verdict"] == "left out"} == {"compile", "CUDA graph"}
    assert found["line"] in printed.out
    assert found["line"].startswith("torchsonic")
    assert found["line"].endswith("all well")


def test_a_place_that_takes_no_file_is_refused_before_any_work(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(doctor, "check_packages", lambda: pytest.fail("there was work"))
    (tmp_path / "file").touch()
    refusals = {
        tmp_path: f"--out: {tmp_path} is a folder; name a file",
        tmp_path / "file" / "a": "file is a file; name a folder",
    }
    for out, words in refusals.items():
        assert main(["doctor", "--quick", "--out", str(out)]) == 1
        assert words in capsys.readouterr().err


def test_a_device_that_computes_nonsense_is_found(monkeypatch, tmp_path, capsys):
    honest = doctor.train
    wrong = iter(range(1000))
    monkeypatch.setattr(doctor, "train", lambda *a: [t * (1 + 1e-3 * next(wrong)) for t in honest(*a)])
    status = main(["doctor", "--quick", "--device", "cpu", "--out", str(tmp_path / "found.json")])
    assert status == 1
    assert "failed: cpu: agreement with the CPU; cpu: reproducibility" in capsys.readouterr().err


def test_a_device_that_fails_is_described_and_the_rest_still_runs(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("CUDA error: no kernel image is available\nsecond line")

    monkeypatch.setattr(doctor, "check_laws", broken)
    found = {finding.check: finding for finding in doctor.examine(CPU, quick=True)}
    assert found["laws"].verdict == "wrong"
    assert found["laws"].text == "RuntimeError: CUDA error: no kernel image is available"
    assert found["training step"].verdict == "ok"
    assert found["training step"].numbers.keys() == {"sonic ms", "conv3x3 ms", "paper's order ms"}
    line = report_line({"packages": [], "cuda:0": list(found.values())})
    assert "WRONG: cuda:0: laws: RuntimeError: CUDA error" in line


def test_accelerators_are_found(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert doctor.find_devices()[:3] == [CPU, torch.device("cuda:0"), torch.device("cuda:1")]


def test_a_torchvision_for_another_torch_is_named_with_its_remedy(monkeypatch):
    def refuse(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(doctor.importlib, "import_module", refuse)
    (found,) = [f for f in doctor.check_packages() if f.check == "timm"]
    assert found.verdict == "wrong"
    assert "pip install --force-reinstall torch torchvision" in found.text


def test_the_timm_integration_names_it_too(monkeypatch):
    class Mismatch:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "timm":
                raise RuntimeError("operator torchvision::nms does not exist")

    for name in [name for name in sys.modules if name.split(".")[0] == "timm"] + ["torchsonic.integrations.timm"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Mismatch, *sys.meta_path])
    with pytest.raises(ImportError, match=r"nms does not exist.*pip install --force-reinstall torch torchvision"):
        importlib.import_module("torchsonic.integrations.timm")


def test_a_device_that_is_not_there_is_refused(capsys):
    assert main(["doctor", "--device", "cuda"]) == 1
    assert "--device cuda" in capsys.readouterr().err


@pytest.mark.slow
def test_the_compiled_layer_is_checked():
    assert "agrees with eager" in doctor.check_compile(CPU)
