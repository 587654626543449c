"""Recipes of the networks that come with the package."""

import json

import pytest

import torchsonic
from tools.weights import RECIPES, collect
from torchsonic.cli import main
from torchsonic.cli.table import KINDS, find_command
from torchsonic.models import create_model, pretrained_folder
from torchsonic.models import model_folder as packaged

RUN = {
    "command": "torchsonic train volumes --data /home/me/data/hippocampus --out=/home/me/runs",
    "commit": "0123456789abcdef",
    "dirty": False,
}


def write_run(folder, *, model="sonicunet3d", kind="volumes", run=RUN, hold_out=0.0, **scores):
    """What a finished training on volumes leaves behind, with a small network in the place of the real one."""
    network = create_model("sonicunet3d", num_classes=3, widths=(4, 8), num_modes=(2, 2))
    network.save_pretrained(folder / "model")
    training = {"steps": 2000, "batch": 2, "seed": 0}
    config = {"data": "/home/me/data/hippocampus", "model": model, "hold_out": hold_out, "training": training}
    results = {"config": config, "model": model, "task": kind, "parameters": 99, "run": run, "dice": 0.87654, **scores}
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "config.json").write_text(json.dumps({"kind": kind, "format": 1, "torchsonic": "0.2.0", **config}))
    (folder / "split.json").write_text(json.dumps({"train": ["case1"], "test": ["case2"]}))
    return folder


@pytest.fixture
def empty_package(tmp_path, monkeypatch):
    monkeypatch.setattr(packaged, "FOLDER", tmp_path / "weights")
    return tmp_path / "weights"


def test_a_run_comes_along_with_its_card_and_without_its_places(tmp_path, empty_package):
    target = collect("hippocampus", write_run(tmp_path / "run"), out=empty_package)
    names = sorted(path.name for path in target.iterdir())
    assert names == ["README.md", "config.json", "model", "results.json", "split.json"]
    card = (target / "README.md").read_text()
    assert "| Dice of the test cases, mean of both parts | 0.877 |" in card
    assert "CC BY-SA 4.0" in card
    assert "| command | `torchsonic train volumes --data hippocampus --out=runs` |" in card
    assert json.loads((target / "config.json").read_text())["data"] == "hippocampus"
    assert "/home" not in "".join(path.read_text() for path in target.glob("*.*"))
    assert torchsonic.list_pretrained() == ["hippocampus"]
    assert torchsonic.from_pretrained("hippocampus").arguments["widths"] == [4, 8]
    assert pretrained_folder("hippocampus") == target


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "unet"}, "a run of unet on volumes; hippocampus is sonicunet3d on volumes"),
        ({"kind": "masks"}, "a run of sonicunet3d on masks"),
        ({"hold_out": 0.2}, "held out 0.2 of its training data"),
        ({"dice": None}, "has no dice"),
        ({"run": {**RUN, "dirty": True}}, "uncommitted changes"),
    ],
)
def test_a_run_that_does_not_fit_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        collect("hippocampus", write_run(tmp_path / "run", **changes), out=tmp_path / "weights")
    assert not (tmp_path / "weights").exists()


def test_a_run_on_another_synthetic_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is a run of sonicnet on halligalli; shapes is sonicnet on synthshape"):
        collect("shapes", packaged.FOLDER / "corners", out=tmp_path / "weights")


def test_a_run_on_other_data_is_refused(tmp_path):
    run = write_run(tmp_path / "run")
    results = json.loads((run / "results.json").read_text())
    results["config"]["data"] = "/data/hearts"
    (run / "results.json").write_text(json.dumps(results))
    with pytest.raises(ValueError, match="was trained on hearts; hippocampus is trained on hippocampus"):
        collect("hippocampus", run, out=tmp_path / "weights")


def test_a_network_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.weights.MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="at most 1,000"):
        collect("hippocampus", write_run(tmp_path / "run"), out=tmp_path / "weights")


def test_the_command_names_what_it_does_not_know(tmp_path, capsys):
    pytest.importorskip("tyro")
    assert main(["weights", "collect", "hippocampi", str(tmp_path)]) == 1
    assert "NAME must be from shapes" in capsys.readouterr().err
    assert main(["weights", "collect", "hippocampus", str(tmp_path)]) == 1
    assert "is not a finished run" in capsys.readouterr().err


@pytest.mark.parametrize("name", RECIPES)
def test_the_command_of_a_recipe_leads_to_its_run(name):
    pytest.importorskip("tyro")
    from torchsonic.cli import parse

    recipe = RECIPES[name]
    words = ["train", *recipe.command.split(), *(["--data", recipe.folder] if recipe.folder else [])]
    assert any(recipe.command.split()[0] in kind.train for kind in KINDS.values())
    command = parse(words)
    config = command.config_class(**command.values_for(command.config_class))
    assert config.name == recipe.run
    assert find_command(words)[0] is type(command)
