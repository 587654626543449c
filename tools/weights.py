"""Makes the trained networks that come with the package: each from one training command, with its card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from torchsonic.models.model_folder import FOLDER

__all__ = ["RECIPES", "Recipe", "collect"]

MOST_BYTES = 2_000_000
DRAWN = "scenes that torchsonic draws itself"


class Recipe(NamedTuple):
    """How a network is trained, and on what."""

    command: str
    """Words behind ``torchsonic train``."""
    run: str
    """The run's folder within that of all runs."""
    data: str
    licence: str
    about: str


RECIPES = {
    "shapes": Recipe(
        "synthshape --model sonicnet --steps 1500",
        "synthshape/sonicnet/fold0-seed0",
        DRAWN,
        "Apache-2.0",
        "SonicNet of the paper's Table 1: finds circles, squares, triangles, crosses and stars.",
    ),
    "shapes_orbit": Recipe(
        "synthshape --model orbitnet --steps 1500",
        "synthshape/orbitnet/fold0-seed0",
        DRAWN,
        "Apache-2.0",
        "The same task; rotating the image rotates the answer, whatever the angle.",
    ),
    "shapes_conv": Recipe(
        "synthshape --model convnet --steps 1500",
        "synthshape/convnet/fold0-seed0",
        DRAWN,
        "Apache-2.0",
        "The same task with 3x3 convolutions, to compare with.",
    ),
    "corners": Recipe(
        "halligalli --model sonicnet",
        "halligalli/sonicnet/fold0-seed0",
        DRAWN,
        "Apache-2.0",
        "HalliGalli with one Sonic block: do exactly two of the shapes in the four corners match?",
    ),
    "corners_conv": Recipe(
        "halligalli --model convnet",
        "halligalli/convnet/fold0-seed0",
        DRAWN,
        "Apache-2.0",
        "HalliGalli with one 3x3 convolution, to compare with.",
    ),
}


def collect(name: str, runs: Path, *, out: Path = FOLDER) -> Path:
    """Copy a finished run's network, settings and results, and write its card."""
    recipe, target = RECIPES[name], out / name
    source = runs / recipe.run
    results = json.loads((source / "results.json").read_text())
    weights = source / "model" / "model.safetensors"
    if (size := weights.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{weights} has {size:,} bytes; a network that comes along has at most {MOST_BYTES:,}")
    if results["run"].get("dirty"):
        raise ValueError(f"{source} was trained from a checkout with changes; commit them and train again")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source / "model", target / "model")
    for file in ("config.json", "results.json"):
        text = (source / file).read_text().replace(str(runs.resolve()), "runs/weights")
        (target / file).write_text(text)
    (target / "README.md").write_text(_card(name, recipe, results))
    return target


def _card(name: str, recipe: Recipe, results: dict[str, Any]) -> str:
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
        f"| licence | {recipe.licence} |",
        f"| training | {training['steps']:,} steps of {training['batch']}, seed {training['seed']} |",
        f"| Dice, clean | {results['clean']:.3f} |",
        f"| command | `torchsonic train {recipe.command}` |",
        f"| commit | {run['commit'][:10]} |",
    ]
    return "\n".join(lines) + "\n"
