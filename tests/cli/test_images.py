"""Training on pictures, testing at other sizes and predicting, as a user does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")
pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")

from tests.lab.data.pictures import write_pictures
from torchsonic.cli import main

SMALL = ["--preset", "smoke", "--image-size", "32", "--steps", "2", "--batch", "4"]
MODELS = {
    "sonic_tiny": ["widths=8,16", "depths=1,1"],
    "resnet50_gfnet": ["width=8", "depths=1,1,1,1"],
}
DATA = Path(os.environ.get("TORCHSONIC_DATA", Path(__file__).parents[3] / "shared" / "data"))
IMAGENETTE = DATA / "imagenette"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("cli")
    write_pictures(root / "pictures")
    for model, options in MODELS.items():
        arguments = ["train", "images", "--data", str(root / "pictures"), "--out", str(root / "runs"), *SMALL]
        assert main([*arguments, "--model", model, "--model-options", *options]) == 0
    folders = sorted(path.parent for path in (root / "runs").rglob("results.json"))
    return root, {json.loads((f / "results.json").read_text())["config"]["model"]: f for f in folders}


def test_evaluation_writes_a_report_beside_the_papers(trained, tmp_path, capsys):
    _, folders = trained
    arguments = ["evaluate", "images", *map(str, folders.values()), "--resolutions", "24,48,24x64"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "given the spacing" in shown
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.md", "report.json", "sizes.png"}
    report = json.loads((tmp_path / "report.json").read_text())
    curves = {(curve["model"].split()[0], curve["told"]): curve for curve in report["curves"]}
    assert set(curves) == {("sonic_tiny", False), ("sonic_tiny", True), ("resnet50_gfnet", None)}
    assert [point["size"] for point in curves["sonic_tiny", True]["points"]] == [24, "24x64", 32, 48]
    assert report["paper"]["ResNet-50"]["96"] == 30.38
    page = (tmp_path / "report.html").read_text()
    assert 'src="http' not in page
    assert "data:image/png;base64," in page
    assert main(["evaluate", str(folders["sonic_tiny"]), "--resolutions", "24", "--out", str(tmp_path)]) == 0


def test_predictions_are_words_or_json(trained, tmp_path, capsys):
    root, folders = trained
    arguments = ["predict", str(folders["sonic_tiny"]), "--data", str(root / "pictures" / "val" / "red")]
    capsys.readouterr()
    assert main([*arguments, "--top", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 3
    assert all(len(row["top"]) == 2 for row in rows)
    assert main([*arguments, "--top", "2", "--out", str(tmp_path / "answers.json")]) == 0
    assert json.loads((tmp_path / "answers.json").read_text()) == rows
    assert main([*arguments, "--size", "48"]) == 0
    assert "000.png: " in capsys.readouterr().out


def test_the_model_of_a_run_predicts_wherever_it_is_copied(trained, tmp_path, capsys):
    root, folders = trained
    copy = shutil.copytree(folders["sonic_tiny"] / "model", tmp_path / "copy")
    answers = []
    for folder in (folders["sonic_tiny"], folders["sonic_tiny"] / "model", copy):
        capsys.readouterr()
        assert main(["predict", str(folder), str(root / "pictures" / "val" / "red")]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] == answers[2] != ""


def test_prediction_fails_where_no_image_can_be_read(trained, tmp_path, capsys):
    _, folders = trained
    (tmp_path / "empty.jpg").touch()
    os.mkfifo(tmp_path / "pipe.jpg")  # reading it would never end
    assert main(["predict", "images", str(folders["sonic_tiny"]), str(tmp_path)]) == 1
    assert "no image could be read" in capsys.readouterr().err
    assert main(["predict", "images", str(folders["sonic_tiny"]), str(tmp_path / "pipe.jpg")]) == 1
    assert "is neither a file nor a folder" in capsys.readouterr().err


def test_fine_tuning_says_what_was_loaded(trained, tmp_path, capsys):
    root, folders = trained
    source = str(folders["sonic_tiny"])
    arguments = ["train", "images", "--data", str(root / "pictures"), "--out", str(tmp_path), *SMALL, "--init", source]
    assert main(arguments) == 0
    named = "/".join(Path(source).parts[-2:])  # without the folders above, which results are passed on without
    assert f"tensors from {named}, whose classes are the same" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "images", "--data", "no/such/folder"], "no/such/folder/train"),
        (["evaluate", "images", "no/run"], "no/run contains no finished run on images"),
        (["evaluate", "images", "no/run", "--resolutions", "96;128"], "--resolutions must be sizes"),
        (["evaluate", "images", "no/run", "--resolutions", "96,64x4"], "--resolutions must be sizes"),
        (["predict", "images", "no/run", "a.png"], "there is no folder no/run"),
        (["predict", "images", "no/run", "a.png", "--top", "0"], "--top must be at least 1, got 0"),
        (["predict", "images", "no/run", "a.png", "--device", "no"], "--device no: Expected one of cpu"),
        (["evaluate", "images", "no/run", "--device", "cuda:77"], "--device cuda:77: "),
        (["train", "images", "--seed", "1", "-1"], "--seed must not be negative, got 1, -1"),
    ],
)
def test_mistakes_end_in_one_line(arguments, words, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--image-size", "3"], "--image-size must be at least 8, got 3"),
        (["--learning-rate", "inf"], "--learning-rate must be positive and finite, got inf"),
        (["--weight-decay", "nan"], "--weight-decay must not be negative, nor infinite, got nan"),
        (["--init", "run", "--model-options", "width=8"], "--model-options belong to a new network"),
    ],
)
def test_refused_settings_end_in_one_line(arguments, words, capsys):
    with pytest.raises(SystemExit):
        main(["train", "images", *arguments])
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_no_run_is_tested_before_all_are_found_good(trained, tmp_path, capsys, monkeypatch):
    def fail(*args, **options):
        raise AssertionError("a run was tested")

    monkeypatch.setattr("torchsonic.lab.report.image_sizes.results.score_sizes", fail)
    _, folders = trained
    good = folders["sonic_tiny"]
    stopped = tmp_path / "stopped"
    (stopped / "checkpoints").mkdir(parents=True)
    (tmp_path / "file").touch()
    capsys.readouterr()
    for arguments, words in (
        ([good, stopped], "has not finished; run its command again"),
        ([good, good.parent], f"did you mean {good}?"),
        ([good, good], f"{good} is named twice"),
        ([good, "--out", tmp_path / "file"], "file is a file; name a folder"),
    ):
        assert main(["evaluate", "images", "--out", str(tmp_path / "out"), *map(str, arguments)]) == 1
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


def test_images_that_were_moved_are_asked_for(trained, tmp_path, capsys):
    _, folders = trained
    copy = shutil.copytree(folders["sonic_tiny"], tmp_path / "run")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "data": str(tmp_path / "gone")}))
    capsys.readouterr()
    assert main(["evaluate", "images", str(copy), "--out", str(tmp_path / "out")]) == 1
    assert "gone; use --data to say where" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_names_that_cannot_be_shown_end_no_command(trained, tmp_path, encoding):
    root, folders = trained
    image = next((root / "pictures" / "val" / "red").iterdir()).read_bytes()
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")).write_bytes(image)
    except OSError:
        pytest.skip("this file system takes no such names")
    (tmp_path / "猫.png").write_bytes(image)
    command = [sys.executable, "-m", "torchsonic.cli", "predict", "images", str(folders["sonic_tiny"]), str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert rb"caf\udce9.png" in done.stdout


def test_images_left_out_are_counted_beside_json(trained, tmp_path, capsys):
    _, folders = trained
    (tmp_path / "bad.png").write_bytes(b"no picture")
    capsys.readouterr()
    assert main(["predict", "images", str(folders["sonic_tiny"]), str(tmp_path), "--json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out) == []
    assert "1 of 1 images could not be read" in shown.err


def test_a_wrong_network_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        main(["train", "images", "--model", "resnet50_sonc"])
    assert "resnet50_sonic" in " ".join(capsys.readouterr())


@pytest.mark.skipif(
    not IMAGENETTE.is_dir(), reason="imagenette is not beside the checkout, nor where TORCHSONIC_DATA says"
)
def test_real_photographs_are_all_readable():
    from torchsonic.lab.data.images.folder import find_images, leave_out_bad

    images = find_images(IMAGENETTE / "val")
    assert (len(images), len(images.classes)) == (800, 10)
    good, bad = leave_out_bad(images.take(range(0, 800, 20)), strict=True)
    assert (len(good), bad) == (40, {})


@pytest.mark.parametrize("task", ["images", "halligalli"])
def test_memory_that_runs_out_in_training_is_a_sentence(task, tmp_path, capsys, monkeypatch):
    def starve(*arguments, **options):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")

    monkeypatch.setattr("torchsonic.cli.train.run", starve)
    assert main(["train", task, "--preset", "smoke", "--out", str(tmp_path)]) == 1
    assert "out of memory; try a smaller --batch" in capsys.readouterr().err
