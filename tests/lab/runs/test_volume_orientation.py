"""Runs on volumes that lie in different ways: told, not told, and older than the question."""

import json
import os
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.lab.data.nifti import write
from tests.lab.data.test_volume_orientation import TILT, make_volume, stored
from torchsonic.cli import main
from torchsonic.lab.data.volumes import find_cases, read_case
from torchsonic.lab.data.volumes.orientation import straighten
from torchsonic.lab.report.volumes.turned import score_run
from torchsonic.lab.runs.folder import read_config
from torchsonic.lab.runs.volumes import (
    AxesWatch,
    VolumesConfig,
    load_run,
    predict_probabilities,
    run_experiment,
    score_cases,
)
from torchsonic.lab.runs.volumes.run import VolumeExperiment
from torchsonic.lab.training import CheckpointError, TrainingConfig
from torchsonic.models import create_model
from torchsonic.testing import relative_error
from torchsonic.testing.orientation import all_storages

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed")

STORAGES = list(all_storages(3))
DATA = Path(os.environ.get("TORCHSONIC_DATA", Path(__file__).parents[4] / "shared" / "data"))
HIPPOCAMPI = DATA / "hippocampus"


def make_config(folder, **options):
    training = TrainingConfig(steps=2, batch=3, checkpoint_every=1, log_every=1, accelerator="cpu")
    options = {"model": "sonicnet3d.light", "width": 4, "depth": 2, "num_modes": 4, **options}
    return VolumesConfig(data=folder, folds=2, patch=(4, 6, 6), test_patches=2, training=training, **options)


def write_volume(folder, name, volume):
    write(folder / "images" / f"{name}.nii.gz", volume.image[0], volume.affine)
    write(folder / "labels" / f"{name}.nii.gz", volume.label, volume.affine)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Cases in several orders of axes, straight and oblique, and a run that was told, and one that was not."""
    root = tmp_path_factory.mktemp("turned")
    for index, name in enumerate("abcdef"):
        volume = make_volume(TILT if index % 2 else None, seed=index)
        write_volume(root / "data", name, stored(volume, STORAGES[7 * index]))
    run_experiment(make_config(root / "data"), root / "told", show=False)
    run_experiment(make_config(root / "data", tell_orientation=False), root / "untold", show=False)
    return root


@pytest.mark.parametrize("tilt", [None, TILT])
def test_predictions_of_every_storage_are_one(root, tilt):
    model, config = load_run(root / "told")
    volume = make_volume(tilt, seed=9)
    for image in (volume, replace(volume, image=np.tile(volume.image, (1, 1, 2, 1)), label=None)):  # in windows, too
        image = replace(image, label=np.zeros(image.image.shape[1:], np.int16))
        expected = torch.from_numpy(predict_probabilities(model, image, config))[None]
        for storage in STORAGES[::5]:
            found = torch.from_numpy(predict_probabilities(model, stored(image, storage), config))[None]
            assert relative_error(found, storage.apply(expected)) < 1e-5


def test_a_batch_holds_volumes_of_different_orientations_and_spacings(root):
    experiment = VolumeExperiment(make_config(root / "data"))
    facts, num_classes = experiment._look_at_data(show=False)
    model = experiment.make_model(facts, num_classes)
    task = experiment.task(show=False)
    batch = task.batch(0, range(3))
    assert batch.orientation.shape == (3, 3, 3)
    assert len({tuple(turn.flatten().tolist()) for turn in batch.orientation}) > 1
    assert {fact.axes for fact in facts} == {"RAS"}
    told = {"spacing": batch.spacing.numpy(), "orientation": batch.orientation.numpy()}
    assert torch.equal(task.logits(model, batch), model(batch.image, **told))


def test_the_papers_variant_sees_oblique_volumes_in_the_nearest_axes(root, tmp_path):
    with pytest.warns(UserWarning, match=r"cases lie at up to 26 degrees .* variant paper cannot .*--variant exact"):
        run_experiment(make_config(root / "data", variant="paper"), tmp_path, show=False)
    model, config = load_run(tmp_path)
    volume = make_volume(TILT, seed=9)
    expected = torch.from_numpy(predict_probabilities(model, volume, config))[None]
    found = torch.from_numpy(predict_probabilities(model, stored(volume, STORAGES[29]), config))[None]
    assert relative_error(found, STORAGES[29].apply(expected)) < 1e-5


def test_labels_are_written_on_the_grid_of_the_file(root, tmp_path, capsys):
    volume = stored(make_volume(TILT, seed=8), STORAGES[29])
    write_volume(tmp_path, "new", volume)
    command = ["predict", str(root / "told"), "--data", str(tmp_path), "--out"]
    assert main([*command, str(tmp_path / "found")]) == 0
    found = nibabel.load(tmp_path / "found" / "new.nii.gz")
    np.testing.assert_allclose(found.affine, volume.affine, rtol=1e-6, atol=1e-5)
    assert found.shape == volume.image.shape[:0:-1]
    assert main([*command, str(tmp_path / "other"), "--no-tell-orientation"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("how", ["untold", "old", "old without data"])
def test_a_network_that_was_never_told_warns_of_other_axes(root, tmp_path, how):
    run = tmp_path / "run"
    run.mkdir()
    split, config = (json.loads((root / "untold" / name).read_text()) for name in ("split.json", "config.json"))
    if how != "untold":
        del split["axes"], split["oblique"], config["tell_orientation"]
    if how == "old without data":
        config["data"] = "/gone"
    (run / "split.json").write_text(json.dumps(split))
    (run / "config.json").write_text(json.dumps(config))
    read = read_config(run, VolumesConfig)
    assert not read.is_oriented
    watch = AxesWatch(run, read)
    cases = {case.name: read_case(case) for case in find_cases(root / "data")}
    for name in split["train"][: 1 if how == "old without data" else None]:
        watch(cases[name])
    storage = next(s for s in STORAGES if stored(cases["a"], s).affine[0, 0] == 0)
    with pytest.warns(UserWarning, match=r"has axes .*trained on .*train again without --no-tell-orientation"):
        watch(stored(cases["a"], storage))
    watch(stored(cases["a"], storage))  # said once
    AxesWatch(root / "told", read_config(root / "told", VolumesConfig))(stored(cases["a"], storage))


def test_a_network_that_was_never_told_warns_of_oblique_volumes_with_the_same_axes(tmp_path):
    tilted, _ = straighten(make_volume(TILT, seed=8))
    config = make_config(tmp_path, model="unet", width=None, depth=None, num_modes=None)
    for seen, warns in ((0.0, True), (40.0, False)):
        (tmp_path / "split.json").write_text(json.dumps({"train": [], "axes": ["RAS"], "oblique": seen}))
        watch = AxesWatch(tmp_path, config)
        watch(straighten(make_volume(None, seed=8))[0])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            watch(tilted)
            watch(tilted)
        words = "case case lies at 26 degrees to the axes of space, but this network was trained on cases at up to 0"
        assert [str(warning.message).startswith(words) for warning in caught] == [True] * warns


def test_the_papers_variant_warns_once_of_volumes_more_oblique_than_those_of_training(tmp_path):
    config, tilted = make_config(tmp_path, variant="paper"), make_volume(TILT, seed=8)
    straight = stored(make_volume(None, seed=8), STORAGES[29])  # whose axes are put in order
    for seen, warns in ((0.0, True), (26.0, False)):
        (tmp_path / "split.json").write_text(json.dumps({"train": [], "axes": ["RAS"], "oblique": seen}))
        watch = AxesWatch(tmp_path, config)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for volume in (straight, tilted, stored(tilted, STORAGES[29])):
                watch(volume)
        assert ["cannot be told an oblique orientation" in str(one.message) for one in caught] == [True] * warns


def test_a_network_that_is_kept_from_the_orientation_warns_of_other_axes_than_its_own(root):
    watch = AxesWatch(root / "told", read_config(root / "told", VolumesConfig), tell_orientation=False)
    volume, _ = straighten(make_volume(np.eye(3), seed=8))
    watch(volume)
    for storage in STORAGES[1:3]:
        with pytest.warns(UserWarning, match="was trained on RAS and is not told.*leave out --no-tell-orientation"):
            watch(stored(volume, storage))
    with pytest.warns(UserWarning, match="lies at 26 degrees .* was trained with the orientation of each and is not"):
        watch(straighten(make_volume(TILT, seed=8))[0])


def test_a_run_without_test_cases_is_told_what_would_help(root, tmp_path):
    shutil.copytree(root / "told", tmp_path / "run")
    split = json.loads((root / "told" / "split.json").read_text())
    (tmp_path / "run" / "split.json").write_text(json.dumps({**split, "test": []}))
    options = {"turns": (), "storages": 1, "data": None, "most": None, "device": "cpu"}
    with pytest.raises(ValueError, match="has no test cases; name a run with folds, or with a split file"):
        score_run(tmp_path / "run", **options)


def test_an_old_run_does_not_go_on_in_other_axes(root, tmp_path):
    experiment = VolumeExperiment(make_config(root / "data", tell_orientation=False))
    (tmp_path / "checkpoints").mkdir()
    saved = json.loads((root / "untold" / "config.json").read_text())
    del saved["tell_orientation"]
    (tmp_path / "config.json").write_text(json.dumps({**saved, "num_classes": None}))
    VolumeExperiment.__mro__[2].refuse_changes(experiment, tmp_path)
    experiment.config = replace(experiment.config, tell_orientation=True)
    with pytest.raises(CheckpointError, match="tell_orientation=False, not True"):
        VolumeExperiment.__mro__[2].refuse_changes(experiment, tmp_path)


def test_cases_are_tested_turned_and_rearranged(root, tmp_path, capsys):
    told = {"told": True, "untold": False}
    for name, has_both in told.items():
        model, config = load_run(root / name)
        config = replace(config, test_turns=(0.0, 40.0), test_storages=3)
        (row,) = score_cases(model, find_cases(root / "data")[:1], config)
        still, turned, stored_otherwise = row["turned"]
        assert (still["turn"], turned["turn"], stored_otherwise["storages"]) == (0.0, 40.0, 3)
        assert all(("told" in test) == has_both for test in row["turned"])
        assert still["told" if has_both else "untold"] == pytest.approx(row["dice"], abs=0.01)
        if has_both:
            assert stored_otherwise["told"] == pytest.approx(row["dice"], abs=1e-3)
            assert stored_otherwise["untold"] != stored_otherwise["told"]
            (again,) = score_cases(model, find_cases(root / "data")[:1], config)
            assert again["turned"] == row["turned"], "axes and storages belong to the case"
    runs, out = [str(root / name) for name in told], str(tmp_path / "page")
    command = ["compare", "orientations", *runs, "--test-cases", "1", "--turn", "20", "--storages", "2", "--out", out]
    assert main(command) == 0
    assert "stored in 2 ways" in " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / "page" / "report.json").read_text())["runs"]
    assert [list(run["cases"][0]["turned"][0]) for run in found] == [
        ["turn", "told", "untold", "back"],
        ["turn", "untold", "back"],
    ]
    assert all(run["cases"][0]["turned"][1]["back"] == run["cases"][0]["dice"] for run in found)
    assert main([*command, "--storages", "49"]) == 1
    assert "--storages must be 0 to 48" in capsys.readouterr().err
    assert main([*command, "--turn", "15", "200"]) == 1
    assert "--turn must be 0 to 180 degrees, got 15 200" in capsys.readouterr().err


@pytest.mark.skipif(not HIPPOCAMPI.is_dir(), reason="there are no hippocampi")
@pytest.mark.parametrize("name", ["sonicunet3d", "orbitnet3d"])
def test_a_hippocampus_is_one_in_all_48_storages(name):
    volume = read_case(find_cases(HIPPOCAMPI)[0], straight=True)
    config = VolumesConfig(model=name, patch=(24, 32, 24), num_classes=3, overlap=0.25)
    torch.manual_seed(0)
    sizes = {"width": 2, "depth": 2, "num_modes": 2, "group": "C4"} if name == "orbitnet3d" else {}
    model = create_model(name, in_channels=1, num_classes=3, spacing=(1.0, 1.0, 1.0), **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = torch.from_numpy(predict_probabilities(model, volume, config))[None]
        for storage in STORAGES[:: 1 if name == "sonicunet3d" else 9]:
            found = torch.from_numpy(predict_probabilities(model, stored(volume, storage), config))[None]
            assert relative_error(found, storage.apply(expected)) < 1e-4
            same = found.argmax(1) == storage.apply(expected).argmax(1)
            assert same.float().mean() > 0.9999
