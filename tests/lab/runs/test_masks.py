"""Runs on pictures and masks: they learn, resume, predict, and everything that other runs can do."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("PIL", reason="Pillow is not installed")
pytest.importorskip("scipy", reason="SciPy is not installed")
pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")

from PIL import Image

from tests import programs
from tests.lab.data.discs import make_scene, write_discs
from torchsonic.cli import main
from torchsonic.lab.data.masks import find_pairs, read_mask, read_pair
from torchsonic.lab.data.volumes.survey import Facts
from torchsonic.lab.runs.folder import kind_of
from torchsonic.lab.runs.masks import (
    PRESETS,
    MaskExperiment,
    MasksConfig,
    load_run,
    predict_mask,
    predict_masks,
    run_experiment,
)
from torchsonic.lab.runs.settings import choose_preset
from torchsonic.lab.training import CheckpointError
from torchsonic.models import create_model
from torchsonic.nn import sonic_layers


def small_network(name, **options):
    if name.startswith("sonicunet"):
        return create_model(name, widths=(8, 16), num_modes=(8, 12), **options)
    return create_model(name, width=8, depth=2, num_modes=6, **options)


@pytest.fixture(autouse=True)
def _small_network(monkeypatch):
    monkeypatch.setattr("torchsonic.lab.runs.masks.create_model", small_network)


def small_config(data, *, steps=6, **changes) -> MasksConfig:
    config = MasksConfig(data=data, folds=3, patch=(40, 40), test_patches=4, **changes)
    options = {"steps": steps, "checkpoint_every": 3, "log_every": 3, "accelerator": "cpu"}
    return replace(config, training=replace(config.training, **options))


@pytest.fixture(scope="module")
def discs(tmp_path_factory):
    return write_discs(tmp_path_factory.mktemp("discs"), 9)


@pytest.fixture(scope="module")
def learnt(discs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("learnt") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchsonic.lab.runs.masks.create_model", small_network)
        return folder, run_experiment(small_config(discs, steps=120, instances=True), folder, show=False)


def test_it_learns_to_tell_touching_discs_apart(learnt):
    folder, results = learnt
    assert results["dice"] > 0.9
    assert results["boundary"] > 0.9
    assert results["precision_per_threshold"][0] > 0.9
    assert len(results["cases"]) == 3
    assert kind_of(folder) == "masks"
    assert json.loads((folder / "results.json").read_text()) == results


def test_classes_are_scored_one_by_one(tmp_path):
    results = run_experiment(small_config(write_discs(tmp_path, 6, classes=True)), tmp_path / "run", show=False)
    assert results["config"]["num_classes"] == 3
    assert len(results["dice_per_class"]) == len(results["boundary_per_class"]) == 2
    assert "precision" not in results
    assert results["config"]["spacing"] == "pixels"


def test_a_resumed_run_ends_with_the_same_bits(discs, tmp_path):
    config = small_config(discs, instances=True)
    run_experiment(config, tmp_path / "whole", show=False)

    class StopError(Exception):
        pass

    def stop(self, *, show):
        task = MaskExperiment.__mro__[1].task(self, show=show)
        batch = task.batch

        def limited(step, samples):
            if step == 4:
                raise StopError
            return batch(step, samples)

        task.batch = limited
        return task

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaskExperiment, "task", stop)
        with pytest.raises(StopError):
            run_experiment(config, tmp_path / "stopped", show=False)
    assert not (tmp_path / "stopped" / "model").exists()
    run_experiment(config, tmp_path / "stopped", show=False)
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert weights[0] == weights[1]


def test_other_settings_or_files_are_not_resumed(discs, tmp_path):
    data = write_discs(tmp_path / "data", 6)
    config = small_config(data, instances=True)
    run_experiment(config, tmp_path / "run", show=False)
    with pytest.raises(CheckpointError, match="num_classes=3, not 4"):
        run_experiment(replace(config, instances=False), tmp_path / "run", show=False)
    with pytest.raises(CheckpointError, match=r"had spacing=pixels, not \[0\.5\]"):
        run_experiment(replace(config, spacing=(0.5,)), tmp_path / "run", show=False)
    name = json.loads((tmp_path / "run" / "split.json").read_text())["train"][0]
    mask = data / "masks" / f"{name}.png"
    Image.fromarray(np.roll(read_mask(mask), 1).astype(np.uint8)).save(mask)
    with pytest.raises(CheckpointError, match=f"learned from other files of {name}"):
        run_experiment(config, tmp_path / "run", show=False)


@pytest.mark.parametrize("model", ["sonicunet2d", "sonicnet2d"])
def test_a_batch_of_mixed_pixel_sizes_is_each_alone(discs, tmp_path, model):
    table = tmp_path / "sizes.csv"
    table.write_text("".join(f"scene{n},{0.9 + n / 4},{0.95 + n / 8}\n" for n in range(9)))
    experiment = MaskExperiment(small_config(discs, model=model, spacing_table=table, instances=True))
    facts, num_classes = experiment._look_at_data(show=False)
    network = experiment.make_model(facts, num_classes).eval()
    task = experiment.task(show=False)
    batch = task.batch(0, range(4))
    assert len({tuple(steps) for steps in batch.spacing[:, 1:].tolist()}) > 1
    with torch.no_grad():
        together = task.logits(network, batch)
        for place in range(4):
            alone = task.logits(network, type(batch)(*[part[place : place + 1] for part in batch]))
            torch.testing.assert_close(together[place : place + 1], alone, rtol=1e-4, atol=1e-4)
        untold = network(batch.image[:, :, 0])[:, :, None]
    assert (untold - together).abs().max() > 1e-3
    assert network.arguments["spacing"] == tuple(np.median([f.spacing[1:] for f in facts], axis=0))


def test_tags_are_used_where_files_have_them(tmp_path):
    data = write_discs(tmp_path / "data", 4)
    for path in sorted((data / "images").iterdir()):
        with Image.open(path) as picture:
            picture.load()
        picture.save(path.with_suffix(".tif"), resolution=50800, resolution_unit="inch")
        path.unlink()
    results = run_experiment(small_config(data, instances=True), tmp_path / "run", show=False)
    assert results["config"]["spacing"] == "tags"
    assert results["cases"][0]["spacing"] == pytest.approx([0.5, 0.5])
    assert results["config"]["tolerance"] == pytest.approx(1.0)
    Image.fromarray(make_scene(0)[0]).save(tmp_path / "bare.png")
    with pytest.raises(ValueError, match="give --spacing"):
        predict_masks(tmp_path / "run", tmp_path / "bare.png", tmp_path / "out", show=False)
    assert predict_masks(tmp_path / "run", tmp_path / "bare.png", tmp_path / "out", (0.5,), show=False) == (1, 1)


def test_masks_have_the_name_and_size_of_the_image(learnt, tmp_path):
    folder, _ = learnt
    images = tmp_path / "new" / "images"
    (images / "inner").mkdir(parents=True)
    sizes = {"a": (48, 56), "inner/b": (33, 70)}
    for name, size in sizes.items():
        Image.fromarray(make_scene(40, size)[0]).save(images / f"{name}.png")
    assert predict_masks(folder, tmp_path / "new", tmp_path / "out", show=False) == (2, 2)
    for name, size in sizes.items():
        found = read_mask(tmp_path / "out" / f"{name}.png")
        assert found.shape == size
        assert found.max() >= 2
    with pytest.raises(ValueError, match="could overwrite"):
        predict_masks(folder, tmp_path / "new", images, show=False)
    (images / "c.png").write_text("broken")
    with pytest.raises(ValueError, match="cannot be read"):
        predict_masks(folder, images, tmp_path / "out", show=False)
    with pytest.warns(UserWarning, match="left out: case c"):
        assert predict_masks(folder, images, tmp_path / "out", keep_going=True, show=False) == (2, 3)


def test_large_images_are_seen_in_windows(learnt, discs, monkeypatch):
    model, config = load_run(learnt[0])
    volume = read_pair(find_pairs(discs)[0])
    sizes = []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda x, spacing=None: sizes.append(x.shape[2:]) or forward(x, spacing))
    whole = predict_mask(model, volume, config)
    assert sizes == [volume.image.shape[2:]]
    windows = predict_mask(model, volume, replace(config, whole_pixels=100))
    assert set(sizes[1:]) == {torch.Size(config.patch)}
    assert len(sizes) > 2
    assert ((whole > 0) == (windows > 0)).mean() > 0.95

    def exhaust(x, spacing=None):
        if x.shape[2:] != config.patch:
            raise torch.OutOfMemoryError("out of memory")
        return forward(x, spacing)

    monkeypatch.setattr(model, "forward", exhaust)
    np.testing.assert_array_equal(predict_mask(model, volume, config), windows)


def test_bad_cases_are_counted_in_the_results(tmp_path):
    data = write_discs(tmp_path / "data", 7)
    (data / "images" / "scene2.png").write_bytes(b"\x89PNG")
    config = small_config(data, instances=True)
    with pytest.raises(ValueError, match="case scene2"):
        run_experiment(config, tmp_path / "run", show=False)
    assert not (tmp_path / "run" / "config.json").exists()
    with pytest.warns(UserWarning, match="left out: case scene2"):
        results = run_experiment(replace(config, keep_going=True), tmp_path / "run", show=False)
    assert list(results["left_out"]) == ["scene2"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "sonicnet3d"}, "model must be one of .*sonicnet2d, .*unet, got 'sonicnet3d'"),
        ({"spacing": (0.5, -1.0)}, "spacing must be one or two positive numbers"),
        ({"spacing": (0.5,), "spacing_table": Path("a.csv")}, "cannot be combined"),
        ({"instances": True, "num_classes": 5}, "num_classes belongs to masks of classes"),
        ({"patch": (0, 64)}, "patch must be at least 8"),
        ({"test_turns": (30.0, 200.0)}, r"test_turns must be in \[0, 180\], got \(30.0, 200.0\)"),
        ({"test_scales": (0.0,)}, r"test_scales must be in \[0.1, 10\], got \(0.0,\)"),
        ({"model": "unet", "scale_by": "spacing"}, "not unet; use image"),
        ({"width": 8}, "width belongs to unet, not to sonicunet2d"),
        ({"model": "orbitnet2d", "variant": "paper"}, "variant belongs to SonicNet and SonicUNet, not to orbitnet2d"),
    ],
)
def test_wrong_settings_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        MasksConfig(**changes)


@pytest.mark.parametrize("model", ["sonicnet2d.light", "unet"])
def test_other_networks_are_built_for_the_classes(model, monkeypatch):
    pytest.importorskip("monai")
    monkeypatch.setattr("torchsonic.lab.runs.masks.create_model", create_model)
    experiment = MaskExperiment(MasksConfig(model=model))
    network = experiment.make_model([Facts("a", 3, (1, 64, 64), (500.0, 0.5, 0.5), (0, 1, 2))], 3)
    assert network(torch.zeros(1, 3, 20, 24)).shape == (1, 3, 20, 24)


def test_presets_change_the_budget():
    assert choose_preset(MasksConfig(), PRESETS, "smoke").training.steps == 10
    assert MasksConfig(data=Path("cells"), instances=True).name == "masks/cells/sonicunet2d-instances/fold0-seed0"


def test_the_variant_reaches_the_network():
    config = MasksConfig(data=Path("cells"), variant="paper")
    assert config.name == "masks/cells/sonicunet2d-paper/fold0-seed0"
    small = MasksConfig(data=Path("cells"), model="unet", width=9)
    assert small.name == "masks/cells/unet-width9/fold0-seed0"
    facts = [Facts("a", 3, (1, 64, 64), (500.0, 0.5, 0.5), (0, 1, 2))]
    network = MaskExperiment(config).make_model(facts, 3)
    assert {layer.variant for _, layer in sonic_layers(network)} == {"paper"}


def test_commands_train_predict_report_export_and_explain(discs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--instances", "--preset", "smoke", "--steps", "3", "--folds", "3", "--patch", "32", "32"]
    options += ["--test-turns", "30", "90", "--test-scales", "0.5"]
    assert main(["train", "masks", "--data", str(discs), "--out", "runs", *options]) == 0
    assert "boundary" in capsys.readouterr().out
    (run,) = Path("runs/masks").glob("*/sonicunet2d-instances/fold0-seed0")
    for words in (["predict", "masks", str(run)], ["predict", str(run)]):
        assert main([*words, "--data", str(discs), "--out", "found"]) == 0
        assert "9 of 9 masks written to found" in capsys.readouterr().out
    assert read_mask(Path("found/scene0.png")).shape == (48, 56)
    assert main(["report", str(run), "--out", "report"]) == 0
    assert {"report.html", "report.md", "report.json", "curve.png", "pictures.png"} <= set(os.listdir("report"))
    page = Path("report/report.md").read_text()
    assert all(words in page for words in ("precision", "rotated by 30", "resolution x 0.5, resampled"))
    table = Path("sizes.csv")
    table.write_text("".join(f"scene{place},1\n" for place in range(9)))
    assert main(["predict", str(run), "--data", str(discs), "--out", "found", "--spacing-table", str(table)]) == 0
    assert main(["export", str(run), "--to", "pt2", "--out", "net.pt2"]) == 0
    said = capsys.readouterr().out
    assert "size 32 x 32, the patch of training; give --size for another" in said
    assert "checked: 1 x 3 x 32 x 32" in said
    with pytest.raises(SystemExit):
        main(["predict", str(run), "--help"])
    assert "FOLDER" in capsys.readouterr().out
    assert main(["explain", str(run), "--out", "explain.html", "--layers", "1"]) == 0
    assert main(["predict", "masks", str(run), "--data", "nowhere", "--out", "found"]) == 1
    assert "there is no folder nowhere" in capsys.readouterr().err
    assert main(["predict", "masks", "nowhere", "--data", str(discs), "--out", "found"]) == 1


def test_other_images_are_scored_as_test_images_are(learnt, discs, tmp_path, capsys):
    folder, results = learnt
    copied = shutil.copytree(discs, tmp_path / "copied")  # known by their bytes
    assert main(["evaluate", str(folder), "--data", str(copied), "--out", str(tmp_path / "all")]) == 0
    said = capsys.readouterr()
    assert "precision" in said.out
    seen = len(json.loads((folder / "split.json").read_text())["train"])
    assert f"{seen} of 9 images were used in training" in said.err
    found = json.loads((tmp_path / "all" / "report.json").read_text())
    scores = {row["case"]: row["precision"] for row in found["cases"]}
    assert len(scores) == 9
    assert all(scores[row["case"]] == row["precision"] for row in results["cases"])
    other = write_discs(tmp_path / "other", 3)
    (other / "images" / "scene1.png").write_bytes(b"no image")
    words = ["evaluate", "masks", str(folder), "--data", str(other), "--out", str(tmp_path / "some")]
    assert main(words) == 1
    assert "scene1" in capsys.readouterr().err
    assert main([*words, "--keep-going"]) == 0
    said = capsys.readouterr().err
    assert "left out: case scene1" in said
    assert json.loads((tmp_path / "some" / "report.json").read_text())["left_out"] == {"scene1": "could not be used"}


def test_one_image_alone_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has only one case, so none is left for testing; add cases"):
        run_experiment(small_config(write_discs(tmp_path, 1)), tmp_path / "run", show=False)


def test_progress_is_said_in_lines_where_there_is_no_terminal(monkeypatch, capsys):
    from torchsonic.lab.training import progress

    monkeypatch.setattr(progress, "PAUSE", 0.0)
    with progress.counting_progress("testing", 2, show=True) as advance:
        advance()
        advance()
    assert capsys.readouterr() == ("", "testing: 1 of 2\ntesting: 2 of 2\n")


def test_a_run_on_masks_is_not_taken_for_one_on_volumes(learnt, capsys):
    assert main(["compare", "orientations", str(learnt[0])]) == 1
    assert "is a run on masks, not on volumes" in capsys.readouterr().err


def test_a_report_without_the_data_says_so(learnt, tmp_path):
    from torchsonic.lab.report.masks import make_page

    folder, _ = learnt
    for name in ("results.json", "log.jsonl", "config.json"):
        (tmp_path / name).write_text((folder / name).read_text().replace("discs", "gone"))
    (tmp_path / "model").symlink_to(folder / "model")
    page = make_page(tmp_path)
    assert page.warnings[0].startswith("no pictures: there is no folder")


def test_a_report_shows_each_of_few_images_once(learnt, discs, monkeypatch):
    from torchsonic.lab.report import masks

    folder, results = learnt
    drawn = []
    monkeypatch.setattr(masks, "draw_slice", lambda panel, *_: drawn.append(panel))
    for number in (1, 2, 3):
        monkeypatch.setattr(masks, "read_json", lambda _, n=number: {**results, "cases": results["cases"][:n]})
        drawn.clear()
        page = masks.make_page(folder)
        assert not page.warnings
        assert len(drawn) == number


def test_two_processes_end_with_the_losses_of_one(discs, tmp_path):
    words = ["-m", "torchsonic.cli", "train", "masks", "--data", discs, "--preset", "smoke", "--instances"]
    words += ["--steps", "4", "--folds", "3", "--patch", "32", "32", "--log-every", "1", "--out"]
    assert programs.run([*words, tmp_path / "one"]) == 0
    programs.run_ranks([*words, tmp_path / "two"])
    losses = []
    for name in ("one", "two"):
        (log,) = (tmp_path / name).rglob("log.jsonl")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        losses.append([line["loss"] for line in lines if "loss" in line])
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_numbered_objects_taken_for_classes_are_suspected(discs):
    facts = [Facts("a", 3, (1, 8, 8), (1.0, 1.0, 1.0), tuple(range(28)))]
    with pytest.warns(UserWarning, match="the masks have 28 classes; if .* pass --instances"):
        MaskExperiment(small_config(discs)).make_model(facts, 28)
    MaskExperiment(small_config(discs, num_classes=28)).make_model(facts, 28)  # said, so not suspected
