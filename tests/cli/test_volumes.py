"""Training on volumes and predicting them as a user does."""

import json

import numpy as np
import pytest

from tests.lab.data.nifti import make_affine, make_arrays, spoil, write, write_folder
from torchsonic.cli import main, parse

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed")

TINY = [
    "--preset",
    "smoke",
    "--model",
    "sonicnet3d.light",
    "--width",
    "8",
    "--depth",
    "1",
    "--num-modes",
    "6",
    "--folds",
    "2",
    "--steps",
    "3",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("cli")
    write_folder(root / "hearts", 4)
    assert main(["train", "volumes", "--data", str(root / "hearts"), "--out", str(root / "runs"), *TINY]) == 0
    (folder,) = (root / "runs" / "volumes" / "hearts").glob("*/fold0-seed0")
    return root, folder


def test_a_smoke_run_trains_and_tests(trained, capsys):
    root, folder = trained
    results = json.loads((folder / "results.json").read_text())
    assert results["config"]["training"]["steps"] == 3
    assert results["config"]["patch"] is not None
    assert len(results["cases"]) == 2
    arguments = ["train", "volumes", "--data", str(root / "hearts"), "--out", str(root / "runs"), *TINY]
    assert main(arguments) == 0
    assert "2 cases" in capsys.readouterr().out
    assert main([*arguments, "--foreground", "0.1"]) == 1
    assert "the run to resume had foreground=0.5, not 0.1" in capsys.readouterr().err


def test_predictions_keep_grid_and_affine(trained, tmp_path, capsys):
    _, folder = trained
    affine = make_affine((5.0, 1.1, 0.9), origin=(3.0, -4.0, 5.5))
    affine[:3, :3] = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]) @ affine[:3, :3]
    for name, shape in (("x", (5, 18, 14)), ("y", (9, 10, 22))):
        write(tmp_path / "new" / f"{name}.nii.gz", make_arrays(shape)[0], affine)
    out = tmp_path / "found"
    assert main(["predict", str(folder), "--data", str(tmp_path / "new"), "--out", str(out)]) == 0
    assert "2 of 2 cases written" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == ["x.nii.gz", "y.nii.gz"]
    for name in "xy":
        image, labels = (nibabel.load(where / f"{name}.nii.gz") for where in (tmp_path / "new", out))
        assert labels.shape == image.shape
        np.testing.assert_array_equal(labels.affine, image.affine)
        assert set(np.unique(labels.dataobj)) <= {0, 1, 2}
        assert labels.get_data_dtype() == np.uint8
    arguments = ["predict", "volumes", str(folder), "--data", str(tmp_path / "new"), "--out", str(tmp_path / "untold")]
    assert main([*arguments, "--no-tell-spacing"]) == 0


def test_predictions_do_not_overwrite_the_data(trained, tmp_path, capsys):
    _, folder = trained
    write_folder(tmp_path, 2)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.nii.gz")}
    for data, out in ((".", "labels"), (".", "images"), ("images", "images")):
        arguments = ["predict", "volumes", str(folder), "--data", str(tmp_path / data), "--out", str(tmp_path / out)]
        assert main(arguments) == 1
        assert "would be overwritten" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.nii.gz")} == before


def test_a_bad_case_is_named_or_left_out_when_predicting(trained, tmp_path, capsys):
    _, folder = trained
    write_folder(tmp_path / "new", 3)
    spoil(tmp_path / "new", "case_b", "unreadable")
    for channel in range(2):
        write(tmp_path / "new" / "images" / f"two_{channel:04d}.nii.gz", make_arrays()[0], make_affine())
    arguments = ["predict", "volumes", str(folder), "--data", str(tmp_path / "new"), "--out", str(tmp_path / "out")]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert "torchsonic: case case_b: " in error
    assert "Traceback" not in error
    assert main([*arguments, "--keep-going"]) == 0
    shown = capsys.readouterr()
    assert "warning: left out: case case_b: " in shown.err
    assert "warning: left out: case two: " in shown.err
    assert "the image has 2 channels, but the network was trained with 1" in shown.err
    assert "2 of 4 cases written" in shown.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["case_a.nii.gz", "case_c.nii.gz"]


def test_a_bad_case_is_named_or_left_out_when_training(tmp_path, capsys):
    write_folder(tmp_path / "data", 5)
    spoil(tmp_path / "data", "case_c", "no affine")
    arguments = ["train", "volumes", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "runs"), *TINY]
    assert main(arguments) == 1
    assert "case case_c: " in capsys.readouterr().err
    assert main([*arguments, "--keep-going"]) == 0
    shown = capsys.readouterr()
    assert "warning: left out: case case_c: " in shown.err
    assert "1 case left out: case_c" in shown.out


def test_all_folds_are_trained_and_averaged(tmp_path, capsys):
    write_folder(tmp_path / "data", 4)
    arguments = ["train", "volumes", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "runs"), *TINY]
    assert main([*arguments, "--all-folds", "--mirror", "--chance", "0"]) == 0
    results = [json.loads(path.read_text()) for path in sorted((tmp_path / "runs").rglob("results.json"))]
    tested = [row["case"] for result in results for row in result["cases"]]
    assert sorted(tested) == [f"case_{letter}" for letter in "abcd"]
    assert results[0]["config"]["augmentation"]["mirror"] == []
    mean = sum(result["dice"] for result in results) / 2
    assert f"mean Dice over 2 runs: {mean:.3f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "volumes", "--data", "no/such/folder"], "no/such/folder/images; a data folder contains"),
        (["train", "volumes", "--split", "no.json", "--all-folds"], "--all-folds and --split cannot be combined"),
        (["predict", "volumes", "no/run", "--data", "a", "--out", "b"], "there is no folder no/run"),
    ],
)
def test_mistakes_end_in_one_line(arguments, words, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_setting_that_cannot_be_is_refused_without_a_traceback(capsys):
    with pytest.raises(SystemExit):
        main(["train", "volumes", "--overlap", "2"])
    shown = capsys.readouterr()
    assert "overlap must be in [0, 1), got 2.0" in shown.out + shown.err


def test_the_spacing_of_all_cases_has_the_name_of_every_spacing(capsys):
    command = parse(["train", "volumes", "--spacing", "5", "1.5", "1.5"])
    assert command.configs()[0].common_spacing == (5.0, 1.5, 1.5)
    assert parse(["train", "volumes", "--common-spacing", "median"]).common_spacing == "median"
    assert "warning: --common-spacing is now --spacing" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse(["train", "volumes", "--spacing", "0", "1", "1"])
    assert "torchsonic: --spacing must be positive" in capsys.readouterr().err
