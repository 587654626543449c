"""Package the trained networks, each with a model card."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torchsonic.lab.runs.folder import is_run, kind_of
from torchsonic.models.model_folder import FOLDER

__all__ = ["RECIPES", "Recipe", "collect"]

MOST_BYTES = 2_000_000
"""Of all files of a network."""
DRAWN = "scenes that torchsonic draws itself"
SHAPES = {"clean": "Dice, clean"}
FILES = ("config.json", "results.json", "classes.json", "split.json")
"""What a network is used and tested with, as far as its run has it."""


class Recipe(NamedTuple):
    """How a network is trained, and on what."""

    command: str
    """Arguments of ``torchsonic train``, without the data."""
    run: str
    """The run's folder within that of all runs."""
    about: str
    folder: str = ""
    """Data within the folder of all data; empty where none are needed."""
    data: str = DRAWN
    """The data and their licence; the network's own is the package's."""
    measures: Mapping[str, str] = SHAPES
    """Scores of ``results.json`` that the card shows, with their names."""

    @property
    def model(self) -> str:
        """Name of the network."""
        words = self.command.split()
        return words[words.index("--model") + 1]


RECIPES = {
    "shapes": Recipe(
        "synthshape --model sonicnet --steps 1500",
        "synthshape/sonicnet/fold0-seed0",
        "SonicNet of the paper's Table 1: finds circles, squares, triangles, crosses and stars.",
    ),
    "shapes_orbit": Recipe(
        "synthshape --model orbitnet --steps 1500",
        "synthshape/orbitnet/fold0-seed0",
        "The same task; rotating the image by any angle rotates the answer.",
    ),
    "shapes_conv": Recipe(
        "synthshape --model convnet --steps 1500",
        "synthshape/convnet/fold0-seed0",
        "The same task with 3x3 convolutions, for comparison.",
    ),
    "corners": Recipe(
        "halligalli --model sonicnet",
        "halligalli/sonicnet/fold0-seed0",
        "HalliGalli with one Sonic block: do exactly two of the shapes in the four corners match?",
    ),
    "corners_conv": Recipe(
        "halligalli --model convnet",
        "halligalli/convnet/fold0-seed0",
        "HalliGalli with one 3x3 convolution, for comparison.",
    ),
    "hippocampus": Recipe(
        "volumes --model sonicunet3d --steps 1500 --batch 4",
        "volumes/hippocampus/sonicunet3d/fold0-seed0",
        "SonicUNet: finds the anterior (1) and posterior (2) part of the hippocampus in T1-weighted MR crops of about "
        "35 x 50 x 35 mm. Not a medical device.",
        "hippocampus",
        "Medical Segmentation Decathlon, Task04 Hippocampus (Antonelli et al. 2022), CC BY-SA 4.0; not included",
        {"dice": "Dice of the test cases, mean of both parts"},
    ),
    "hippocampus_conv": Recipe(
        "volumes --model unet --width 7 --steps 1500 --batch 4",
        "volumes/hippocampus/unet-width7/fold0-seed0",
        "MONAI's U-Net with about as many parameters, for comparison. Not a medical device.",
        "hippocampus",
        "Medical Segmentation Decathlon, Task04 Hippocampus (Antonelli et al. 2022), CC BY-SA 4.0; not included",
        {"dice": "Dice of the test cases, mean of both parts"},
    ),
    "nuclei": Recipe(
        "masks --model orbitnet2d --instances --patch 128 128 --steps 1200 --batch 4 --learning-rate 0.01",
        "masks/nuclei/orbitnet2d-instances/fold0-seed0",
        "OrbitNet: finds nuclei in microscope images and separates touching ones, whatever the orientation of the "
        "slide.",
        "nuclei",
        "2018 Data Science Bowl (Caicedo et al. 2019, BBBC038), CC0; not included",
        {"dice": "Dice", "precision": "average precision of nuclei, mean over IoU 0.5 to 0.9"},
    ),
    "imagenette": Recipe(
        "images --model resnet50_sonic.hybrid --model-options width=14 depths=2,2,2,2 "
        "operator_options.num_modes=12,24,32,48 --steps 4000 --batch 32 --weight-decay 0.05 --warmup 0.1",
        "images/imagenette/resnet50_sonic.hybrid-width=14-depths=2,2,2,2-operator_options.num_modes=12,24,32,48-128px"
        "/seed0",
        "A small ResNet of Sonic and local convolutions for ten classes of photographs at 128 pixels. It was trained "
        "on photographs of ImageNet, for research, and is meant for research only.",
        "imagenette",
        "Imagenette, ten classes of ImageNet, whose terms allow non-commercial research; not included",
        {"top1": "top-1 accuracy", "top5": "top-5 accuracy"},
    ),
}


def collect(name: str, source: Path, *, out: Path = FOLDER) -> Path:
    """Copy a finished run's network, settings and results, and write its card; refuses a run that does not fit."""
    recipe, target = RECIPES[name], out / name
    results = _check(name, recipe, source)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source / "model", target / "model")
    for file in FILES:
        if (source / file).is_file():
            text = json.dumps(_without_folders(json.loads((source / file).read_text())), indent=2)
            (target / file).write_text(text + "\n")
    (target / "README.md").write_text(_card(name, recipe, _without_folders(results)))
    return target


def _check(name: str, recipe: Recipe, source: Path) -> dict[str, Any]:
    """The results of a run, if its network may be packaged under this name."""
    if not is_run(source) or not (source / "results.json").is_file():
        raise ValueError(f"{source} is not a finished run; give a folder written by 'torchsonic train' or 'study'")
    results = json.loads((source / "results.json").read_text())
    config, task = results["config"], recipe.command.split()[0]
    found = config["model"], config.get("task", kind_of(source))
    if found != (recipe.model, task):
        raise ValueError(f"{source} is a run of {' on '.join(found)}; {name} is {recipe.model} on {task}")
    if config.get("hold_out"):
        raise ValueError(
            f"{source} held out {config['hold_out']:g} of its training data (hold_out), as searches do; "
            "collect a run that was trained on all of them"
        )
    data = Path(config.get("data", "")).name
    if data != recipe.folder:
        raise ValueError(f"{source} was trained on {data}; {name} is trained on {recipe.folder or DRAWN}")
    missing = [measure for measure in recipe.measures if results.get(measure) is None]
    if missing:
        raise ValueError(f"{source / 'results.json'} has no {missing[0]}; let the run finish its test")
    kept = [*(source / "model").iterdir(), *(source / file for file in FILES if (source / file).is_file())]
    if (size := sum(path.stat().st_size for path in kept)) > MOST_BYTES:
        raise ValueError(f"{source} has {size:,} bytes; a packaged network may have at most {MOST_BYTES:,}")
    if results["run"].get("dirty"):
        raise ValueError(f"{source} was trained with uncommitted changes; commit them and train again")
    return results


def _without_folders(value: Any) -> Any:
    """JSON in which paths are reduced to file and folder names, since paths are private."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return re.sub(r"(?<![^\s=])/(?:[^\s/]+/)*(?=[^\s/])", "", value) if isinstance(value, str) else value


def _card(name: str, recipe: Recipe, results: Mapping[str, Any]) -> str:
    run, training = results["run"], results["config"]["training"]
    lines = [
        f"# {name}",
        "",
        recipe.about,
        "",
        "| | |",
        "|---|---|",
        f'| load | `torchsonic.from_pretrained("{name}")` |',
        f"| parameters | {results['parameters']:,} |",
        f"| data | {recipe.data} |",
        "| licence | Apache-2.0 |",
        f"| training | {training['steps']:,} steps of {training['batch']}, seed {training['seed']} |",
        *(f"| {title} | {results[measure]:.3f} |" for measure, title in recipe.measures.items()),
        f"| command | `{run['command']}` |",
        f"| commit | {run['commit'][:10]} |",
    ]
    return "\n".join(lines) + "\n"
