"""``torchsonic evaluate`` as a user meets it."""

import json

import numpy as np
import pytest

from tests.lab.data.nifti import make_affine, make_arrays, write
from tests.lab.made_runs import make_run
from torchsonic.cli import main
from torchsonic.cli.command import UserError
from torchsonic.cli.run_kind import name_kind
from torchsonic.lab.runs.folder import RunError, kind_of

KINDS = {"evaluate": ["synthetic", "volumes"], "predict": ["volumes", "images"]}


def write_predictions(root):
    for seed, name in enumerate(("one", "two")):
        label = make_arrays(seed=seed)[1]
        write(root / "labels" / f"{name}.nii.gz", label, make_affine())
        write(root / "predictions" / f"{name}.nii.gz", np.roll(label, seed, axis=1), make_affine())
    return ["--predictions", str(root / "predictions"), "--labels", str(root / "labels")]


def test_the_kind_of_a_run_is_found(tmp_path):
    synthetic = make_run(tmp_path)
    volumes = tmp_path / "volumes"
    volumes.mkdir()
    (volumes / "config.json").write_text(json.dumps({"data": "data", "patch": [4, 8, 8]}))
    assert kind_of(synthetic) == "synthetic"
    assert kind_of(volumes) == "volumes"
    with pytest.raises(RunError, match="there is no folder"):
        kind_of(tmp_path / "nowhere")
    assert name_kind(["evaluate", str(volumes), "--out", "x"], KINDS) == [
        "evaluate",
        "volumes",
        str(volumes),
        "--out",
        "x",
    ]
    assert name_kind(["predict", str(volumes)], KINDS) == ["predict", "volumes", str(volumes)]
    with pytest.raises(UserError, match="is a run on synthetic data; this command knows volumes, images"):
        name_kind(["predict", str(synthetic)], KINDS)
    for words in (["evaluate"], ["evaluate", "--help"], ["evaluate", "volumes", "--external", "x"], ["report", "x"]):
        assert name_kind(words, KINDS) == words


@pytest.mark.parametrize("words", [["evaluate"], ["evaluate", "synthetic"]])
def test_a_synthetic_run_is_tested_again(words, tmp_path, capsys):
    pytest.importorskip("rich", reason="rich is not installed")
    folder = make_run(tmp_path, task="halligalli", model="convnet", test_samples=4, with_model=True)
    before = json.loads((folder / "results.json").read_text())
    assert main([*words, str(folder)]) == 0
    after = json.loads((folder / "results.json").read_text())
    assert after["run"] == before["run"]
    assert after["rows"] != before["rows"], "the numbers made up are gone"
    assert "convnet on halligalli" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no/such/run"], "no/such/run holds no finished run"),
        (["volumes"], "give runs, or --predictions and --labels, but not both"),
        (["volumes", "run", "--predictions", "p"], "give runs, or --predictions and --labels, but not both"),
        (["volumes", "--predictions", "p"], "--predictions needs --labels"),
        (["volumes", "run", "--labels", "l"], "--labels belongs to --predictions, not to runs"),
        (["volumes", "--predictions", "p", "--labels", "l", "--external", "e"], "--external belongs to runs"),
        (["volumes", "run", "--external", "e", "--data", "d"], "--external and --data exclude each other"),
        (["volumes", "--predictions", "p", "--labels", "l", "--probabilities", "c"], "--probabilities needs --lesions"),
        (["volumes", "run", "--threshold", "0"], "--threshold must be in (0, 1], got 0.0"),
        (["volumes", "run", "--tolerance", "-1"], "--tolerance must be positive, got -1.0"),
        (["volumes", "run", "--threshold", "0.3"], "--threshold needs --lesions"),
        (["volumes", "--predictions", "p", "--labels", "l", "--device", "cuda"], "--device belongs to runs"),
        (["volumes", "--predictions", "p", "--labels", "l"], "there is no folder p"),
    ],
)
def test_mistakes_end_in_one_line(arguments, words, capsys):
    pytest.importorskip("monai", reason="MONAI is not installed")
    pytest.importorskip("nibabel", reason="nibabel is not installed")
    assert main(["evaluate", *arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_predictions_of_any_tool_are_scored_and_reported(tmp_path, capsys):
    pytest.importorskip("monai", reason="MONAI is not installed")
    pytest.importorskip("nibabel", reason="nibabel is not installed")
    arguments = write_predictions(tmp_path)
    out = tmp_path / "out"
    assert main(["evaluate", "volumes", *arguments, "--classes", "wall", "cavity", "--out", str(out)]) == 0
    assert "written:" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {"report.html", "report.md", "report.json", "pictures"}
    assert len(list((out / "pictures").iterdir())) == 2
    data = json.loads((out / "report.json").read_text())
    assert data["classes"] == ["wall", "cavity"]
    assert data["models"][0]["cases"]["one"]["scores"][0]["dice"] == 1.0
    assert data["models"][0]["cases"]["two"]["scores"][0]["dice"] < 1.0


def test_a_bad_case_stops_the_command_or_is_left_out(tmp_path, capsys):
    pytest.importorskip("monai", reason="MONAI is not installed")
    pytest.importorskip("nibabel", reason="nibabel is not installed")
    arguments = [*write_predictions(tmp_path), "--no-pictures", "--out", str(tmp_path / "out")]
    write(tmp_path / "predictions" / "two.nii.gz", make_arrays()[1][:-1], make_affine())
    assert main(["evaluate", "volumes", *arguments]) == 1
    assert "torchsonic: case two: " in capsys.readouterr().err
    assert main(["evaluate", "volumes", *arguments, "--keep-going"]) == 0
    assert "warning: left out: two: case two: " in capsys.readouterr().err
