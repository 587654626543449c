"""Trained networks that come with the package."""

import json
import re

import pytest
import torch

import torchsonic
from tools.weights import RECIPES
from torchsonic.cli import main
from torchsonic.lab.report.demo.page import _load
from torchsonic.models import PretrainedError, pretrained_folder
from torchsonic.models.model_folder import FOLDER

MOST_BYTES = 2_000_000


def test_an_unknown_name_is_refused_with_those_that_come_along():
    with pytest.raises(PretrainedError, match="the trained networks in torchsonic are corners, "):
        torchsonic.from_pretrained("nowhere")


def test_a_folder_of_the_same_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = torchsonic.create_model("sonicnet2d", width=4, depth=1, num_modes=2)
    model.save_pretrained(tmp_path / "shapes")
    assert type(torchsonic.from_pretrained("shapes")) is type(model)


@pytest.mark.parametrize("inside", ["images", "model/notes"])
def test_a_data_folder_of_the_same_name_hides_no_network(tmp_path, monkeypatch, inside, capsys):
    (tmp_path / "corners" / inside).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert torchsonic.from_pretrained("corners").arguments["num_classes"] == 2
    assert main(["explain", "corners", "--against", "corners", "--layers", "1", "--out", "page.html"]) == 0
    assert main(["evaluate", "corners"]) == 0
    assert "halligalli" in capsys.readouterr().out
    assert len(_load({"corners": "corners"})) == 1
    with pytest.raises(PretrainedError, match=r"config.json is missing in corners"):
        torchsonic.from_pretrained("./corners")


@pytest.mark.parametrize("name", torchsonic.list_pretrained())
def test_a_network_that_comes_along_is_small_described_and_runs(name):
    folder = pretrained_folder(name)
    assert folder is not None
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < MOST_BYTES
    card = (folder / "README.md").read_text()
    assert all(f"| {word} |" in card for word in ("data", "licence", "training", "command", "commit"))
    results = json.loads((folder / "results.json").read_text())
    assert results["run"]["dirty"] is False
    for file in ("results.json", "config.json"):
        assert not re.search(r'["\s=]/\w', (folder / file).read_text()), f"{file} holds an absolute path"
    model = torchsonic.from_pretrained(name)
    assert not model.training
    assert sum(p.numel() for p in model.parameters()) == results["parameters"]


def test_every_network_that_comes_along_has_a_recipe():
    assert set(torchsonic.list_pretrained()) <= set(RECIPES)


def test_commands_take_names_and_leave_the_package_as_it_is(tmp_path, capsys):
    before = {path: path.read_bytes() for path in FOLDER.rglob("*") if path.is_file()}
    words = ["explain", "corners", "--against", "corners_conv", "--out", str(tmp_path / "page.html"), "--layers", "1"]
    assert main(words) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert main(["evaluate", "corners"]) == 0
    assert "halligalli" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in FOLDER.rglob("*") if path.is_file()} == before


def test_the_shapes_network_finds_shapes():
    from torchsonic.lab.data import SynthShape
    from torchsonic.lab.metrics.robustness import score_samples

    model, data = torchsonic.from_pretrained("shapes"), SynthShape()
    scenes = range(5_000_000, 5_000_010)
    assert score_samples(model, data.samples, scenes, num_classes=data.num_classes, background=False) > 0.9
    with torch.no_grad():
        assert model(data.samples(scenes, (32, 48))[0]).shape == (10, 6, 32, 48)


def test_the_list_of_networks_that_come_along_is_printed(capsys):
    assert main(["models", "--pretrained"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in torchsonic.list_pretrained())
