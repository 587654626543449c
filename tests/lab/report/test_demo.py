"""The page of ``torchsonic demo``."""

import numpy as np
import pytest
import torch

from tests.lab.data.nifti import write
from torchsonic.cli import main, synthetic
from torchsonic.lab.data import SynthShape
from torchsonic.lab.report.demo import live, page, pretrained, speed, volumes
from torchsonic.lab.runs.volumes import VolumesConfig, load_run, run_experiment
from torchsonic.lab.training import TrainingConfig


@pytest.fixture(autouse=True, scope="module")
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "SIZES", ((8, 2, 16), (8, 8, 16)))
        patch.setattr(page, "SCENES", page.SCENES[:8])
        yield


def test_the_command_writes_a_page_that_needs_nothing_else(tmp_path):
    assert main(["demo", "--steps", "2", "--batch", "2", "--out", str(tmp_path), "--no-browser"]) == 0
    text = (tmp_path / "demo.html").read_text()
    parts = "Trained while you waited", "Rotated shapes, and noise", "Distant clues", "Speed on this machine"
    assert all(title in text for title in (*parts, "Your own images"))
    assert "Left out" not in text
    assert "https://" not in text
    assert "Dice on 200 draws of the 625 scenes" in text
    assert "with noise of up to 0.12" in text
    assert "It has learned little" in text
    assert "8 / 8 / 16" in text
    assert (tmp_path / "samplings.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("cores", "busy", "used"),
    [(4, None, []), (4, 0.3, []), (4, 1.1, [3]), (4, 6.0, [1]), (8, 3.9, []), (8, 5.2, [3])],
)
def test_the_demo_uses_no_more_threads_than_there_are_idle_cores(cores, busy, used, monkeypatch, capsys):
    counts = []
    monkeypatch.setattr(synthetic.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(synthetic, "busy_cores", lambda: busy)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    synthetic._use_idle_cores()
    assert counts == used
    assert ("busy" in capsys.readouterr().out) == bool(used)


def test_a_network_that_is_missing_or_damaged_is_named_and_the_rest_appears(tmp_path, monkeypatch):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    monkeypatch.setattr("torchsonic.models.model_folder.FOLDER", tmp_path)
    monkeypatch.setattr(page, "SHAPES", {"OrbitNet": "broken"})
    monkeypatch.setattr(page, "CORNERS", {"SonicNet": "gone"})
    said = []
    text = page.run_demo(page.DemoConfig(steps=2, batch=2), tmp_path / "out", say=said.append, show=False).read_text()
    assert "Speed on this machine" in text
    assert "is not valid JSON" in text
    assert "no network called gone" in text
    assert sum("left out" in line for line in said) == 2


def test_the_live_network_learns_and_is_tested_on_other_grids():
    data, model = SynthShape(), live.make_network(0)
    losses = list(live.train(model, data, steps=12, batch=4))
    assert sum(losses[-3:]) < sum(losses[:3])
    found = live.test_samplings(model, data)
    assert [each.size for each in found] == list(live.SAMPLINGS)
    # On the training grid the spacing changes nothing.
    assert found[0].dice["spacing given"] == found[0].dice["spacing not given"]


def test_levels_are_scored_for_every_network():
    torch.manual_seed(0)
    networks = {"a": live.make_network(0).eval(), "b": live.make_network(1).eval()}
    calls = []
    curves = pretrained.score_levels(networks, "rotation", (0.0, 30.0), range(4), lambda: calls.append(1))
    assert set(curves) == {"a", "b"}
    assert all(len(dice) == 2 and all(0 <= d <= 1 for d in dice) for dice in curves.values())
    assert len(calls) == 4


def test_a_step_keeps_more_than_its_input_and_a_convolution_just_that():
    ours, theirs = speed.measure_steps(8, 2, 16)
    inputs = speed.BATCH * 8 * 16 * 16 * 4 / 1e6
    assert theirs.kept == pytest.approx(inputs)
    assert ours.kept == pytest.approx(inputs * (1 + 4 * 2 / 8), rel=0.1)
    assert min(ours.milliseconds, theirs.milliseconds) > 0


def test_a_place_that_cannot_be_written_is_refused_before_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "read-only" in capsys.readouterr().err


@pytest.fixture
def scans(tmp_path):
    """Two scans of two bright blocks, and their labels."""
    for package in ("nibabel", "monai"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    for name, brightness in {"a": 1, "b": 2}.items():  # equal files would be one case
        label = np.zeros((10, 12, 14), np.int16)
        label[2:6, 3:8, 2:7], label[6:9, 3:8, 2:7] = 1, 2
        write(tmp_path / "scans" / "images" / f"{name}.nii.gz", brightness * label.astype(np.float32), np.eye(4))
        write(tmp_path / "scans" / "labels" / f"{name}.nii.gz", label, np.eye(4))
    return tmp_path / "scans"


def test_scans_stored_otherwise_get_one_answer_if_the_network_is_told(scans, tmp_path, monkeypatch):
    training = TrainingConfig(steps=1, batch=1, checkpoint_every=1, log_every=1, accelerator="cpu")
    config = VolumesConfig(data=scans, folds=2, patch=(8, 8, 8), test_patches=1, training=training)
    run_experiment(config, tmp_path / "weights" / "hippocampus", show=False)
    unet = VolumesConfig(data=scans, folds=2, patch=(8, 8, 8), test_patches=1, training=training, model="unet", width=2)
    run_experiment(unet, tmp_path / "weights" / "hippocampus_conv", show=False)
    monkeypatch.setattr("torchsonic.models.model_folder.FOLDER", tmp_path / "weights")
    cases = volumes.find_new_cases(scans, (tmp_path / "weights").iterdir())
    assert len(cases) == 1, "one of the two was trained on"
    found = volumes.score_storages(*load_run(tmp_path / "weights" / "hippocampus"), cases)
    assert len({each.axes for each in found}) == 3
    assert max(each.told for each in found) - min(each.told for each in found) < 1e-6
    section = page._volumes(scans, show=False)
    assert section.title == "Scans with any axis order"
    assert "not trained on the 1 scan tested here" in section.blocks[0].text
    rows = section.blocks[1].rows
    assert len({row[2] for row in rows[:3]}) == 1
    assert all(row[2] == "-" and float(row[3]) >= 0 for row in rows[3:])
    assert len(rows) == 6
    (scans / "images" / f"{cases[0].name}.nii.gz").unlink()
    (scans / "labels" / f"{cases[0].name}.nii.gz").unlink()
    with pytest.raises(ValueError, match="trained on every scan"):
        page._volumes(scans, show=False)


def test_without_its_network_the_part_on_scans_is_left_out(scans, tmp_path, monkeypatch):
    monkeypatch.setattr("torchsonic.models.model_folder.FOLDER", tmp_path / "weights")
    said = []
    config = page.DemoConfig(steps=1, batch=1, volumes=scans)
    text = page.run_demo(config, tmp_path / "out", say=said.append, show=False).read_text()
    assert "no network called hippocampus" in text
    assert "Speed on this machine" in text


def test_a_folder_without_scans_is_refused_before_training(tmp_path, capsys):
    pytest.importorskip("tyro")
    assert main(["demo", "--volumes", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "must hold images/ and labels/" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("part", "message"), [("images", "contains no file"), ("labels", "no label for this scan")])
def test_scans_are_checked_before_training(scans, part, message, tmp_path):
    for path in (scans / part).iterdir():
        path.unlink()
    said = []
    with pytest.raises(ValueError, match=message):
        page.run_demo(page.DemoConfig(volumes=scans), tmp_path / "out", say=said.append)
    assert not said
