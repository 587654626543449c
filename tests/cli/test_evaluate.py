"""``torchsonic evaluate`` as a user meets it."""

import json

import numpy as np
import pytest

from tests.lab.data.nifti import make_affine, make_arrays, write
from tests.lab.made_runs import make_run
from torchsonic.cli import main
from torchsonic.cli.command import UserError
from torchsonic.cli.images import EvaluateImages
from torchsonic.cli.table import KINDS, Group, find_command
from torchsonic.cli.volumes import EvaluateVolumes, PredictVolumes
from torchsonic.lab.runs import folder


def write_predictions(root):
    for seed, name in enumerate(("one", "two")):
        label = make_arrays(seed=seed)[1]
        write(root / "labels" / f"{name}.nii.gz", label, make_affine())
        write(root / "predictions" / f"{name}.nii.gz", np.roll(label, seed, axis=1), make_affine())
    return ["--predictions", str(root / "predictions"), "--labels", str(root / "labels")]


@pytest.fixture
def volumes(tmp_path):
    """As much of a run on volumes of the version before, which did not say its kind, as tells its kind."""
    (tmp_path / "volumes" / "model").mkdir(parents=True)
    (tmp_path / "volumes" / "model" / "config.json").write_text("{}")
    (tmp_path / "volumes" / "config.json").write_text(json.dumps({"data": "data", "patch": [4, 8, 8]}))
    return str(tmp_path / "volumes")


def test_every_kind_of_run_has_its_commands():
    assert set(KINDS) == set(folder.KINDS)


def test_a_run_says_its_kind(volumes):
    for words in ([volumes], ["volumes", volumes], [f"{volumes}/model"], ["--out", "x", volumes]):
        command, _, rest = find_command(["predict", *words])
        assert command is PredictVolumes
        assert volumes in rest
    assert find_command(["evaluate", volumes, volumes])[0] is EvaluateVolumes
    assert find_command(["evaluate", "--predictions", "p", "--no-pictures"])[0] is EvaluateVolumes
    assert find_command(["evaluate", "--resolutions=96", "--help"])[0] is EvaluateImages
    assert isinstance(find_command(["evaluate", "--help"])[0], Group)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["predict", "SYNTHETIC"],
            "SYNTHETIC is a run on synthetic data, which predict cannot use; give a run on images, volumes or masks",
        ),
        (["evaluate", "arrays", "--help"], "evaluate: there is no 'evaluate arrays'; give a run on"),
        (
            ["evaluate", "SYNTHETIC", "VOLUMES"],
            "VOLUMES is a run on volumes data; SYNTHETIC is not; name runs of one",
        ),
        (["evaluate", "images", "VOLUMES"], "VOLUMES is a run on volumes data; leave out 'images'"),
        (["predict", "nowhere"], "there is no folder nowhere; name the folder of a run"),
        (["predict", "volume"], "there is no folder volume; did you mean 'volumes'?"),
        (["evaluate", "--out", "x"], "name the folder of a run, or one of the kinds images, volumes"),
    ],
)
def test_a_run_that_a_command_cannot_use_is_refused(words, complaint, volumes, tmp_path):
    places = {"SYNTHETIC": str(make_run(tmp_path, with_model=True)), "VOLUMES": volumes}
    with pytest.raises(UserError) as refused:
        find_command([places.get(word, word) for word in words])
    text = str(refused.value)
    for name, place in places.items():
        text = text.replace(place, name)
    assert complaint in text


@pytest.mark.parametrize("words", [["evaluate"], ["evaluate", "synthetic"]])
def test_a_synthetic_run_is_tested_again(words, tmp_path, capsys):
    pytest.importorskip("rich", reason="rich is not installed")
    run = make_run(tmp_path, task="halligalli", model="convnet", test_samples=4, with_model=True)
    before = json.loads((run / "results.json").read_text())
    assert main([*words, str(run)]) == 0
    after = json.loads((run / "results.json").read_text())
    assert after["run"] == before["run"]
    assert after["rows"] != before["rows"], "the numbers made up are gone"
    assert "convnet on halligalli" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no/such/run"], "there is no folder no/such/run"),
        (["volumes"], "name runs, or use --predictions and --labels, but not both"),
        (["volumes", "run", "--predictions", "p"], "name runs, or use --predictions and --labels, but not both"),
        (["volumes", "--predictions", "p"], "--predictions needs --labels"),
        (["volumes", "run", "--labels", "l"], "--labels belongs to --predictions, not to runs"),
        (["volumes", "--predictions", "p", "--labels", "l", "--external", "e"], "--external belongs to runs"),
        (["volumes", "run", "--external", "e", "--data", "d"], "--external and --data cannot be combined"),
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
