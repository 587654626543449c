"""``torchsonic export`` as a user meets it."""

import json

import pytest
import torch

from torchsonic.cli import main
from torchsonic.export import load_exported
from torchsonic.models import SonicClassifier, SonicNet, from_pretrained

pytest.importorskip("tyro")


@pytest.fixture
def saved(tmp_path):
    # It wraps: a margin follows the spacing, which then cannot be an input.
    model = SonicNet(1, 2, width=8, depth=1, num_modes=4, field=16, padding_mode="circular")
    return model.save_pretrained(tmp_path / "saved")


@pytest.fixture
def run_folder(tmp_path):
    """What a training run leaves, as far as an export looks at it."""
    folder = tmp_path / "run"
    SonicClassifier(num_classes=3, widths=(8, 16), depths=(1, 1)).save_pretrained(folder / "model")
    (folder / "config.json").write_text(json.dumps({"image_size": 32}))
    (folder / "classes.json").write_text(json.dumps({"classes": ["cat", "dog", "owl"]}))
    return folder


def test_a_saved_model_is_exported_and_checked(saved, tmp_path, capsys):
    out = tmp_path / "new" / "net.pt2"
    assert main(["export", str(saved), "--to", "pt2", "--size", "12", "14", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "checked: 1 x 1 x 12 x 14: error" in shown
    assert "ratio" in shown
    assert f"written: {out}" in shown
    assert load_exported(out, "pt2")(torch.randn(1, 1, 12, 14)).shape == (1, 2, 12, 14)


def test_a_run_knows_its_size_and_classes(run_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run_folder), "--to", "pt2", "--dynamic", "batch"]) == 0
    assert capsys.readouterr().out.count("checked:") == 3
    exported = load_exported(tmp_path / "run.pt2", "pt2")
    assert exported.metadata["classes"] == ["cat", "dog", "owl"]
    assert exported.metadata["size"] == [32, 32]
    assert exported(torch.randn(2, 3, 32, 32)).shape == (2, 3)


def test_onnx_without_a_check(saved, tmp_path, capsys):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    out = tmp_path / "net.onnx"
    told = ["--spacing-input", "batch", "--orientation-input", "batch"]
    arguments = ["--size", "12", *told, "--no-check", "--out", str(out)]
    assert main(["export", str(saved), *arguments]) == 0
    assert "checked" not in capsys.readouterr().out
    assert load_exported(out, "onnx")(torch.randn(1, 1, 12, 12), torch.ones(2), torch.eye(2)).shape == (1, 2, 12, 12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--size is needed"),
        (["--size", "8", "--to", "pt2", "--spacing", "0"], "spacing must be positive"),
        (["--size", "8", "8", "8", "--to", "pt2"], "axes"),
        (["--size", "8", "--to", "pt2", "--opset", "20"], "opset=20 is only for"),
        (["--size", "8", "--to", "aoti", "--out", "net.so"], "path must end in .pt2"),
    ],
)
def test_mistakes_end_in_one_line(arguments, words, saved, capsys):
    assert main(["export", str(saved), *arguments]) == 1
    complaint = capsys.readouterr().err
    assert words in complaint
    assert complaint.count("\n") == 1


def test_an_unknown_model_is_refused(capsys):
    assert main(["export", "no_such_model"]) == 1
    assert "no_such_model is neither a folder nor a model" in capsys.readouterr().err


def test_the_model_of_a_run_on_images_knows_its_size_and_classes_alone(run_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = {"classes": ["cat", "dog", "owl"], "image_size": 24, "pixel_width": None, "test_crop": 1.0}
    (run_folder / "model" / "images.json").write_text(json.dumps(facts))
    assert main(["export", str(run_folder / "model"), "--to", "pt2"]) == 0
    metadata = load_exported(tmp_path / "run.pt2", "pt2").metadata
    assert metadata["classes"] == ["cat", "dog", "owl"]
    assert metadata["size"] == [24, 24]
    assert metadata["spacing"] == []


def test_a_run_that_told_its_network_the_width_of_pixels_is_exported_so(run_folder, tmp_path, capsys):
    (run_folder / "config.json").write_text(json.dumps({"image_size": 32, "pixel_width": 2.0}))
    out, x = tmp_path / "net.pt2", torch.randn(1, 3, 32, 32)
    assert main(["export", str(run_folder), "--to", "pt2", "--out", str(out)]) == 0
    assert "spacing 2, as in training" in capsys.readouterr().out
    model = from_pretrained(run_folder / "model")
    with torch.no_grad():
        expected, untold = model(x, spacing=2.0), model(x)
    torch.testing.assert_close(load_exported(out, "pt2")(x), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
    assert (expected - untold).abs().max() > 1e-2 * expected.abs().max(), "the spacing changes nothing"
    assert main(["export", str(run_folder), "--to", "pt2", "--spacing", "1", "--out", str(out)]) == 0
    torch.testing.assert_close(load_exported(out, "pt2")(x), untold, rtol=0, atol=1e-4 * float(untold.abs().max()))


def test_files_of_runs_have_names_of_their_own_and_say_how_photographs_are_prepared(run_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "tiny-32px" / "seed0"
    folder.parent.mkdir(parents=True)
    run_folder.rename(folder)
    (folder / "config.json").write_text(json.dumps({"image_size": 32, "test_crop": 0.875}))
    for given in (folder, folder / "model"):
        assert main(["export", str(given), "--to", "pt2", "--size", "32", "--no-check"]) == 0
        path = tmp_path / "tiny-32px-seed0.pt2"
        preparation = load_exported(path, "pt2").metadata["preparation"]
        path.unlink()
        if given == folder:
            assert preparation["middle"] == 0.875
            assert preparation["mean"] == [0.485, 0.456, 0.406]


def test_every_long_step_is_announced(tmp_path, capsys):
    assert main(["export", "shapes", "--to", "pt2", "--size", "16", "--out", str(tmp_path / "net.pt2")]) == 0
    steps = [line for line in capsys.readouterr().out.splitlines() if line.endswith("...")]
    assert steps == ["tracing SynthShapeNet ...", "writing net.pt2 ...", "comparing it with PyTorch ..."]
