"""A run on a folder of volumes: which cases, which network, what it leaves behind, and what it refuses."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.lab.data.nifti import BAD, make_affine, make_arrays, spoil, write, write_case, write_folder
from torchsonic.lab.data.volumes import CaseError, find_cases, read_case
from torchsonic.lab.data.volumes.survey import Facts
from torchsonic.lab.metrics import count_parameters
from torchsonic.lab.metrics.overlap import confusion, dice_per_class
from torchsonic.lab.metrics.volumes import summarise
from torchsonic.lab.runs.folder import read_config
from torchsonic.lab.runs.settings import choose_preset
from torchsonic.lab.runs.volumes import (
    MODELS,
    PRESETS,
    VolumesConfig,
    load_run,
    make_folds,
    predict_case,
    predict_probabilities,
    read_split,
    run_experiment,
)
from torchsonic.lab.runs.volumes.plan import choose_patch, complete_config, make_model, unet_strides
from torchsonic.lab.runs.volumes.run import mean_scores
from torchsonic.lab.runs.volumes.split import choose_split
from torchsonic.lab.training import CheckpointError, TrainingConfig
from torchsonic.nn import sonic_layers

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed")

NAMES = [f"patient{number:02d}_{phase}" for number in range(11) for phase in ("a", "b")]
THICK = Facts("thick", 1, (10, 256, 216), (10.0, 1.5, 1.5), (0, 1, 2))
CUBE = Facts("cube", 2, (36, 50, 34), (1.0, 1.0, 1.0), (0, 1, 2))


def small_config(folder: Path, **options) -> VolumesConfig:
    training = TrainingConfig(steps=3, batch=2, checkpoint_every=1, log_every=1, accelerator="cpu")
    options = {"folds": 2, "patch": (6, 12, 12), "test_patches": 2, "training": training, **options}
    if options.get("model") != "unet":
        options = {"model": "sonicnet3d.light", "width": 8, "depth": 1, "num_modes": 6, **options}
    return VolumesConfig(data=folder, **options)


def test_folds_share_out_the_cases_and_keep_patients_together():
    folds = make_folds(NAMES, 4, patient="patient([0-9]+)")
    assert sorted(name for fold in folds for name in fold) == sorted(NAMES)
    patients = [{name.split("_")[0] for name in fold} for fold in folds]
    assert sum(len(one) for one in patients) == 11
    assert {len(one) for one in patients} == {2, 3}
    assert folds == make_folds(NAMES[::-1], 4, patient="patient([0-9]+)")
    assert folds != make_folds(NAMES, 4, seed=1, patient="patient([0-9]+)")
    alone = make_folds(NAMES, 4)
    assert {len(fold) for fold in alone} == {5, 6}
    with pytest.raises(ValueError, match="11 cases or patients are too few for folds=12"):
        make_folds(NAMES, 12, patient="patient[0-9]+")
    with pytest.raises(ValueError, match="'person' is not found in the name of case patient00_a"):
        make_folds(NAMES, 4, patient="person")
    with pytest.raises(ValueError, match="is not a valid regular expression"):
        make_folds(NAMES, 4, patient="(")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("{", "is not valid JSON"),
        ('["a"]', "must contain"),
        ('{"train": ["a"]}', "must contain"),
        ('{"train": [1], "test": []}', "must contain"),
        ('{"train": ["a", "b"], "test": ["b"]}', "has case b in train and in test"),
        ('{"train": ["a", "a"], "test": ["b"]}', "names case a twice"),
        ('{"train": [], "test": ["b"]}', "no case in train"),
    ],
)
def test_a_bad_split_file_is_named(tmp_path, content, words):
    path = tmp_path / "split.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=words) as caught:
        read_split(path)
    assert str(path) in str(caught.value)


def test_a_split_file_keeps_patients_together(tmp_path):
    path = tmp_path / "split.json"
    path.write_text('{"train": ["p1_a", "p2_a"], "test": ["p3_a", "p2_b"]}')
    options = {"file": path, "folds": 5, "fold": 0, "seed": 0}
    names = ["p1_a", "p2_a", "p2_b", "p3_a"]
    assert choose_split(names, patient=None, **options).test == ("p2_b", "p3_a")
    with pytest.raises(ValueError, match="has p2_a in train and p2_b in test, both of patient p2"):
        choose_split(names, patient="p[0-9]", **options)


def test_patches_follow_the_data():
    assert choose_patch([CUBE.shape], CUBE.spacing, 160_000) == (36, 52, 36)
    depth, height, width = choose_patch([THICK.shape], THICK.spacing, 100_000)
    assert depth == 10
    assert height == width
    assert 80_000 < depth * height * width <= 100_000
    assert choose_patch([(1, 8, 8)], (5.0, 1.0, 1.0), 1000) == (2, 8, 8)
    assert np.prod(choose_patch([(300, 300, 300)], (1.0, 1.0, 1.0), 64)) <= 64


def test_unet_halves_fine_axes_first_and_never_below_what_is_left():
    for facts, patch in ((THICK, (10, 120, 120)), (CUBE, (36, 52, 36)), (THICK, (2, 16, 16))):
        strides = unet_strides(facts.spacing, patch)
        total = np.prod(strides, axis=0)
        assert ((np.array(patch) // total >= 4) | (total == 1)).all(), "an axis is halved only while 4 voxels are left"
    assert unet_strides(THICK.spacing, (10, 120, 120))[0] == (1, 2, 2)
    assert unet_strides(CUBE.spacing, (36, 52, 36))[0] == (2, 2, 2)


@pytest.mark.parametrize("model", [model for model in MODELS if model not in ("unet", "orbitnet3d")])
def test_the_variant_is_the_networks_own_unless_it_is_set(model):
    sizes = {} if model == "sonicunet3d" else {"num_modes": 8, "width": 8}
    for variant in (None, "exact", "paper"):
        config = VolumesConfig(model=model, patch_voxels=2000, variant=variant, **sizes)
        network = make_model(complete_config(config, [THICK], 3), [THICK])
        usual = "paper" if model == "sonicnet3d.paper" else "exact"
        assert {layer.variant for _, layer in sonic_layers(network)} == {variant or usual}
        assert ("-paper" in config.name) == (variant == "paper")


def test_a_unet_is_as_wide_as_it_is_told():
    pytest.importorskip("monai", reason="monai is not installed")
    sizes = {}
    for width in (None, 16, 4):
        config = complete_config(VolumesConfig(model="unet", width=width), [THICK], 3)
        sizes[width] = count_parameters(make_model(config, [THICK]))
    assert sizes[None] == sizes[16]
    assert 10 * sizes[4] < sizes[16]


def test_a_unet_has_no_variant():
    with pytest.raises(ValueError, match="variant belongs to SonicNet and SonicUNet, not to unet"):
        VolumesConfig(model="unet", variant="paper")


@pytest.mark.parametrize("model", MODELS)
def test_networks_fit_the_data(model):
    if model == "unet":
        pytest.importorskip("monai", reason="monai is not installed")
    for facts, stride in ((THICK, (1, 2, 2)), (CUBE, (2, 2, 2))):
        changes = {"num_modes": 8} if model.startswith("sonicnet3d.paper") else {}
        config = complete_config(VolumesConfig(model=model, patch_voxels=2000, **changes), [facts], 3)
        network = make_model(config, [facts])
        image = torch.randn(1, facts.channels, *config.patch)
        told = {"spacing": facts.spacing} if config.is_told else {}
        with torch.no_grad():
            assert network(image, **told).shape == (1, 3, *config.patch)
        assert network.takes_spacing == (model != "unet")
        if model == "unet":
            with pytest.raises(ValueError, match="spacing"):
                network(image, spacing=1.0)
            continue
        assert network.arguments["spacing"] == facts.spacing
        if model in ("sonicnet3d.light", "hybrid"):
            assert network.arguments["stride"] == stride
        assert network.arguments.get("local_kernel", 0) == (3 if model == "hybrid" else 0)
        assert torch.equal(next(make_model(config, [facts]).parameters()), next(network.parameters()))


def test_what_the_data_decide_is_filled_in():
    config = complete_config(
        VolumesConfig(common_spacing="median"), [THICK, replace(THICK, spacing=(6.0, 1.5, 1.5))], 3
    )
    assert config.common_spacing == (8.0, 1.5, 1.5)
    assert config.num_classes == 3
    assert config.patch is not None
    with pytest.raises(ValueError, match="only background"):
        complete_config(VolumesConfig(), [THICK], 1)
    with pytest.raises(ValueError, match="no training case contains class 3"):
        complete_config(VolumesConfig(), [THICK], 4)


@pytest.mark.parametrize(
    "bad",
    [
        {"fold": 5},
        {"folds": 1},
        {"num_classes": 1},
        {"patch": (0, 4, 4)},
        {"foreground": 1.5},
        {"overlap": 1.0},
        {"cache_gb": 0.0},
        {"cache_dtype": "float16", "normalisation": "none"},
        {"scale_by": "spacing", "tell_spacing": False},
        {"common_spacing": (1.0, 0.0, 1.0)},
        {"depth": 2, "model": "unet"},
        {"width": 8, "model": "sonicunet3d"},
        {"padding": "zeros", "model": "unet"},
        {"mlp_ratio": 2, "model": "orbitnet3d"},
        {"fold": 1, "split": Path("split.json")},
        {"split_seed": 1, "split": Path("split.json")},
    ],
)
def test_bad_settings_name_themselves(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        VolumesConfig(**bad)


def test_runs_have_names_of_their_own(tmp_path):
    config = VolumesConfig(data=tmp_path / "hearts")
    configs = [config, replace(config, model="unet"), replace(config, tell_spacing=False), replace(config, fold=1)]
    configs += [replace(config, split=Path("shift.json")), replace(config, common_spacing="median")]
    configs += [
        replace(config, model="sonicnet3d", width=16),
        replace(config, training=replace(config.training, seed=3)),
    ]
    configs += [replace(config, tell_orientation=False)]
    assert len({one.name for one in configs}) == len(configs)
    assert config.name == "volumes/hearts/sonicunet3d/fold0-seed0"


def test_held_out_cases_are_whole_patients_of_the_training_cases():
    names = [f"p{number}_{phase}" for number in range(10) for phase in "ab"]
    options = {"file": None, "folds": 5, "fold": 0, "seed": 0, "patient": "p[0-9]"}
    split = choose_split(names, **options)
    held = split.hold_out(0.25, seed=0, patient="p[0-9]")
    assert set(held.train) | set(held.test) == set(split.train)
    assert not {name[:2] for name in held.train} & {name[:2] for name in held.test}
    assert len(held.test) == 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run on four cases of two spacings, with a patch larger than some of them."""
    root = tmp_path_factory.mktemp("volumes")
    write_folder(root / "data", 4)
    results = run_experiment(small_config(root / "data", patch=(8, 12, 12)), root / "run", show=False)
    return root, results


def test_a_run_leaves_everything_behind(finished):
    root, results = finished
    assert {path.name for path in (root / "run").iterdir()} == {
        "commits.json",
        "config.json",
        "split.json",
        "log.jsonl",
        "checkpoints",
        "model",
        "results.json",
    }
    assert json.loads((root / "run" / "results.json").read_text()) == results
    split = json.loads((root / "run" / "split.json").read_text())
    assert sorted(split["train"] + split["test"]) == [f"case_{letter}" for letter in "abcd"]
    assert [row["case"] for row in results["cases"]] == split["test"]
    assert results["task"] == "volumes"
    assert results["config"]["num_classes"] == 3
    model, config = load_run(root / "run")
    assert read_config(root / "run", VolumesConfig) == config
    assert results["parameters"] == sum(p.numel() for p in model.parameters())
    assert results["run"]["threads"] == torch.get_num_threads()
    assert all(row["seconds"] > 0 for row in results["cases"])
    activations = 2 * 8 * 12 * 12 * 8 * 4  # of one layer of eight channels, in bytes
    assert activations < 1e9 * results["step_gb"] < 1000 * activations


def test_scores_are_those_of_the_predictions(finished):
    root, results = finished
    model, config = load_run(root / "run")
    cases = {case.name: case for case in find_cases(root / "data")}
    for row in results["cases"]:
        volume = read_case(cases[row["case"]])
        found = predict_case(model, volume, config)
        assert found.dtype == np.int16
        assert found.shape == volume.label.shape == tuple(row["shape"])
        counts = confusion(torch.from_numpy(found).long(), torch.from_numpy(volume.label).long(), 3)
        assert row["dice"] == dice_per_class(counts).tolist()[1:]
    np.testing.assert_allclose(
        results["dice_per_class"], np.mean([row["dice"] for row in results["cases"]], axis=0), rtol=1e-9
    )


def test_the_mean_is_that_of_cases_and_of_their_classes():
    rows = [{"dice": [0.5, None]}, {"dice": [1.0, 0.25]}, {"dice": [None, None]}]
    found = mean_scores(rows)
    assert found["dice"] == pytest.approx((0.5 + 0.625) / 2)
    assert found["dice_per_class"] == pytest.approx([0.75, 0.25])
    numbers = [[math.nan if dice is None else dice for dice in row["dice"]] for row in rows]
    scores = [[{"class": k, "dice": dice, "nsd": 0.0} for k, dice in enumerate(row, start=1)] for row in numbers]
    assert summarise(scores)["mean"]["dice"]["mean"] == pytest.approx(found["dice"])


def test_probabilities_add_up_on_the_original_grid(finished):
    root, _ = finished
    model, config = load_run(root / "run")
    volume = read_case(find_cases(root / "data")[0])
    for spacing in (None, (3.0, 2.0, 1.7)):
        shares = predict_probabilities(model, volume, replace(config, common_spacing=spacing))
        assert shares.dtype == np.float32
        assert shares.shape == (3, *volume.label.shape)
        np.testing.assert_allclose(shares.sum(0), 1, rtol=1e-5)
    told = predict_probabilities(model, volume, config)
    untold = predict_probabilities(model, volume, config, tell_spacing=False)
    assert np.abs(told - untold).max() > 1e-4
    with pytest.raises(ValueError, match="has 2 channels, but the network was trained with 1"):
        predict_probabilities(model, replace(volume, image=np.repeat(volume.image, 2, axis=0)), config)


def test_a_case_on_the_reference_grid_is_the_same_told_or_not(tmp_path):
    for name in "abcd":
        write_case(tmp_path, name, seed=ord(name))
    run_experiment(small_config(tmp_path), tmp_path / "run", show=False)
    model, config = load_run(tmp_path / "run")
    volume = read_case(find_cases(tmp_path)[0])
    told, untold = (predict_probabilities(model, volume, config, tell_spacing=tell) for tell in (True, False))
    np.testing.assert_allclose(told, untold, atol=1e-5)


def test_a_told_network_sees_as_many_millimetres_of_every_case_as_in_training(finished):
    root, _ = finished
    model, config = load_run(root / "run")
    volume, seen = read_case(find_cases(root / "data")[0]), []
    reference = np.array(model.arguments["spacing"])
    model.register_forward_pre_hook(lambda _, inputs: seen.append(np.array(inputs[0].shape[2:])))
    for factors in ((1, 1, 1), (2, 1, 1), (1, 0.5, 0.5)):
        spacing = tuple((reference * factors).tolist())
        for tell in (True, False):
            predict_probabilities(model, replace(volume, spacing=spacing), config, tell_spacing=tell)
            expected = np.array(config.patch) / (factors if tell else 1)
            np.testing.assert_array_equal(seen[-1], expected)


def test_a_finished_run_is_not_trained_again_and_other_settings_are_refused(finished):
    root, results = finished
    config = small_config(root / "data", patch=(8, 12, 12))
    before = (root / "run" / "model" / "model.safetensors").read_bytes()
    again = run_experiment(replace(config, overlap=0.25), root / "run", show=False)
    assert (root / "run" / "model" / "model.safetensors").read_bytes() == before
    assert again["seconds"] == results["seconds"]
    for change in ({"foreground": 0.1}, {"patch": (4, 12, 12)}, {"tell_spacing": False}):
        with pytest.raises(CheckpointError, match=f"had {next(iter(change))}="):
            run_experiment(replace(config, **change), root / "run", show=False)
    with pytest.raises(CheckpointError, match="had other training cases, case_"):
        run_experiment(replace(config, fold=1), root / "run", show=False)
    run_experiment(config, root / "run", show=False)


def test_other_files_of_the_same_names_are_refused(tmp_path):
    data = write_folder(tmp_path / "data", 3)
    config = small_config(data, folds=3)
    run_experiment(config, tmp_path / "run", show=False)
    learnt = json.loads((tmp_path / "run" / "split.json").read_text())["train"][0]
    shutil.copytree(data, tmp_path / "other")
    run_experiment(replace(config, data=tmp_path / "other"), tmp_path / "run", show=False)
    image = tmp_path / "other" / "images" / f"{learnt}.nii.gz"
    file = nibabel.load(image)
    nibabel.save(nibabel.Nifti1Image(file.get_fdata() + 1, file.affine), image)
    with pytest.raises(CheckpointError, match=f"learned from other files of {learnt}"):
        run_experiment(replace(config, data=tmp_path / "other"), tmp_path / "run", show=False)


def test_a_stopped_run_ends_with_the_same_bits(finished, monkeypatch):
    root, _ = finished
    from torchsonic.lab.training.volumes import VolumeTask

    real, calls = VolumeTask.loss, []

    def loss(self, model, batch):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, model, batch)

    config = small_config(root / "data", patch=(8, 12, 12))
    monkeypatch.setattr(VolumeTask, "loss", loss)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(config, root / "stopped", show=False)
    run_experiment(config, root / "stopped", show=False)
    assert len(calls) == 6, "two steps, the one that failed, the third again, and two that measure memory"
    files = [root / name / "model" / "model.safetensors" for name in ("run", "stopped")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_split_file_decides_who_is_tested(tmp_path):
    write_folder(tmp_path, 4)
    split = tmp_path / "thin.json"
    split.write_text('{"train": ["case_c", "case_a"], "test": ["case_d"]}')
    results = run_experiment(
        small_config(tmp_path, folds=5, split=split, cache_dtype="float16"), tmp_path / "run", show=False
    )
    assert [row["case"] for row in results["cases"]] == ["case_d"]
    assert json.loads((tmp_path / "run" / "split.json").read_text())["train"] == ["case_a", "case_c"]
    split.write_text('{"train": ["case_a"], "test": ["case_x"]}')
    with pytest.raises(ValueError, match="names case case_x, which is not in the data folder"):
        run_experiment(small_config(tmp_path, folds=5, split=split), tmp_path / "other", show=False)
    split.write_text('{"train": ["case_a", "case_b", "case_c"], "test": []}')
    results = run_experiment(small_config(tmp_path, folds=5, split=split), tmp_path / "all", show=False)
    assert results["cases"] == []
    assert results["dice"] is None


@pytest.mark.parametrize("how", BAD)
def test_a_bad_case_stops_the_run_before_it_begins(tmp_path, how):
    write_folder(tmp_path, 5)
    write_case(tmp_path, "case_b")
    spoil(tmp_path, "case_b", how)
    with pytest.raises(CaseError, match="case case_b: "):
        run_experiment(small_config(tmp_path), tmp_path / "run", show=False)
    assert not (tmp_path / "run").exists()


def test_a_run_may_go_on_without_its_bad_cases(tmp_path):
    write_folder(tmp_path, 6)
    spoil(tmp_path, "case_a", "nan")
    (tmp_path / "images" / "case_b.nii.gz").write_text("no")
    with pytest.warns(UserWarning, match="left out: case case_[ab]"):
        results = run_experiment(small_config(tmp_path, keep_going=True), tmp_path / "run", show=False)
    assert sorted(results["left_out"]) == ["case_a", "case_b"]
    split = json.loads((tmp_path / "run" / "split.json").read_text())
    assert sorted(split["train"] + split["test"]) == [f"case_{letter}" for letter in "cdef"]
    assert len(results["cases"]) == len(split["test"])
    for case in find_cases(tmp_path):
        if case.name not in split["test"]:
            case.images[0].write_text("no")
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(ValueError, match="training cases were left out; the first one: case case_"),
    ):
        run_experiment(small_config(tmp_path, keep_going=True), tmp_path / "none", show=False)


def test_unet_trains_on_the_same_road(tmp_path):
    pytest.importorskip("monai", reason="monai is not installed")
    write_folder(tmp_path, 4)
    config = small_config(tmp_path, model="unet", common_spacing="median")
    results = run_experiment(config, tmp_path / "run", show=False)
    assert results["config"]["common_spacing"] == [3.5, 1.25, 1.125]
    model, config = load_run(tmp_path / "run")
    volume = read_case(find_cases(tmp_path)[0])
    assert predict_case(model, volume, config).shape == volume.label.shape


def test_images_of_two_channels(tmp_path):
    for index, name in enumerate("abcd"):
        image, label = make_arrays(seed=index)
        for channel in range(2):
            write(tmp_path / "images" / f"{name}_{channel:04d}.nii.gz", image * (channel + 1), make_affine())
        write(tmp_path / "labels" / f"{name}.nii.gz", label, make_affine())
    results = run_experiment(small_config(tmp_path), tmp_path / "run", show=False)
    assert len(results["cases"]) == 2
    assert load_run(tmp_path / "run")[0].arguments["in_channels"] == 2


def test_presets_keep_what_they_do_not_name():
    config = VolumesConfig(model="unet", training=TrainingConfig(batch=2, seed=4))
    smoke = choose_preset(config, PRESETS, "smoke")
    assert (smoke.model, smoke.training.seed, smoke.training.steps) == ("unet", 4, 10)
    with pytest.raises(ValueError, match="preset must be one of smoke, quick"):
        choose_preset(config, PRESETS, "long")
