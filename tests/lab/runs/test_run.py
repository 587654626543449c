"""One run: one process at a time, settings found again, damage named, nothing that leaves the machine."""

import json
import os
import shutil
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")

from tests import programs
from torchsonic.cli import main
from torchsonic.io import read_json
from torchsonic.lab.runs.folder import RunError, kind_of, load_model, read_config, read_facts
from torchsonic.lab.runs.images import ImagesConfig, make_model
from torchsonic.lab.runs.lock import LOCK_NAME, RunLockedError, locked
from torchsonic.lab.runs.masks import MasksConfig
from torchsonic.lab.runs.run import refuse_changes
from torchsonic.lab.runs.settings import SettingsError, merged, parse_settings, plain_settings, public_settings
from torchsonic.lab.runs.synthetic import SyntheticConfig, SyntheticExperiment, load_run, run_experiment
from torchsonic.lab.runs.volumes import VolumesConfig
from torchsonic.lab.training import CheckpointError, TrainingConfig

OLD = Path(__file__).parent / "old"
CONFIGS = {"synthetic": SyntheticConfig, "images": ImagesConfig, "volumes": VolumesConfig}


def tiny(**options) -> SyntheticConfig:
    training = TrainingConfig(steps=2, batch=2, log_every=1, checkpoint_every=1, accelerator="cpu")
    return SyntheticConfig(task="halligalli", model="convnet", test_samples=4, training=training, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    before = os.umask(0o022)
    try:
        run_experiment(tiny(), folder, show=False)
    finally:
        os.umask(before)
    return folder


@contextmanager
def hold(folder):
    """Another process that holds the lock of a folder until it is killed."""
    process = programs.start([Path(__file__).parent / "hold.py", folder])
    deadline = time.monotonic() + 120
    while not (folder / LOCK_NAME).exists() or not (folder / LOCK_NAME).read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def test_a_folder_that_is_being_trained_is_refused_and_the_process_named(tmp_path):
    with hold(tmp_path / "run") as other:
        words = rf"is being trained by process {other.pid} on .* since 20.*; wait for it to finish"
        with pytest.raises(RunLockedError, match=words):
            run_experiment(tiny(), tmp_path / "run", show=False)
        assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK_NAME], "nothing was written"


def test_a_lock_ends_with_its_process_however_that_ends(tmp_path):
    with hold(tmp_path / "run"):
        pass  # killed
    assert (tmp_path / "run" / LOCK_NAME).exists(), "a crash cleans nothing up"
    run_experiment(tiny(), tmp_path / "run", show=False)
    assert not (tmp_path / "run" / LOCK_NAME).exists()


def test_of_processes_that_begin_at_once_one_trains_and_the_others_say_why_not(tmp_path):
    words = ["-m", "torchsonic.cli", "train", "halligalli", "--preset", "smoke", "--model", "convnet"]
    words += ["--steps", "150", "--test-samples", "4", "--accelerator", "cpu", "--out", tmp_path / "out"]
    started = [programs.start(words, errors=tmp_path / str(number)) for number in range(3)]
    for process in started:
        process.join(500)
    ended = [((tmp_path / str(number)).read_text(), process.exitcode) for number, process in enumerate(started)]
    good = [code for _, code in ended if code == 0]
    assert good, ended
    for error, code in ended:
        assert code == 0 or ("is being trained by process" in error and error.count("\n") == 1), error
        assert "Errno" not in error
    steps = [json.loads(line)["step"] for line in next(tmp_path.rglob("log.jsonl")).read_text().splitlines()]
    assert steps == sorted(steps), "one process wrote the log"


def test_a_run_that_is_refused_leaves_no_folder(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "a" / "b" / "run"):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_a_run_says_its_kind_and_version(finished):
    saved = read_json(finished / "config.json")
    assert (saved["kind"], saved["format"]) == ("synthetic", 1)
    assert saved["torchsonic"]
    assert kind_of(finished) == "synthetic"
    assert read_config(finished, SyntheticConfig) == tiny()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("synthshape", "synthetic"), ("halligalli", "synthetic"), ("images", "images")),
        *(("images_init", "images"), ("volumes", "volumes"), ("volumes_unet", "volumes")),
    ],
)
def test_runs_of_the_version_before_are_read_and_resumed(tmp_path, name, kind):
    shutil.copy(OLD / f"{name}.json", tmp_path / "config.json")
    (tmp_path / "checkpoints").mkdir()
    assert kind_of(tmp_path) == kind
    config = read_config(tmp_path, CONFIGS[kind])
    saved, defaults = read_json(OLD / f"{name}.json"), plain_settings(type(config)())
    assert plain_settings(config) == merged(merged(defaults, getattr(type(config), "before", {})), saved)
    moved = {"init": f"/elsewhere/{config.init}"} if getattr(config, "init", None) else {}
    settings = plain_settings(replace(config, **moved))
    refuse_changes(tmp_path, settings, may_change=())
    with pytest.raises(CheckpointError, match="had seed=0, not 5"):
        refuse_changes(tmp_path, {**settings, "training": {**settings["training"], "seed": 5}}, may_change=())


def test_a_run_that_sees_all_arrangements_does_not_resume_without_some(tmp_path):
    shutil.copy(OLD / "halligalli.json", tmp_path / "config.json")
    (tmp_path / "checkpoints").mkdir()
    config = read_config(tmp_path, SyntheticConfig)
    SyntheticExperiment(config).refuse_changes(tmp_path)
    with pytest.raises(CheckpointError, match=r"had unseen=0\.0, not 0\.1"):
        SyntheticExperiment(replace(config, unseen=0.1)).refuse_changes(tmp_path)


@pytest.mark.parametrize(("cls", "name"), [(ImagesConfig, "data"), (VolumesConfig, "data"), (VolumesConfig, "split")])
def test_paths_are_stored_absolutely(tmp_path, monkeypatch, cls, name):
    from torchsonic.lab.runs.settings import with_absolute_paths

    monkeypatch.chdir(tmp_path)
    assert getattr(with_absolute_paths(cls(**{name: Path("here/../data")})), name) == tmp_path / "data"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"test_samples": "many"}, r"config\.json: test_samples must be a whole number, got 'many'"),
        ({"test_samples": True}, "test_samples must be a whole number, got True"),
        ({"model": "resnet"}, "model must be one of 'sonicnet', .*got 'resnet'"),
        ({"training": 3}, r"config\.json: training must be an object of settings, got 3"),
        ({"training": {"steps": None}}, r"config\.json: training: steps must be a whole number, got None"),
        ({"training": {"loggers": "all"}}, "loggers must be a list, each one of 'tensorboard', 'wandb', got 'all'"),
        ({"training": {"steps": 0}}, r"config\.json: training: steps must be at least 1, got 0"),
        ({"fold": 9}, r"config\.json: fold must be 0 to 4, got 9"),
        ({"colour": 1}, "has a setting 'colour' that this version does not know; correct its name or update"),
        ({"format": 2}, "has format 2, but this version reads 1; update torchsonic"),
    ],
)
def test_damaged_settings_are_named(finished, tmp_path, capsys, change, words):
    copy = shutil.copytree(finished, tmp_path / "run")
    saved = read_json(copy / "config.json")
    (copy / "config.json").write_text(json.dumps({**saved, **change}))
    with pytest.raises((SettingsError, RunError), match=words):
        load_run(copy)
    assert main(["evaluate", str(copy)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "Traceback" not in error


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"text"', "{}"])
def test_a_damaged_config_ends_in_one_line(finished, tmp_path, capsys, text):
    copy = shutil.copytree(finished, tmp_path / "run")
    (copy / "config.json").write_text(text)
    assert main(["evaluate", str(copy)]) == 1
    error = capsys.readouterr().err
    assert "config.json" in error
    assert error.count("\n") == 1
    if text != "{}":
        with pytest.raises(ValueError, match=r"config\.json"):
            run_experiment(tiny(), copy, show=False)


def test_files_beside_the_settings_are_checked(tmp_path):
    (tmp_path / "split.json").write_text('{"test": []}')
    with pytest.raises(RunError, match=r"split\.json has no 'train'"):
        read_facts(tmp_path / "split.json", "train")
    with pytest.raises(RunError, match=r"classes\.json is missing in"):
        read_facts(tmp_path / "classes.json")


def test_settings_of_every_kind_come_back(tmp_path):
    for config in (SyntheticConfig(), ImagesConfig(), VolumesConfig(patch=(4, 8, 8), common_spacing="median")):
        assert parse_settings(type(config), plain_settings(config), "here") == config


def test_what_is_left_out_of_a_group_has_the_default_of_that_group():
    """A study that named the steps alone trained volumes in batches of 32, the default of all other kinds."""
    volumes = parse_settings(VolumesConfig, {"data": "d", "training": {"steps": 3}}, "study")
    assert (volumes.training.steps, volumes.training.batch) == (3, 2)
    masks = parse_settings(MasksConfig, {"data": "d", "augmentation": {"noise": 0.0}}, "study")
    assert (masks.augmentation.noise, masks.augmentation.rotation) == (0.0, 180.0)


def test_everything_in_a_run_has_the_permissions_of_the_umask(finished):
    for path in finished.rglob("*"):
        expected = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_what_is_no_finished_run_says_what_it_is(finished, tmp_path):
    with pytest.raises(RunError, match=f"there is no folder {tmp_path}/nowhere"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(RunError, match=f"did you mean {finished}"):
        load_model(finished.parent)
    stopped = tmp_path / "stopped"
    (stopped / "checkpoints").mkdir(parents=True)
    with pytest.raises(RunError, match="has not finished; run its command again"):
        load_model(stopped)


@pytest.fixture
def no_hub(monkeypatch):
    asked = []
    monkeypatch.setattr("torchsonic.models.pretrained.download", lambda *names, **_: asked.append(names))
    return asked


@pytest.mark.parametrize("init", ["hospital/patients", "runs/images/mistyped", "hospital"])
def test_a_mistyped_folder_is_never_asked_for_at_a_hub(no_hub, tmp_path, monkeypatch, init):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"there is no folder '{init}'"):
        make_model(ImagesConfig(init=init), ("a", "b"))
    assert not no_hub


@pytest.mark.parametrize(
    "words",
    [["evaluate"], ["predict"], ["predict", "images"], ["evaluate", "images"], ["explain"], ["explore"], ["export"]],
)
def test_no_command_asks_a_hub_for_a_mistyped_folder(no_hub, tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    more = ["picture.png"] if words[0] == "predict" else []
    assert main([*words, "hospital/patients", *more]) == 1
    assert "hospital/patients" in capsys.readouterr().err
    assert not no_hub


def test_a_hub_is_asked_when_it_is_named(no_hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError, AttributeError)):
        make_model(ImagesConfig(init="hub:someone/model"), ("a", "b"))
    assert no_hub[0][0] == "someone/model"


def test_results_name_files_and_folders_without_the_path_to_them(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Settings:
        data: Path
        table: Path | None = None
        init: str = "hub:someone/model"

    assert public_settings(Settings(Path("here/patients"))) == {
        "data": "patients",
        "table": None,
        "init": "hub:someone/model",
    }
    assert public_settings(Settings(tmp_path, init=str(tmp_path / "run")))["init"] == "run", "a path in a text"
