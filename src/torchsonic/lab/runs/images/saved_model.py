"""What a saved classifier knows of images beside its weights, so that its folder alone is enough to use it."""

from __future__ import annotations

from pathlib import Path

from torchsonic.io import read_json, write_json
from torchsonic.lab.runs.folder import RunError, is_run, load_model, read_facts
from torchsonic.lab.runs.images.config import ImagesConfig, read_config
from torchsonic.models import Classifier, from_pretrained
from torchsonic.models.pretrained import WEIGHTS_NAME

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
        if is_run(folder):
            return read_config(folder)
        facts = read_json(folder / IMAGES_NAME)
        return ImagesConfig(**{name: facts[name] for name in ("image_size", "pixel_width", "test_crop")})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_classes(folder: Path) -> tuple[str, ...]:
    """Names of the classes of a run or of a saved model, in the order of its network's answers."""
    return tuple(read_facts(folder / (CLASSES_NAME if is_run(folder) else IMAGES_NAME), "classes")["classes"])


def load_run(folder: Path) -> tuple[Classifier, ImagesConfig, tuple[str, ...]]:
    """The trained model of a run or of the folder it was saved to, its configuration and the names of its classes."""
    saved_alone = not is_run(folder) and (folder / IMAGES_NAME).is_file()
    if not saved_alone and not is_run(folder) and (folder / WEIGHTS_NAME).is_file():
        raise RunError(f"{folder} has no {IMAGES_NAME}, which names its classes and the views it was trained on")
    model = from_pretrained(folder) if saved_alone else load_model(folder)
    config, classes = config_of(folder) if saved_alone else read_config(folder), read_classes(folder)
    if config is None:
        raise ValueError(f"{folder / IMAGES_NAME} does not say on which views the model was trained")
    if not isinstance(model, Classifier) or model.num_classes != len(classes):
        raise ValueError(f"{folder} holds no classifier of {len(classes)} classes")
    return model, config, classes
