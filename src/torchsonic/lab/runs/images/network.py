"""The network of a run: new, or one that was saved, with a new head if the classes are others; and how it is saved.

What a saved classifier knows of images lies beside its weights, so that its folder alone is enough to use it.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch import nn

from torchsonic.engine.memory import is_exhaustion
from torchsonic.io import read_json, write_json
from torchsonic.lab.runs.folder import RunError, is_run, load_model, read_config, read_facts
from torchsonic.lab.runs.images.config import DEFAULT_MODEL, ImagesConfig, ModelName
from torchsonic.lab.runs.settings import SettingsError, read_value
from torchsonic.models import Classifier, create_model, from_pretrained, model_entry
from torchsonic.models.pretrained import WEIGHTS_NAME
from torchsonic.nn import sonic_layers
from torchsonic.nn.definition import is_definition
from torchsonic.spectral.spacing import spacing_values

CLASSES_NAME = "classes.json"
IMAGES_NAME = "images.json"


def make_model(config: ImagesConfig, classes: Sequence[str]) -> tuple[Classifier, str]:
    """The network with weights drawn from the run's seed or read from ``init``, and a sentence that says which."""
    torch.manual_seed(config.training.seed)
    if config.init is not None:
        return _saved_model(config, classes)
    name = config.model or DEFAULT_MODEL
    words = [f"operator_options.variant={config.variant}"] if config.variant else []
    options = read_options(name, [*config.model_options, *words])
    if "image_size" in inspect.signature(model_entry(name)[0].build.__init__).parameters:
        # For GFNet's masks, positions, and the reach of Sonic's modes.
        options.setdefault("image_size", config.image_size)
    try:
        model = create_model(name, num_classes=len(classes), **options)
    except (TypeError, RuntimeError) as error:
        if is_exhaustion(error):
            raise
        raise ValueError(f"model_options: {name} does not accept {', '.join(config.model_options)}: {error}") from error
    assert isinstance(model, Classifier)
    if config.variant and {layer.variant for _, layer in sonic_layers(model)} != {config.variant}:
        raise ValueError(
            f"variant {config.variant} belongs to the layers in the blocks; a Sonic stem, stem={options['stem']}, is "
            "always exact, since it brings images to the network's own grid: use stem=local or stem=conv"
        )
    return model, f"new weights for all {_count(model)} tensors"


def _saved_model(config: ImagesConfig, classes: Sequence[str]) -> tuple[Classifier, str]:
    assert config.init is not None
    folder = Path(config.init)
    model = from_pretrained(config.init)
    if not isinstance(model, Classifier) or model.in_channels != 3:
        channels = f" of {model.in_channels} channels" if isinstance(model, Classifier) else ""
        raise ValueError(
            f"init {config.init} contains a {type(model).__name__}{channels}, which does not classify colour images; "
            "use a classifier with 3 channels"
        )
    if config.model is not None:
        saved = model_of_run(folder)
        if not isinstance(model, model_entry(config.model)[0].build) or saved not in (None, config.model):
            held = saved or type(model).__name__
            raise ValueError(f"init {config.init} contains a {held}, not {config.model}; leave --model out")
    before = read_classes(folder) if is_run(folder) or (folder / IMAGES_NAME).is_file() else None
    if before == tuple(classes):
        return model.train(), f"all {_count(model)} tensors from {config.source}, whose classes are the same"
    taken = _count(model) - _count(model.get_classifier())
    head = f"new head for {len(classes)} classes (it had {model.num_classes})"
    model.reset_classifier(len(classes))
    return model.train(), f"{taken} tensors from {config.source}; {head}"


def told_spacing(model: Classifier, width: float | tuple[float, ...]) -> float | tuple[float, ...] | None:
    """What to tell a network of pixels that are so many of its own wide; ``None`` if there is nothing to tell.

    The width may differ between the axes.

    Examples
    --------
    >>> told_spacing(torchsonic.create_model("sonic_tiny", spacing=(2.0, 1.0)), 0.5)
    (1.0, 0.5)
    """
    if not model.takes_spacing or width == 1.0:
        return None
    reference = model.arguments.get("spacing", 1.0)
    if not isinstance(width, tuple) and not isinstance(reference, Sequence):
        return width * reference
    return tuple(w * step for w, step in zip(spacing_values(width, 2), spacing_values(reference, 2), strict=True))


def _count(model: nn.Module) -> int:
    return sum(not is_definition(name) for name in model.state_dict())


def model_of_run(folder: Path) -> ModelName | None:
    """Name of the network of a run; ``None`` if the folder is none of a run, or its network has no name."""
    return read_config(folder, ImagesConfig).model if is_run(folder) else None


def apply_init(config: ImagesConfig, init: Path) -> ImagesConfig:
    """A configuration with the image size and the tested square of a run or saved model, where these are known."""
    before = config_of(init)
    return config if before is None else replace(config, image_size=before.image_size, test_crop=before.test_crop)


def width_of_pixels(config: ImagesConfig) -> float:
    """Width of a run's training pixels in those the network was made for, by the size of the images it began with."""
    if config.pixel_width is not None:
        return config.pixel_width
    before = None if config.init is None else config_of(Path(config.init))
    return 1.0 if before is None else (before.pixel_width or 1.0) * before.image_size / config.image_size


def save_model(model: Classifier, config: ImagesConfig, classes: tuple[str, ...], folder: Path) -> None:
    """Write a model with the names of its classes and the views it was trained on."""
    model.save_pretrained(folder)
    facts = {"image_size": config.image_size, "pixel_width": config.pixel_width, "test_crop": config.test_crop}
    write_json(folder / IMAGES_NAME, {"classes": list(classes), **facts})


def config_of(folder: Path) -> ImagesConfig | None:
    """The configuration of a run on images, or of a saved model what it says of that; ``None`` for other folders."""
    try:
        if is_run(folder):
            return read_config(folder, ImagesConfig)
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
    config, classes = config_of(folder) if saved_alone else read_config(folder, ImagesConfig), read_classes(folder)
    if config is None:
        raise ValueError(f"{folder / IMAGES_NAME} does not say which views the model was trained on")
    if not isinstance(model, Classifier) or model.num_classes != len(classes):
        raise ValueError(f"{folder} does not contain a classifier of {len(classes)} classes")
    return model, config, classes


SET_ELSEWHERE = {"num_classes": "the folders of classes", "in_channels": "the images, which have three"}
TRUTHS = {"yes": True, "1": True, "no": False, "0": False}


def read_options(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Arguments for :func:`torchsonic.create_model` from words ``name=value``.

    Values are read as the constructor annotates them; a list is written ``1,1,2,1``, an entry of a mapping
    ``operator_options.num_modes=8``. What a preset or the registry sets in a mapping stays unless it is named.

    Raises
    ------
    ValueError
        For an unknown name, with the nearest known one, and for a value of the wrong type.

    Examples
    --------
    >>> read_options("resnet50_niff", ["width=16", "depths=1,1,2,1", "operator_options.hidden=4,4"])
    {'width': 16, 'depths': [1, 1, 2, 1], 'operator_options': {'pointwise': True, 'hidden': [4, 4]}}
    """
    entry, arguments = model_entry(name)
    constructor = entry.build.__init__
    known = list(inspect.signature(constructor).parameters)[1:]
    hints = get_type_hints(constructor)
    options: dict[str, Any] = {}
    for word in words:
        path, equals, text = word.partition("=")
        key, _, inner = path.partition(".")
        if not equals or not key or not text:
            raise ValueError(f"model_options must be name=value, got {word!r}")
        if key in SET_ELSEWHERE:
            raise ValueError(f"model_options: {key} is set by {SET_ELSEWHERE[key]}")
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise ValueError(f"model_options: {name} has no argument {key!r}; {hint}")
        if _is_mapping(hints[key]):
            if not inner:
                raise ValueError(f"model_options: give entries of {key} one by one, as {key}.NAME=VALUE, got {word!r}")
            options.setdefault(key, dict(arguments.get(key) or {}))[inner] = _guess(text)
        elif inner:
            raise ValueError(f"model_options: {key} has no entries, got {word!r}")
        else:
            options[key] = _read(text, hints[key], key)
    return options


def _is_mapping(hint: Any) -> bool:
    return any(get_origin(member) in (Mapping, dict) for member in (hint, *get_args(hint)))


def _read(text: str, hint: Any, name: str) -> Any:
    """A value of the type that a hint asks for: what the text looks like, a list of that, or the text itself."""
    found = _guess(text)
    for value in (found, [found], TRUTHS.get(text.lower(), found)):
        with contextlib.suppress(SettingsError):
            return read_value(value, hint, name)
    return read_value(text, hint, f"model_options: {name}")


def _guess(text: str) -> Any:
    """What a text looks like; of an entry of a mapping only the operator knows the type, and checks it itself."""
    if "," in text:
        return [_guess(part) for part in text.strip("[]()").split(",")]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
