"""torchsonic's classifiers in timm: ``import torchsonic.integrations.timm`` registers them.

Afterwards ``timm.create_model("resnet50_sonic", num_classes=10)`` works as for any other model, with ``in_chans``,
``drop_rate``, ``drop_path_rate``, ``global_pool``, ``features_only``, ``out_indices``, ``checkpoint_path`` and
``preset="paper"`` for torchsonic's presets. Names that timm already has (``resnet50``) stay timm's own. A
classifier packaged with torchsonic is the tag of its network: ``timm.create_model("resnet50_sonic.imagenette",
pretrained=True)``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from torchsonic.integrations import TORCHVISION_REMEDY

try:
    import timm
    from timm.models import build_model_with_cfg, register_model
    from timm.models._registry import generate_default_cfgs
except ImportError as error:
    raise ImportError('torchsonic.integrations.timm needs timm; run: pip install "torchsonic[timm]"') from error
except RuntimeError as error:  # a torchvision built for another torch says so in its own way
    raise ImportError(f"timm cannot be imported ({error}): {TORCHVISION_REMEDY}") from error

from torchsonic.io import read_json
from torchsonic.models import from_pretrained, list_pretrained
from torchsonic.models.classifier import Classifier
from torchsonic.models.model_folder import pretrained_folder
from torchsonic.models.registry import MODELS, create_model

__all__ = ["registered"]

# timm's names of arguments that classifiers here call otherwise.
RENAMED = {"in_chans": "in_channels", "img_size": "image_size"}
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

registered: list[str] = []
"""Names that this module registered with timm."""


def _default_cfg(name: str) -> dict[str, Any]:
    return {
        "url": "",
        "num_classes": 1000,
        "input_size": MODELS[name].input_size,
        "fixed_input_size": False,
        "pool_size": None,
        "crop_pct": 0.875,
        "interpolation": "bicubic",
        "mean": IMAGENET_MEAN,
        "std": IMAGENET_STD,
        "classifier": "fc",
    }


def _first_conv(model: Classifier) -> str | None:
    """Name of the first convolution, which depends on the stem; a stem of Sonic layers has none."""
    name, stem = next(model.named_children())
    found = (f"{name}.{part}".rstrip(".") for part, module in stem.named_modules() if isinstance(module, nn.Conv2d))
    return next(found, None)


def _folder(tag: str) -> Path:
    folder = pretrained_folder(tag)
    assert folder is not None
    return folder


def _settings(tag: str) -> dict[str, Any]:
    """Settings of the run that a network came from."""
    return read_json(_folder(tag) / "config.json")


def _packaged(name: str) -> list[str]:
    """Tags of a name: the networks of this kind that come with torchsonic."""
    found = {tag: _settings(tag) for tag in list_pretrained()}
    return [
        tag for tag, run in found.items() if run["kind"] == "images" and str(run["model"]).partition(".")[0] == name
    ]


def _load(tag: str) -> tuple[Any, int]:
    """A network that comes with torchsonic, and the size of the images it was trained with."""
    return from_pretrained(_folder(tag)), _settings(tag)["image_size"]


def _adapted(model: Classifier, *, num_classes: int, in_chans: int = 3, **others: Any) -> Classifier:
    """A network that was saved, with a new last layer if it is to have other classes."""
    if others:
        raise TypeError(f"a network that comes with torchsonic is built as it was trained; leave out {min(others)}")
    if in_chans != model.in_channels:
        raise ValueError(f"in_chans must be {model.in_channels}, as the network was trained with, got {in_chans}")
    if num_classes != model.num_classes:
        model.reset_classifier(num_classes)
    return model.train()


def _build(name: str):
    # All levels of a hierarchy; the last three blocks of a transformer, whose levels are all alike; one of orbits.
    counts = {"vit": 3, "resnet50": (0, 1, 2, 3, 4), "orbit": (0,)}
    levels = next((count for start, count in counts.items() if name.startswith(start)), (0, 1, 2, 3))

    def make(preset: str | None = None, **arguments: Any):
        for theirs, ours in RENAMED.items():
            if theirs in arguments:
                arguments[ours] = arguments.pop(theirs)
        size = arguments.get("image_size")
        if isinstance(size, (tuple, list)):
            arguments["image_size"] = max(size)
        return create_model(f"{name}.{preset}" if preset else name, **arguments)

    def entrypoint(pretrained: bool = False, **kwargs: Any):
        build, tag = make, kwargs.get("pretrained_cfg")
        if isinstance(tag, str) and tag in _packaged(name):
            saved, size = _load(tag)
            build = partial(_adapted, saved if pretrained else type(saved)(**saved.arguments))
            facts = {"num_classes": saved.num_classes, "input_size": (saved.in_channels, size, size)}
            kwargs["pretrained_cfg"] = {**_default_cfg(name), **facts}
        elif pretrained:
            tags = ", ".join(f"{name}.{tag}" for tag in _packaged(name))
            raise ValueError(
                f"there are no published weights for {name}{f'.{tag}' if isinstance(tag, str) else ''}; "
                + (f"torchsonic has weights for {tags}; " if tags else "")
                + "use checkpoint_path= for your own, or torchsonic.from_pretrained for a saved model"
            )
        feature_cfg = {"out_indices": levels, "feature_cls": "getter"}
        model: Any = build_model_with_cfg(build, name, False, feature_cfg=feature_cfg, **kwargs)
        if not kwargs.get("features_only"):  # else it is wrapped, and has other names
            model.pretrained_cfg["first_conv"] = _first_conv(model)
        return model

    entrypoint.__name__ = name
    entrypoint.__module__ = __name__
    entrypoint.__doc__ = f"Build torchsonic's {name}."
    return entrypoint


default_cfgs = generate_default_cfgs(
    {name: _default_cfg(name) for name in MODELS if MODELS[name].task == "classification" and not timm.is_model(name)}
)


def _register() -> None:
    for name in MODELS:
        if MODELS[name].task == "classification" and not timm.is_model(name):
            globals()[name] = register_model(_build(name))
            registered.append(name)


_register()
