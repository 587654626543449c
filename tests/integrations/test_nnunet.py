"""nnU-Net with Sonic networks: only the network changes, and it is the same at prediction."""

import importlib
import json
import os
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nnunetv2", reason="nnunetv2 is not installed")

from batchgenerators.utilities.file_and_folder_operations import write_pickle
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetNumpy
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

from tests import programs
from tests.integrations.absent import import_without
from tests.integrations.hippocampi import AFFINE, write_cases
from torchsonic.cli import main
from torchsonic.integrations.nnunet import (
    nnUNetTrainerBudget,
    nnUNetTrainerSonic,
    nnUNetTrainerSonicHybrid,
    nnUNetTrainerSonicOrbit,
)
from torchsonic.integrations.nnunet_settings import PREFIX
from torchsonic.io import read_json
from torchsonic.lab.training.loggers import read_log
from torchsonic.models import SonicNet
from torchsonic.nn.hybrid import LocalConv
from torchsonic.nn.network_spacing import spaced_layers
from torchsonic.nn.parameters import mode_parameters

SPACING = [5.0, 1.5, 1.25]
DATASET = {"labels": {"background": 0, "front": 1, "back": 2}, "channel_names": {"0": "MRI"}, "file_ending": ".nii.gz"}
SMALL = {"width": 8, "depth": 2, "num_modes": 4}


def make_configuration(axes: int) -> dict:
    """What nnU-Net plans, as far as trainers read it."""
    convolution = f"torch.nn.modules.conv.Conv{axes}d"
    return {
        "data_identifier": f"nnUNetPlans_{axes}d",
        "batch_size": 2,
        "patch_size": [8, 16, 12][-axes:],
        "spacing": SPACING[-axes:],
        "batch_dice": False,
        "architecture": {
            "network_class_name": "dynamic_network_architectures.architectures.unet.PlainConvUNet",
            "arch_kwargs": {
                "n_stages": 3,
                "features_per_stage": [4, 8, 8],
                "conv_op": convolution,
                "kernel_sizes": [[3] * axes] * 3,
                "strides": [[1] * axes, [2] * axes, [2] * axes],
                "n_conv_per_stage": [1, 1, 1],
                "n_conv_per_stage_decoder": [1, 1],
                "conv_bias": True,
                "norm_op": f"torch.nn.modules.instancenorm.InstanceNorm{axes}d",
                "norm_op_kwargs": {"eps": 1e-5, "affine": True},
                "dropout_op": None,
                "dropout_op_kwargs": None,
                "nonlin": "torch.nn.LeakyReLU",
                "nonlin_kwargs": {"inplace": True},
            },
            "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
        },
    }


def make_plans() -> dict:
    return {
        "dataset_name": "Dataset901_Test",
        "plans_name": "nnUNetPlans",
        "label_manager": "LabelManager",
        "configurations": {
            "2d": make_configuration(2),
            "3d_fullres": make_configuration(3),
            "3d_child": {"inherits_from": "3d_fullres"},
        },
    }


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Make a trainer under the given settings and no others."""
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(variable)
    for name in ("preprocessed", "results"):
        monkeypatch.setenv(f"nnUNet_{name}", str(tmp_path / name))
    monkeypatch.setenv("nnUNet_n_proc_DA", "0")
    for axes in (2, 3):  # nnU-Net wants to see how the data is stored
        folder = tmp_path / "preprocessed" / "Dataset901_Test" / f"nnUNetPlans_{axes}d"
        folder.mkdir(parents=True)
        (folder / "case.b2nd").touch()

    def make(trainer=nnUNetTrainerSonic, configuration="3d_fullres", *, fold=0, initialize=True, **settings):
        for variable in [name for name in os.environ if name.startswith(PREFIX)]:
            monkeypatch.delenv(variable)
        for name, value in settings.items():
            monkeypatch.setenv(f"{PREFIX}{name.upper()}", str(value))
        plans = {**make_plans(), "continue_training": False}
        made = trainer(plans, configuration, fold, DATASET, torch.device("cpu"))
        if initialize:
            made.initialize()
        return made

    return make


def keep(trainer) -> Path:
    """Write what nnU-Net writes for prediction; the folder of the folds."""
    folder = Path(trainer.output_folder_base)
    (folder / "plans.json").write_text(json.dumps(trainer.plans_manager.plans))
    (folder / "dataset.json").write_text(json.dumps(DATASET))
    trainer.save_checkpoint(str(Path(trainer.output_folder) / "checkpoint_final.pth"))
    return folder


def shaped(trainer) -> torch.Tensor:
    return torch.randn(1, 1, *trainer.configuration_manager.patch_size)


@pytest.mark.parametrize("configuration", ["2d", "3d_fullres", "3d_child"])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_networks_spacing_is_that_of_the_plans(train, configuration, stride):
    network = train(configuration=configuration, stride=stride, **SMALL).network.eval()
    axes = 2 if configuration == "2d" else 3
    assert isinstance(network, SonicNet)
    spacing = SPACING[-axes:]
    for _, layer in spaced_layers(network):
        assert layer.reference_spacing == tuple(d * s for d, s in zip(spacing, layer.input_stride, strict=True))
    x = torch.randn(1, 1, *[8, 16, 12][-axes:])
    with torch.no_grad():
        torch.testing.assert_close(network(x), network(x, spacing=spacing))
        assert not torch.allclose(network(x), network(x, spacing=1.0), rtol=1e-2)


def test_the_hybrid_differs_by_its_local_kernels(train):
    plain, hybrid = train(**SMALL), train(nnUNetTrainerSonicHybrid, local_kernel=5, **SMALL)
    assert not [m for m in plain.network.modules() if isinstance(m, LocalConv)]
    local = [m for m in hybrid.network.modules() if isinstance(m, LocalConv)]
    assert [m.kernel_size for m in local] == [5, 5]
    assert all(m.reference_spacing == tuple(SPACING) for m in local)


@pytest.mark.parametrize(("configuration", "group", "elements"), [("2d", None, 8), ("3d_fullres", "C4", 4)])
def test_the_orbit_trainer_has_a_network_that_turns(train, configuration, group, elements):
    trainer = train(nnUNetTrainerSonicOrbit, configuration, width=2, depth=2, group=group or "", norm="batch")
    assert type(trainer.network).__name__ == "OrbitNet"
    assert len(trainer.network.features.group) == elements
    assert trainer.network(shaped(trainer)).shape[1] == 3
    log = Path(trainer.log_file).read_text()
    assert "nnUNetTrainerSonicOrbit does not use norm" in log
    rebuilt = nnUNetTrainerSonicOrbit.build_network_architecture(
        trainer.plans_manager, trainer.configuration_manager, 1, 3, enable_deep_supervision=False
    )
    rebuilt.load_state_dict(trainer.network.state_dict())


def test_settings_reach_the_trainer_and_the_plans(train):
    trainer = train(
        epochs=3,
        iterations=5,
        val_iterations=2,
        save_every=1,
        batch_size=4,
        patch_size="6,10,12",
        learning_rate=0.5,
        weight_decay=0.25,
        **SMALL,
    )
    assert (trainer.num_epochs, trainer.num_iterations_per_epoch, trainer.num_val_iterations_per_epoch) == (3, 5, 2)
    assert (trainer.save_every, trainer.batch_size, trainer.initial_lr, trainer.weight_decay) == (1, 4, 0.5, 0.25)
    assert trainer.configuration_manager.patch_size == [6, 10, 12]
    kept = trainer.my_init_kwargs["plans"]["configurations"]["3d_fullres"]
    assert kept["patch_size"] == [6, 10, 12]
    assert {name: kept["torchsonic"]["network"][name] for name in SMALL} == SMALL
    assert not trainer.enable_deep_supervision
    assert trainer.my_init_kwargs["plans"]["configurations"]["2d"] == make_configuration(2)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_modes_keep_their_share_of_the_learning_rate(train, optimiser):
    trainer = train(optimiser=optimiser, learning_rate=0.1, mode_lr_scale=0.2, epochs=10, **SMALL)
    modes = {id(p) for p in mode_parameters(trainer.network)}
    assert modes
    for epoch in (0, 4, 9):
        trainer.lr_scheduler.step(epoch)
        rate = 0.1 * (1 - epoch / 10) ** 0.9
        for group in trainer.optimizer.param_groups:
            slow = all(id(p) in modes for p in group["params"])
            assert slow or not any(id(p) in modes for p in group["params"])
            assert group["lr"] == pytest.approx(rate * (0.2 if slow else 1.0))
            assert not (slow and group["weight_decay"])


def test_a_step_of_training_lowers_the_loss(train):
    trainer = train(optimiser="adamw", seed=0, **SMALL)
    x = shaped(trainer)
    batch = {"data": x, "target": (x > 0).long() + (x > 1).long()}
    trainer.set_deep_supervision_enabled(True)
    losses = [float(trainer.train_step(batch)["loss"]) for _ in range(15)]
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("trainer", [nnUNetTrainerSonic, nnUNetTrainerSonicHybrid, nnUNetTrainerBudget])
def test_prediction_rebuilds_the_network_whatever_the_environment(train, trainer):
    changed = {} if trainer is nnUNetTrainerBudget else {"norm": "instance", "padding_mode": "zeros", **SMALL}
    trained = train(trainer, patch_size="4,8,12", seed=3, **changed)
    folder = keep(trained)
    # `train` also clears what was set; now other settings, some of which fit the weights but mean another function.
    train(trainer, fold=9, initialize=False, width=12, norm="group", padding_mode="circular", patch_size="8,8,8")
    predictor = nnUNetPredictor(device=torch.device("cpu"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "nnunetv2.inference.predict_from_raw_data.recursive_find_trainer_class_by_name",
            {trainer.__name__: trainer}.__getitem__,
        )
        predictor.initialize_from_trained_model_folder(str(folder), (0,))
    trained.set_deep_supervision_enabled(False)
    x = shaped(trained)
    with torch.no_grad():
        torch.testing.assert_close(predictor.network.eval()(x), trained.network.eval()(x), rtol=0, atol=0)
    assert predictor.configuration_manager.patch_size == [4, 8, 12]


def test_going_on_takes_the_checkpoints_settings_but_for_the_budget(train):
    first = train(epochs=10, optimiser="adamw", norm="channel", patch_size="4,8,12", **SMALL)
    first.train_step({"data": shaped(first), "target": torch.ones(1, 1, 4, 8, 12)})
    path = str(Path(first.output_folder) / "checkpoint_latest.pth")
    first.save_checkpoint(path)
    second = train(initialize=False, epochs=20, width=16, optimiser="sgd")
    second.load_checkpoint(path)
    x = shaped(first)
    with torch.no_grad():
        torch.testing.assert_close(second.network.eval()(x), first.network.eval()(x), rtol=0, atol=0)
    assert isinstance(second.optimizer, torch.optim.AdamW)
    assert second.num_epochs == 20
    assert second.configuration_manager.patch_size == [4, 8, 12]
    log = Path(second.log_file).read_text()
    assert "width=16 is ignored; the checkpoint's 8 is used" in log
    assert "optimiser=sgd is ignored; the checkpoint's adamw is used" in log
    second.save_checkpoint(path)
    third = train(initialize=False)
    third.load_checkpoint(path)
    assert third.settings == second.settings
    assert third.num_epochs == 20


def test_going_on_returns_to_what_a_configuration_inherits(train):
    first = train(configuration="3d_child", **SMALL)
    folder = keep(first)
    second = train(configuration="3d_child", initialize=False, patch_size="4,4,4", batch_size=7)
    second.load_checkpoint(str(folder / "fold_0" / "checkpoint_final.pth"))
    assert second.configuration_manager.patch_size == [8, 16, 12]
    assert second.batch_size == 2


def test_a_checkpoint_is_read_without_unpickling_objects_before_nnunet_reads_it(train, monkeypatch):
    first = train(**SMALL)
    path = str(Path(first.output_folder) / "checkpoint_latest.pth")
    first.logger.log("mean_fg_dice", np.float64(0.5), 0)
    first.logger.log("train_losses", np.float32(0.25), 0)
    first.save_checkpoint(path)
    seen = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *given, **options: seen.append(options) or load(*given, **options))
    second = train(initialize=False)
    second.load_checkpoint(path)
    assert [options["weights_only"] for options in seen] == [True, False]  # ours first; nnU-Net's reads what passed
    assert second.logger.get_value("train_losses", 0) == 0.25


class Hostile:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_going_on_from_a_hostile_checkpoint_executes_nothing(train, tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "checkpoint_latest.pth"
    torch.save({"init_args": Hostile(trace)}, path)
    with pytest.raises(ValueError, match="is not loaded"):
        train(initialize=False).load_checkpoint(str(path))
    assert not trace.exists()


def test_a_checkpoint_of_another_trainer_is_refused(train):
    class Plain(nnUNetTrainer):
        pass

    path = str(Path(train(Plain).output_folder) / "checkpoint_final.pth")
    train(Plain).save_checkpoint(path)
    with pytest.raises(ValueError, match="has no settings, so it is not from nnUNetTrainerSonic"):
        train(initialize=False).load_checkpoint(path)


def test_folds_with_another_network_are_refused(train):
    keep(train(fold=0, **SMALL))
    words = "fold_0 was trained with width=8, but now it is 16; all folds share one network"
    with pytest.raises(ValueError, match=words):
        train(fold=1, **{**SMALL, "width": 16}).on_train_start()
    with pytest.raises(ValueError, match=r"patch_size=\[8, 16, 12\], but now it is \[8, 8, 8\]"):
        train(fold=1, patch_size="8,8,8", **SMALL).on_train_start()
    # Another budget is no other network, and the same fold may be trained anew.
    for same in ({"fold": 1, "epochs": 2, **SMALL}, {"fold": 0, **SMALL, "width": 16}):
        train(**same)._refuse_another_network()


def test_the_budget_trainer_is_nnunets_own(train):
    trainer = train(nnUNetTrainerBudget, epochs=7, width=32, mode_lr_scale=1, weight_decay=1e-5)
    assert trainer.num_epochs == 7
    assert (trainer.initial_lr, trainer.weight_decay) == (1e-2, 1e-5)
    assert {group["weight_decay"] for group in trainer.optimizer.param_groups} == {1e-5}
    assert trainer.enable_deep_supervision
    assert type(trainer.network).__name__ == "PlainConvUNet"
    assert type(trainer).build_network_architecture is nnUNetTrainer.build_network_architecture
    assert "nnUNetTrainerBudget does not use mode_lr_scale, width" in Path(trainer.log_file).read_text()


def test_the_log_of_a_training_says_how_many_cases_are_oblique(train, monkeypatch):
    trainer = train(**SMALL)
    folder = Path(trainer.preprocessed_dataset_folder)
    for number, degrees in enumerate([0.0, 2.0, 20.0]):
        cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        affine = np.eye(4)
        affine[:2, :2] = [[cos, -sin], [sin, cos]]
        write_pickle({"nibabel_stuff": {"original_affine": affine}}, str(folder / f"case_{number}.pkl"))
        np.savez(folder / f"case_{number}.npz", data=np.zeros(1), seg=np.zeros(1))
    trainer.dataset_class = nnUNetDatasetNumpy
    monkeypatch.setattr(nnUNetTrainer, "on_train_start", lambda self: None)
    trainer.on_train_start()
    log = Path(trainer.log_file).read_text()
    assert "torchsonic: 1 of 3 cases are oblique by more than 5 degrees, one by 20; nnU-Net treats them" in log


def test_a_training_that_was_stopped_costs_the_time_of_all_its_epochs(train, monkeypatch):
    trainer = train(**SMALL)
    for epoch, (begin, end) in enumerate([(100.0, 107.0), (500.0, 503.5)]):  # it stood still in between
        trainer.logger.log("epoch_start_timestamps", begin, epoch)
        trainer.logger.log("epoch_end_timestamps", end, epoch)
    monkeypatch.setattr(nnUNetTrainer, "on_train_end", lambda self: None)
    trainer.on_train_end()
    cost = json.loads((Path(trainer.output_folder) / "cost.json").read_text())
    count = sum(parameter.numel() for parameter in trainer.network.parameters())
    assert cost == {"parameters": count, "epochs": 2, "seconds": 10.5, "peak_bytes": None, "device": "cpu"}


@pytest.mark.parametrize(
    ("trainer", "settings", "words"),
    [
        (nnUNetTrainerBudget, {"patch_size": "8,15,12"}, "multiples of 4,4,4 for nnU-Net's network, got 8,15,12"),
        (nnUNetTrainerSonic, {"patch_size": "8,16"}, "patch_size must have 3 axes for 3d_fullres, got 8,16"),
        (nnUNetTrainerSonic, {"stride": "2,2"}, "stride must be one number or 3, got 2,2"),
        (nnUNetTrainerSonic, {"widht": "8"}, "TORCHSONIC_NNUNET_WIDHT is not a setting"),
    ],
)
def test_mistakes_stop_a_trainer_before_it_starts(train, trainer, settings, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        train(trainer, initialize=False, **settings)
    assert not (tmp_path / "results").exists()


def draws() -> list[float]:
    return [float(torch.rand(())), float(np.random.rand()), random.random()]


def test_an_epoch_draws_the_same_for_every_network_and_after_going_on(train):
    drawn = []
    for trainer, epoch in ((nnUNetTrainerSonic, 0), (nnUNetTrainerBudget, 0), (nnUNetTrainerSonic, 1)):
        made = train(trainer, seed=5, num_modes=4)
        made.current_epoch = epoch
        made.on_epoch_start()
        made.on_train_epoch_start()
        drawn.append(draws())
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_seed_fixes_the_weights(train):
    a, b, c = (train(seed=seed, **SMALL).network.state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


def test_nothing_is_compiled_on_a_cpu(train, monkeypatch):
    monkeypatch.setenv("nnUNet_compile", "true")
    assert not train(initialize=False)._do_i_compile()


def test_deep_supervision_and_foreign_plans_are_refused():
    plans = PlansManager(make_plans())
    configuration = plans.get_configuration("2d")
    with pytest.raises(ValueError, match="enable_deep_supervision must be False"):
        nnUNetTrainerSonic.build_network_architecture(plans, configuration, 1, 3, True)
    with pytest.raises(ValueError, match="the plans of Dataset901_Test have no entry 'torchsonic'"):
        nnUNetTrainerSonic.build_network_architecture(plans, configuration, 1, 3)


def test_without_nnunet_the_error_names_the_extra(monkeypatch):
    said = import_without("nnunetv2", "torchsonic.integrations.nnunet", monkeypatch)
    assert 'pip install "torchsonic[medical]"' in said


def test_a_torchvision_of_another_torch_is_named_with_the_remedy(monkeypatch):
    class Foreign:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name.startswith("nnunetv2"):
                raise RuntimeError("operator torchvision::nms does not exist")

    for name in [name for name in sys.modules if name.split(".")[0] == "nnunetv2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "torchsonic.integrations.nnunet")
    monkeypatch.setattr(sys, "meta_path", [Foreign, *sys.meta_path])
    with pytest.raises(
        ImportError, match=r"nms does not exist.*torchvision does not match this build of torch; install both"
    ):
        importlib.import_module("torchsonic.integrations.nnunet")


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Folder with ``data`` of five cases that nnU-Net has planned, and a function that runs a program there."""
    pytest.importorskip("nibabel", reason="nibabel is not installed")
    root, commands = tmp_path_factory.mktemp("planned"), Path(sys.executable).parent
    assert not [name for name in os.environ if name.startswith(PREFIX)]
    folders = {f"nnUNet_{name}": str(root / name) for name in ("raw", "preprocessed", "results")}
    environment = {**folders, "nnUNet_extTrainer": str(root / "trainers"), "nnUNet_def_n_proc": "1"}

    def run(command, *arguments, **settings):
        variables = {f"{PREFIX}{name.upper()}": str(value) for name, value in settings.items()}
        # Planning needs its workers; training prepares its patches itself.
        own = {"nnUNet_n_proc_DA": "0"} if command == "nnUNetv2_train" else {}
        log, chosen = root / f"{Path(command).name}.log", {**environment, **variables, **own}
        assert programs.run([commands / command, *arguments], log=log, environment=chosen, fork_pools=True) == 0, (
            log.read_text()[-3000:]
        )

    data = write_cases(root / "data", 5)
    assert main(["nnunet", "install", environment["nnUNet_extTrainer"]]) == 0
    convert = ["--data", str(data), "--out", environment["nnUNet_raw"], "--name", "Hippo", "--id", "4"]
    assert main(["nnunet", "convert", *convert]) == 0
    run("nnUNetv2_plan_and_preprocess", "-d", 4, "-c", "3d_fullres", "-npfp", 1, "-np", 1)
    return root, run


@pytest.mark.parametrize("trainer", ["nnUNetTrainerSonic", "nnUNetTrainerBudget"])
def test_a_run_trains_validates_and_resumes_with_the_same_bits(planned, tmp_path, trainer):
    _, run = planned
    program = Path(__file__).with_name("nnunet_run.py")
    options = ["optimiser=adamw", *(f"{name}={value}" for name, value in SMALL.items() if trainer.endswith("Sonic"))]
    for name, lasts in {"whole": [3], "halted": [2, 3]}.items():
        for last in lasts:
            run(program, tmp_path / name, trainer, last, *options)
    whole, halted = (read_json(tmp_path / name / "results.json") for name in ("whole", "halted"))
    (case,) = whole["cases"]
    assert (
        whole["dice"] == halted["dice"] == pytest.approx(np.mean([dice for dice in case["dice"] if dice is not None]))
    )
    assert whole["parameters"] > 0
    first, second = (read_log(tmp_path / name / "log.jsonl") for name in ("whole", "halted"))
    assert [line["step"] for line in first] == [1, 2, 3]
    assert [line["loss"] for line in first] == [line["loss"] for line in second]


def test_the_real_commands_plan_train_and_predict(planned, tmp_path):
    nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed")
    root, run = planned
    data = root / "data"
    budget = {"epochs": 1, "iterations": 2, "val_iterations": 1, "seed": 0, "batch_size": 2}
    trainer = ("4", "3d_fullres", "0", "-tr", "nnUNetTrainerSonic", "-device", "cpu")
    # Larger than the cases, so that one window is all there is to predict, and no multiple of anything.
    run("nnUNetv2_train", *trainer, **budget, stride=2, norm="instance", patch_size="30,46,33", **SMALL)
    folder = root / "results" / "Dataset004_Hippo" / "nnUNetTrainerSonic__nnUNetPlans__3d_fullres"
    checkpoint = torch.load(folder / "fold_0" / "checkpoint_final.pth", weights_only=False)
    kept = checkpoint["init_args"]["plans"]["configurations"]["3d_fullres"]
    assert kept["torchsonic"]["settings"]["iterations"] == 2
    assert {name: kept["torchsonic"]["network"][name] for name in SMALL} == SMALL

    (validated,) = (folder / "fold_0" / "validation").glob("*.nii.gz")
    name, images = validated.name.removesuffix(".nii.gz"), tmp_path / "images"
    images.mkdir()
    shutil.copy(data / "images" / f"{name}.nii.gz", images / f"{name}_0000.nii.gz")
    source = nibabel.load(images / f"{name}_0000.nii.gz")
    turned = source.as_reoriented(
        nibabel.orientations.axcodes2ornt(("S", "L", "P"), (("P", "A"), ("I", "S"), ("R", "L")))
    )
    nibabel.save(turned, images / "turned_0000.nii.gz")
    other = {"width": 32, "norm": "group", "stride": 1, "patch_size": "8,8,8"}
    arguments = ("-d", 4, "-c", "3d_fullres", "-tr", "nnUNetTrainerSonic", "-f", 0, "-npp", 0, "-nps", 0)
    run("nnUNetv2_predict", *arguments, "-i", images, "-o", tmp_path / "out", "-device", "cpu", **other)
    source, label = (nibabel.load(data / kind / f"{name}.nii.gz") for kind in ("images", "labels"))
    prediction = nibabel.load(tmp_path / "out" / f"{name}.nii.gz")
    assert prediction.shape == source.shape
    np.testing.assert_allclose(prediction.affine, AFFINE, atol=1e-5)
    found = np.asarray(prediction.dataobj)
    assert len(np.unique(found)) > 1
    assert set(np.unique(found)) <= set(np.unique(label.dataobj))
    # The same volume in another order of axes has the same labels, in that order.
    other = nibabel.load(tmp_path / "out" / "turned.nii.gz")
    assert other.shape == turned.shape != source.shape
    back = nibabel.orientations.ornt_transform(*map(nibabel.io_orientation, (other.affine, prediction.affine)))
    np.testing.assert_array_equal(np.asarray(other.as_reoriented(back).dataobj), found)
    # The network as it was trained has predicted this case at the end of training.
    np.testing.assert_array_equal(found, np.asarray(nibabel.load(validated).dataobj))
