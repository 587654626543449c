"""What a saved classifier knows of images beside its weights, so that its folder alone is enough to use it."""

from __future__ import annotations

import json
from pathlib import Path

from torchsonic.io import write_json
from torchsonic.lab.runs.images.config import ImagesConfig, read_config
from torchsonic.models import Classifier, from_pretrained

__all__ = ["CLASSES_NAME", "IMAGES_NAME", "config_of", "load_run", "read_classes", "save_model"]

CLASSES_NAME = "classes.json"
IMAGES_NAME = "images.json"


def save_model(model: Classifier, config: ImagesConfig, classes: tuple[str, ...], folder: Path) -> None:
    """Write a model with the names of its classes and the views it was trained on."""
    model.save_pretrained(folder)
    facts = {"image_size": config.image_size, "pixel_width": config.pixel_width, "test_crop": config.test_crop}
    write_json(folder / IMAGES_NAME, {"classes": list(classes), **facts})


def config_of(folder: Path) -> ImagesConfig | None:
    """The configuration of a run on images, or of a saved model what it says of that; ``None`` for other folders."""
    try:
        if (folder / "model").is_dir():
            return read_config(folder)
        facts = json.loads((folder / IMAGES_NAME).read_text(encoding="utf-8"))
        return ImagesConfig(**{name: facts[name] for name in ("image_size", "pixel_width", "test_crop")})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_classes(folder: Path) -> tuple[str, ...]:
    """Names of the classes of a run or of a saved model, in the order of its network's answers."""
    name = CLASSES_NAME if (folder / "model").is_dir() else IMAGES_NAME
    return tuple(json.loads((folder / name).read_text(encoding="utf-8"))["classes"])


def _reason_for_no_model(folder: Path) -> str:
    if not folder.is_dir():
        return "there is no such folder"
    if (folder / "checkpoints").is_dir():
        return "its training has not ended; give the command of the training again, which goes on with it"
    runs = sorted(path.parent for path in folder.glob("**/model") if path.is_dir())
    return f"did you mean {runs[0]}?" if runs else f"there is no folder model/ in it, and no {IMAGES_NAME}"


def load_run(folder: Path) -> tuple[Classifier, ImagesConfig, tuple[str, ...]]:
    """The trained model of a run or of the folder it was saved to, its configuration and the names of its classes."""
    is_run = (folder / "model").is_dir()
    if not is_run and not (folder / IMAGES_NAME).is_file():
        raise FileNotFoundError(_reason_for_no_model(folder))
    config, classes = read_config(folder) if is_run else config_of(folder), read_classes(folder)
    if config is None:
        raise ValueError(f"{folder / IMAGES_NAME} does not say on which views the model was trained")
    model = from_pretrained(folder / "model" if is_run else folder)
    if not isinstance(model, Classifier) or model.num_classes != len(classes):
        raise ValueError(f"{folder} holds no classifier of {len(classes)} classes")
    return model, config, classes
