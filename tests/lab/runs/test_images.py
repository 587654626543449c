"""A run on pictures: which network, what it leaves behind, what it refuses; and accuracy over sizes."""

import json
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("PIL", reason="Pillow is not installed")
pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")

import torchsonic
from tests.lab.data.pictures import CLASSES, write_pictures
from torchsonic.functional import resample
from torchsonic.lab.data.images.changes import ImageChanges
from torchsonic.lab.data.images.files import ImageError
from torchsonic.lab.data.images.folder import find_images
from torchsonic.lab.metrics.classification import (
    accuracy_interval,
    classify,
    degradation,
    degradation_interval,
    top_hits,
)
from torchsonic.lab.report.image_sizes import score_runs
from torchsonic.lab.runs.folder import RunError, read_config
from torchsonic.lab.runs.images import (
    MODELS,
    PRESETS,
    ImagesConfig,
    apply_init,
    load_run,
    make_model,
    predict_files,
    run_experiment,
    score_sizes,
)
from torchsonic.lab.runs.images.network import read_options, told_spacing, width_of_pixels
from torchsonic.lab.runs.images.predict import score_rows
from torchsonic.lab.runs.settings import SettingsError, choose_preset, parse_settings, plain_settings
from torchsonic.lab.training import CheckpointError, TrainingConfig
from torchsonic.lab.training.fabric import on_first
from torchsonic.models import SonicClassifier, model_entry

TINY = ("widths=8,16", "depths=1,1")


def small(root, **options) -> ImagesConfig:
    training = TrainingConfig(steps=2, batch=4, log_every=1, checkpoint_every=1, learning_rate=1e-3, accelerator="cpu")
    if "init" not in options:
        options = {"model": "sonic_tiny", "model_options": TINY, **options}
    return ImagesConfig(**{"data": root, "image_size": 32, "training": training, **options})


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def finished(pictures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, run_experiment(small(pictures), folder, show=False)


def test_the_command_knows_all_classifiers():
    known = [name for name in torchsonic.list_models() if model_entry(name)[0].task == "classification"]
    assert sorted(MODELS) == known


@pytest.mark.parametrize("name", ["orbit_tiny"])
def test_networks_without_a_usual_image_size_can_be_trained(name, pictures):
    model, _ = make_model(ImagesConfig(data=pictures, model=name), CLASSES)
    assert model.num_classes == len(CLASSES)


def test_held_out_images_are_neither_learnt_from_nor_those_of_the_test(pictures, tmp_path):
    results = run_experiment(small(pictures, hold_out=1 / 3), tmp_path, show=False)
    assert results["images"] == {"train": 12, "test": 6}
    assert set(json.loads((tmp_path / "classes.json").read_text())["train"].values()) == {4}


def test_a_run_leaves_its_files(finished, pictures):
    folder, results = finished
    assert {p.name for p in folder.iterdir()} == {
        *("checkpoints", "classes.json", "commits.json", "config.json", "log.jsonl", "model", "results.json")
    }
    assert json.loads((folder / "results.json").read_text()) == results
    assert results["images"] == {"train": 18, "test": 9}
    assert 0 <= results["top1"] <= results["top5"] == 1.0
    assert 0 < results["data_wait"] < 1
    assert results["run"]["seed"] == 0
    model, config, classes = load_run(folder)
    assert classes == CLASSES
    assert config == read_config(folder, ImagesConfig)
    assert (config.check, config.stored_side) == ("decode", 56)
    hits = classify(model, [(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.tensor([0]))])
    assert hits[1].shape == (1,)


def test_a_run_of_other_settings_or_images_is_not_resumed(finished, pictures, tmp_path):
    folder, _ = finished
    with pytest.raises(CheckpointError, match=r"label_smoothing=0\.1, not 0\.0; use the old value"):
        run_experiment(small(pictures, label_smoothing=0.0), folder, show=False)
    other = write_pictures(tmp_path / "other", train=5)
    with pytest.raises(CheckpointError, match="had 18 training images of 3 classes, not 15 of 3"):
        run_experiment(small(other), folder, show=False)
    moved = shutil.copytree(pictures, tmp_path / "moved")
    copy = shutil.copytree(folder, tmp_path / "run")
    run_experiment(small(moved), copy, show=False)  # the same images elsewhere
    (moved / "train" / "red" / "000.png").rename(moved / "train" / "red" / "zero.png")
    with pytest.raises(CheckpointError, match="had training images with other names"):
        run_experiment(small(moved), copy, show=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"training": {"batch": 2}}, r"had batch=4, not 2; use the old value"),
        ({"changes": ImageChanges(mixup=0.3)}, r"had mixup=0\.0, not 0\.3; use the old value"),
    ],
)
def test_a_refused_change_is_named_alone_and_leaves_the_run_as_it_was(finished, pictures, change, words):
    folder, _ = finished
    before = (folder / "config.json").read_bytes()
    config = small(pictures)
    config = replace(config, **{**change, "training": replace(config.training, **change.get("training", {}))})
    with pytest.raises(CheckpointError, match=words):
        run_experiment(config, folder, show=False)
    assert (folder / "config.json").read_bytes() == before


def test_a_wrong_network_is_refused_before_images_are_read_and_leaves_no_folder(pictures, tmp_path, monkeypatch):
    def fail(*args, **options):
        raise AssertionError("images were read")

    monkeypatch.setattr("torchsonic.lab.runs.images.run.leave_out_bad", fail)
    torchsonic.create_model("sonic_tiny", in_channels=1, widths=(8,), depths=(1,)).save_pretrained(tmp_path / "grey")
    run = tmp_path / "run"
    for options, words in (
        ({"model": "sonic_tiny", "model_options": ("width=8",)}, "did you mean 'widths'"),
        ({"init": str(tmp_path / "nowhere")}, "there is no folder"),
        ({"init": str(tmp_path / "grey")}, "of 1 channels, which does not classify colour images; use"),
    ):
        with pytest.raises(ValueError, match=words):
            run_experiment(small(pictures, **options), run, show=False)
        assert not run.exists(), "a pattern of runs would find it"


def test_a_finished_run_keeps_the_record_of_its_training(finished, pictures, tmp_path):
    folder, before = finished
    copy = shutil.copytree(folder, tmp_path / "run")
    again = run_experiment(small(pictures), copy, show=False)
    assert again["run"] == before["run"]
    assert again["tested"]["command"] == before["run"]["command"]
    for name in ("seconds", "data_wait", "top1"):
        assert again[name] == before[name], name


def test_unreadable_images_are_counted_or_refused(tmp_path):
    root = write_pictures(tmp_path / "data", train=4, val=2)
    bad = root / "val" / "red" / "001.png"
    bad.write_bytes(b"broken")
    with pytest.warns(UserWarning, match=r"left out: .*red/001\.png"):
        results = run_experiment(small(root), tmp_path / "run", show=False)
    assert list(results["left_out"]) == [str(bad)]
    assert results["images"] == {"train": 12, "test": 5}
    with pytest.raises(ValueError, match=r"red/001\.png: cannot be read"):
        run_experiment(small(root, strict=True), tmp_path / "strict", show=False)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_strict_training_stops_at_a_broken_image_in_one_line(tmp_path, workers):
    root = write_pictures(tmp_path / "data", train=1)
    for path in (root / "train").rglob("*.png"):
        path.write_bytes(path.read_bytes()[:200])
    config = small(root, strict=True, check="header")
    config = replace(config, training=replace(config.training, workers=workers))
    with pytest.raises(ImageError, match=r"000\.png: cannot be read") as caught:
        run_experiment(config, tmp_path / "run", show=False)
    assert "\n" not in str(caught.value)


def test_many_training_images_are_looked_at_briefly_and_few_test_images_are_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr("torchsonic.lab.runs.images.run.DECODED", 10)
    root = write_pictures(tmp_path / "data")
    for path in (root / "train" / "red" / "001.png", root / "val" / "red" / "001.png"):
        path.write_bytes(path.read_bytes()[:300])  # the beginning is good
    config = small(root, training=replace(small(root).training, steps=5))
    with pytest.warns(UserWarning, match=r"(left out|skipped): .*red/001\.png") as caught:
        results = run_experiment(config, tmp_path / "run", show=False)
    assert results["images"] == {"train": 18, "test": 8}
    assert results["config"]["check"] == "header"
    assert {str(warning.message).split(":")[0] for warning in caught} == {"left out", "skipped"}
    assert results["replaced"] == [str(root / "train" / "red" / "001.png")]
    (root / "val" / "red" / "001.png").unlink()
    with pytest.raises(ValueError, match=r"train/red/001\.png: cannot be read"):
        run_experiment(replace(config, strict=True), tmp_path / "strict", show=False)


def test_test_images_are_decoded_however_training_images_are_checked(tmp_path):
    root = write_pictures(tmp_path / "data")
    path = root / "val" / "red" / "001.png"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.warns(UserWarning, match=r"left out: .*val/red/001\.png"):
        results = run_experiment(small(root, check="header"), tmp_path / "run", show=False)
    assert results["images"] == {"train": 18, "test": 8}
    assert results["config"]["check"] == "header"


class Processes:
    """A fabric of one process, first or not, that others have told something."""

    world_size = 1

    def __init__(self, first, told=None):
        self.is_global_zero, self.told = first, told

    def broadcast(self, value):
        return value if self.is_global_zero else self.told


def test_what_the_first_process_finds_holds_for_all():
    def fail():
        raise OSError("asked on a process that should not look")

    assert on_first(Processes(True), lambda: 3) == 3
    assert on_first(Processes(False, told=3), fail) == 3
    with pytest.raises(ValueError, match="bad folder"):
        on_first(Processes(False, told=ValueError("bad folder")), fail)


def test_parts_of_a_batch_and_half_precision_train(pictures, tmp_path):
    training = replace(small(pictures).training, accumulate=2, precision="bf16", ema=0.9)
    results = run_experiment(small(pictures, training=training), tmp_path, show=False)
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert all(np.isfinite(entry["loss"]) for entry in logged if "loss" in entry)
    assert results["top5"] == 1.0


def test_a_saved_model_is_taken_up_with_a_new_head_for_new_classes(finished, tmp_path):
    folder, _ = finished
    saved = torchsonic.from_pretrained(folder / "model").state_dict()
    same, words = make_model(small(folder, init=str(folder)), CLASSES)
    assert "all" in words
    assert all(torch.equal(value, saved[name]) for name, value in same.state_dict().items())
    model, words = make_model(small(folder, init=str(folder / "model")), ("cat", "dog"))
    tensors = sum(not name.endswith("_extra_state") for name in saved)
    source = "/".join(folder.parts[-2:])
    assert words == f"{tensors - 2} tensors from {source}; new head for 2 classes (it had 3)"
    state = model.state_dict()
    assert state["fc.weight"].shape == (2, 16)
    assert all(torch.equal(value, saved[name]) for name, value in state.items() if not name.startswith("fc."))
    assert model.training
    with pytest.raises(ValueError, match="contains a sonic_tiny, not resnet50; leave --model out"):
        make_model(small(folder, init=str(folder), model="resnet50"), CLASSES)
    with pytest.raises(ValueError, match="model_options belong to a new network"):
        small(folder, init=str(folder), model_options=("width=8",))


def test_a_network_taken_up_at_another_size_keeps_its_physical_kernels(finished, pictures, tmp_path, monkeypatch):
    folder, first = finished
    config = small(pictures, init=str(folder), image_size=64)
    heard = []
    forward = SonicClassifier.forward

    def listen(self, x, spacing=None):
        heard.append(spacing)
        return forward(self, x, spacing)

    monkeypatch.setattr(SonicClassifier, "forward", listen)
    results = run_experiment(config, tmp_path / "fine", show=False)
    assert results["config"]["pixel_width"] == 0.5
    assert set(heard) == {0.5}, "steps, tests, and where operations are counted"
    resampling = 3 * 2.5 * (64**2 * np.log2(64**2) + 32**2 * np.log2(32**2))
    assert results["flops"] - first["flops"] == pytest.approx(resampling, rel=0.05), "behind it the grid is the old one"
    model, saved, classes = load_run(tmp_path / "fine")
    assert saved.pixel_width == 0.5
    heard.clear()
    predict_files(model, saved, classes, [pictures / "val" / "red" / "000.png"])
    score_sizes(model, find_images(pictures / "val", classes), (32,), train_size=64, pixel_width=0.5)
    assert heard == [0.5, 0.5, None, 0.5], "predicted; at 32 px not told and told, which says what it assumes; at 64 px"
    # Taken up once more, at the size of the first run, pixels are as wide as they were there.
    assert width_of_pixels(small(pictures, init=str(tmp_path / "fine"))) == 1.0
    assert width_of_pixels(small(pictures)) == 1.0
    deaf = small(pictures, model="resnet50", model_options=("width=8", "depths=1,1,1,1"), pixel_width=0.5)
    with pytest.raises(ValueError, match="takes no spacing"):
        run_experiment(deaf, tmp_path / "deaf", show=False)


def test_a_run_that_is_taken_up_gives_image_size_and_tested_square(finished, pictures, tmp_path):
    folder, _ = finished
    config = apply_init(choose_preset(ImagesConfig(), PRESETS, "quick"), folder)
    assert (config.image_size, config.test_crop) == (32, 1.0)
    quick = choose_preset(ImagesConfig(), PRESETS, "quick")
    assert apply_init(quick, folder / "model") == config, "a saved model says the same"
    assert apply_init(quick, tmp_path) == quick


def test_spacings_told_are_relative_to_the_networks_own():
    model = torchsonic.create_model("sonic_tiny", widths=(8,), depths=(1,), spacing=(2.0, 1.0), num_classes=3).eval()
    assert told_spacing(model, 0.5) == (1.0, 0.5)
    assert told_spacing(model, 1.0) is None
    x = resample(torch.randn(1, 3, 32, 32), 64)
    with torch.no_grad():
        torch.testing.assert_close(model(x, told_spacing(model, 0.5)), model(x[..., ::2, ::2]), rtol=1e-3, atol=1e-4)
    assert told_spacing(torchsonic.create_model("resnet50", width=8, depths=(1, 1, 1, 1)), 0.5) is None


def test_a_fine_tuned_run_can_be_saved_and_resumed(finished, pictures, tmp_path):
    folder, _ = finished
    config = small(pictures, init=str(folder))
    first = run_experiment(config, tmp_path, show=False)
    assert first["weights"].startswith("all ")
    again = replace(config, init=f"{folder}/")  # as a shell completes it
    assert run_experiment(again, tmp_path, show=False)["top1"] == first["top1"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["width=16", "depths=1,1,2,1"], {"width": 16, "depths": [1, 1, 2, 1]}),
        (["zero_init_last=false", "stem=conv"], {"zero_init_last": False, "stem": "conv"}),
        (["drop_rate=0.1", "spacing=0.5,2"], {"drop_rate": 0.1, "spacing": [0.5, 2.0]}),
        (
            ["operator_options.num_modes=4", "operator_options.padding_mode=zeros"],
            {"operator_options": {"num_modes": 4, "padding_mode": "zeros"}},
        ),
    ],
)
def test_options_are_read_as_the_network_annotates_them(words, expected):
    assert read_options("resnet50_sonic", words) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["widht=16"], "resnet50_sonic has no argument 'widht'; did you mean 'width'?"),
        (["width=wide"], "width must be a whole number, got 'wide'"),
        (["width=1.5"], "width must be a whole number, got '1.5'"),
        (["depths=1,x"], "depths must be a list, each a whole number, got '1,x'"),
        (["stem=cone"], "stem must be one of 'conv', 'local', 'sonic', 'deep', got 'cone'"),
        (["zero_init_last=maybe"], "zero_init_last must be true or false, got 'maybe'"),
        (["width"], "must be name=value, got 'width'"),
        (["num_classes=7"], "num_classes is set by the folders of classes"),
        (["operator_options=3"], "give entries of operator_options one by one"),
        (["width.x=3"], "width has no entries"),
    ],
)
def test_wrong_options_are_refused_with_the_nearest_name(words, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        read_options("resnet50_sonic", words)


def test_the_variant_reaches_every_sonic_layer_and_stays_the_presets_own(pictures):
    def variants(*words, **options):
        model, _ = make_model(small(pictures, model_options=("depths=1,1,1,1", *words), **options), CLASSES)
        return {layer.variant for _, layer in torchsonic.nn.sonic_layers(model)}

    assert variants(model="resnet50_sonic") == {"exact"}
    assert variants(model="resnet50_sonic", variant="paper") == {"paper"}
    assert variants(model="resnet50_sonic.paper") == {"paper"}
    assert variants(model="resnet50_sonic.paper", variant="exact") == {"exact"}
    with pytest.raises(ValueError, match="variant belongs to the Sonic networks, not to resnet50"):
        small(pictures, model="resnet50", variant="paper")
    assert variants(model="sonic_tiny", variant="paper") == {"paper"}
    for model, stem in (("resnet50_sonic", "deep"), ("sonic_tiny", "linear")):
        with pytest.raises(ValueError, match=f"a Sonic stem, stem={stem}, is always exact, .* use stem=local"):
            variants(f"stem={stem}", model=model, variant="paper")


def test_an_option_that_the_operator_refuses_is_named(pictures):
    with pytest.raises(ValueError, match=r"resnet50_sonic does not accept .*num_mods"):
        make_model(small(pictures, model="resnet50_sonic", model_options=("operator_options.num_mods=4",)), CLASSES)


def test_masks_are_learnt_on_the_grid_of_training_images(pictures):
    options = ("width=8", "depths=1,1,1,1")
    model, _ = make_model(small(pictures, model="resnet50_gfnet", model_options=options, image_size=64), CLASSES)
    masks = [module.grid for module in model.modules() if type(module).__name__ == "GFNet"]
    assert masks == [(16, 16), (8, 8), (4, 4), (2, 2)]
    assert model.eval()(torch.randn(1, 3, 96, 96)).shape == (1, 3)


def test_presets_hold_what_the_paper_says():
    config = choose_preset(ImagesConfig(), PRESETS, "imagenet-50m")
    training = config.training
    assert (training.steps, training.batch, config.image_size) == (200_000, 256, 224)
    assert (training.optimiser, training.learning_rate, training.momentum, training.nesterov) == (
        "sgd",
        0.1,
        0.9,
        False,
    )
    assert (training.weight_decay, training.warmup, training.clip) == (1e-4, 0.0, 0.0)
    assert (training.schedule, training.stair) == ("staircase", 0.75)
    assert (config.test_crop, config.label_smoothing) == (0.875, 0.0)
    changes = config.changes
    assert (changes.crop, changes.ratio, changes.flip) == ((0.08, 1.0), (0.75, 4 / 3), 0.5)
    assert (changes.brightness, changes.contrast, changes.saturation, changes.hue) == (0.0, 0.0, 0.0, 0.0)
    assert (changes.mixup, changes.cutmix) == (0.0, 0.0)


def test_the_quick_preset_shows_objects_as_large_in_tests_as_in_training():
    config = choose_preset(ImagesConfig(), PRESETS, "quick")
    sides = np.sqrt(np.random.default_rng(0).uniform(*config.changes.crop, 10_000))
    assert sides.mean() == pytest.approx(config.test_crop, abs=0.02)


def test_unknown_presets_are_refused():
    with pytest.raises(ValueError, match="preset must be one of smoke, quick, imagenet-50m"):
        choose_preset(ImagesConfig(), PRESETS, "slow")


def test_told_networks_hear_the_training_size_over_the_test_size(finished, pictures):
    model, _, classes = load_run(finished[0])
    heard = []
    forward = model.forward

    def listen(x, spacing=None):
        heard.append((x.shape[-1], spacing))
        return forward(x, spacing)

    model.forward = listen
    scores = score_sizes(model, find_images(pictures / "val", classes), (24, 64), train_size=32)
    assert heard == [(24, None), (24, 32 / 24), (32, None), (64, None), (64, 0.5)]
    assert [(score.size, score.told) for score in scores] == [
        *((24, False), (24, True), (32, False), (32, True), (64, False), (64, True))
    ]
    by = {(score.size, score.told): score for score in scores}
    np.testing.assert_array_equal(by[32, True].top1, by[32, False].top1)
    heard.clear()
    scores = score_sizes(model, find_images(pictures / "val", classes), ("24x64",), train_size=32)
    assert heard == [(64, None), (64, (32 / 24, 0.5)), (32, None)], "along each axis"
    assert [score.size for score in scores] == ["24x64", "24x64", 32, 32]


def test_a_network_that_cannot_be_told_is_scored_once(pictures):
    options = ("width=8", "depths=1,1,1,1")
    model, _ = make_model(small(pictures, model="resnet50", model_options=options), CLASSES)
    scores = score_sizes(model.eval(), find_images(pictures / "val", CLASSES), (48,), train_size=32)
    assert [(score.size, score.told) for score in scores] == [(32, False), (48, False)]
    seen = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images = find_images(pictures / "val", CLASSES)
    scores = score_sizes(model, images, (64,), train_size=32, control=True)
    assert [(score.size, score.told) for score in scores] == [(32, False), (32, True), (64, False), (64, True)]
    assert [x.shape[-1] for x in seen] == [32, 64, 32]
    assert (seen[2] - seen[0]).abs().mean() < 0.05 * seen[0].std(), "resized back it is nearly the same image"


def test_a_run_is_tested_at_other_sizes_told_untold_and_resized_back(finished, pictures, tmp_path):
    folder, before = finished
    assert before["rows"] == []
    copy = shutil.copytree(folder, tmp_path / "run")
    rows = run_experiment(small(pictures, test_sizes=(24, 64)), copy, show=False)["rows"]  # trained, tested again
    assert [row["size"] for row in rows] == [24, 64]
    model, _, classes = load_run(folder)
    images = find_images(pictures / "val", classes)
    scores = {(s.size, s.told): s.top1.mean() for s in score_sizes(model, images, (24, 64), train_size=32)}
    assert [(row["accuracy"], row["told"]) for row in rows] == [(scores[n, False], scores[n, True]) for n in (24, 64)]
    seen = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    (row,) = score_rows(model, images, (64,), train_size=32)
    assert row == rows[1]
    assert [x.shape[-1] for x in seen] == [64, 64, 32]
    deaf = small(pictures, model="resnet50", model_options=("width=8", "depths=1,1,1,1"))
    (row,) = score_rows(make_model(deaf, CLASSES)[0], images, (48,), train_size=32)
    assert set(row) == {"size", "accuracy", "back"}
    (row,) = score_rows(model, images, ("64x16",), train_size=32)
    assert [x.shape[2:] for x in seen[3:]] == [(64, 16), (64, 16), (32, 32)]


def test_in_the_mixed_test_each_image_has_one_of_the_other_sizes(finished, pictures):
    model, _, classes = load_run(finished[0])
    images = find_images(pictures / "val", classes)
    assert list(images.labels) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    answers = {24: 0, 16: 1, 32: 2}  # by the number of rows
    model.forward = lambda x, spacing=None: torch.eye(3)[[answers[x.shape[2]]] * len(x)]
    *others, mixed = score_rows(model, images, (24, "16x64", "mixed"), train_size=32)
    assert {row[way] for row in others for way in ("accuracy", "told", "back")} == {1 / 3}
    # Right are the images 0 and 2, which have 24 rows, and 3 and 5, which have 16; resized back, the last three.
    assert mixed == {"size": "mixed", "accuracy": 4 / 9, "told": 4 / 9, "back": 1 / 3}


def test_a_told_network_answers_alike_for_other_rows_and_columns():
    torch.manual_seed(0)
    options = {"widths": (8, 16), "depths": (1, 1), "image_size": 32, "num_classes": 3}
    model = torchsonic.create_model("sonic_tiny", **options).eval()
    x = resample(torch.randn(4, 3, 9, 9), (32, 32))  # band-limited, so that all grids below can represent it
    told = told_spacing(model, (2.0, 0.5))
    assert told == (2.0, 0.5)
    squeezed = resample(x, (16, 64))
    with torch.no_grad():
        torch.testing.assert_close(model(squeezed, told), model(x), rtol=1e-3, atol=1e-4)
        assert (model(squeezed) - model(x)).abs().max() > 1e-2


def test_sizes_are_read_as_they_were_saved():
    for sizes in ((96, 160), (96, "64x128", "mixed")):
        config = ImagesConfig(test_sizes=sizes)
        assert parse_settings(ImagesConfig, plain_settings(config), "config.json") == config
    with pytest.raises(SettingsError, match="test_sizes must be a list, each a whole number or text, got 96"):
        parse_settings(ImagesConfig, {"test_sizes": 96}, "config.json")


def test_predictions_are_sorted_and_sum_to_one(finished, pictures, tmp_path):
    model, config, classes = load_run(finished[0])
    files = [pictures / "val" / "red" / "000.png", tmp_path / "bad.png", pictures / "val" / "blue" / "001.png"]
    files[1].write_bytes(b"broken")
    with pytest.warns(UserWarning, match="left out"):
        rows = predict_files(model, config, classes, files)
    assert [row["file"] for row in rows] == [str(files[0]), str(files[2])]
    for row in rows:
        shares = [answer["probability"] for answer in row["top"]]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1)
    assert len(predict_files(model, config, classes, files[:1], top=1)[0]["top"]) == 1
    with pytest.raises(ValueError, match=r"bad\.png"):
        predict_files(model, config, classes, files, strict=True)
    for name in ("top", "size"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            predict_files(model, config, classes, files, **{name: 0})
    alone = shutil.copytree(finished[0] / "model", tmp_path / "alone")
    assert predict_files(*load_run(alone), files[::2]) == rows
    (alone / "images.json").unlink()
    with pytest.raises(RunError, match=r"has no images\.json"):
        load_run(alone)


def test_runs_on_the_same_files_are_scored_by_their_own_numbers_of_classes(finished, pictures, tmp_path):
    more = shutil.copytree(pictures, tmp_path / "more")
    shutil.copytree(more / "train" / "red", more / "train" / "azure")  # sorted first, so that all others move
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no folder for 1 of 4 classes: azure")
        run_experiment(small(more), tmp_path / "run", show=False)
        alone = score_runs([tmp_path / "run"], [32], data=pictures, show=False)
        beside = score_runs([finished[0], tmp_path / "run"], [32], data=pictures, show=False)
    for key, hits in alone.runs[0].hits.items():
        assert np.array_equal(beside.runs[1].hits[key], hits)


def test_losses_are_relative_and_intervals_hold_them():
    assert degradation(0.5, 0.4) == 20.0
    assert np.isnan(degradation(0.0, 0.4))
    generator = np.random.default_rng(0)
    there = generator.random(2000) < 0.8
    here = there & (generator.random(2000) < 0.9)
    low, high = degradation_interval(there, here)
    expected = degradation(there.mean(), here.mean())
    assert low < expected < high
    # Of 1,600 right answers each is lost with probability 0.1: the deviation is 0.75 percent.
    assert high - low == pytest.approx(2 * 1.96 * 0.75, rel=0.15)
    low, high = accuracy_interval(there)
    assert low < there.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.16 / 2000), rel=0.02)
    with pytest.raises(ValueError, match=r"for the same images, got \(2000,\) and \(5,\)"):
        degradation_interval(there, here[:5])


def test_top_hits_count_the_likeliest():
    logits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    assert top_hits(logits, torch.tensor([1, 0]), 1).tolist() == [False, False]
    assert top_hits(logits, torch.tensor([1, 0]), 2).tolist() == [True, False]
    assert top_hits(logits, torch.tensor([1, 0]), 5).tolist() == [True, True]


@pytest.mark.parametrize(
    "bad",
    [
        *({"image_size": 4}, {"test_crop": 0.0}, {"label_smoothing": 1.0}, {"cache_gb": -1.0}, {"model": "resnet5"}),
        *(
            {"test_sizes": sizes}
            for sizes in [(96, 4), ("64x4",), ("64x",), ("9x9x9",), (96, "mixed"), (96, "96x96", "mixed")]
        ),
        *({"cache_gb": float("nan")}, {"pixel_width": float("inf")}),
    ],
)
def test_bad_settings_name_themselves(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        replace(ImagesConfig(), **bad)
