"""Settings of a run on photographs, and its presets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torchsonic.lab.data.images.changes import ImageChanges
from torchsonic.lab.data.images.folder import Check
from torchsonic.lab.data.ranges import check_ranges
from torchsonic.lab.training import TrainingConfig
from torchsonic.models import list_models, model_entry
from torchsonic.nn.bank import Variant

MODELS = tuple(name for name in list_models() if model_entry(name)[0].task == "classification")
if TYPE_CHECKING:
    ModelName = str
else:
    ModelName = Literal[MODELS]  # the command line offers what is registered
DEFAULT_MODEL = "resnet50_sonic"
STORED = 1.75
"""Shorter sides of stored images over the size of training images: small crops stay sharp."""


Size = int | str
"""Of images: the side of a square in pixels, or rows and columns such as ``"64x128"``."""
MIXED = "mixed"
"""In place of a size: a test that shows each image at one of the other sizes in turn."""
SMALLEST = 8


@dataclass(frozen=True, kw_only=True)
class ImagesConfig:
    """One run on folders of images. ``None`` is chosen from the data and saved with the run."""

    data: Path = Path("data")
    """Folder with train/CLASS/ and val/CLASS/."""
    model: ModelName | None = None
    """Network to train; resnet50_sonic by default, or the one of --init."""
    model_options: tuple[str, ...] = ()
    """Arguments of the network as name=value, such as width=16 depths=1,1,2,1 operator_options.num_modes=8."""
    variant: Variant | None = None
    """Variant of the Sonic layers in the blocks: exact, or as in the paper's notes; the network's own by default."""
    init: str | None = None
    """Start from the network and weights of a run, a saved model, or hub:owner/name (Hugging Face Hub)."""
    image_size: int = 224
    """Size of training images in pixels; with --init RUN, the size of that run by default."""
    pixel_width: float | None = None
    """Size of a training pixel relative to the network's own: 1, or with --init the old image size over the new."""
    test_crop: float = 1.0
    """Side of the central square to test on, relative to the image's shorter side."""
    test_images: int | None = None
    """Test at most this many images, spread evenly over the classes; all by default."""
    test_sizes: tuple[Size, ...] = ()
    """Also test at these sizes, such as 96, 64x128 (rows and columns) or mixed (each image at one of the others): told
    the spacing, not told, and resized back to the training size."""
    hold_out: float = 0.0
    """Hold this share of the training images out of training and test on them instead of val/, to choose settings."""
    label_smoothing: float = 0.1
    """Share of the label that is spread over all classes."""
    strict: bool = False
    """Stop at the first unreadable image instead of skipping it with a warning."""
    check: Check | None = None
    """Decode and cache all images before training (the default up to 50,000), or read only their headers."""
    stored_side: int | None = None
    """Shrink images to this shorter side before cropping; 1.75 times the image size by default."""
    cache_gb: float = 4.0
    """Memory in GB for decoded images, per process; the rest are decoded each time."""
    changes: ImageChanges = field(default_factory=ImageChanges)
    """Random changes to training images."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Training loop."""

    def __post_init__(self) -> None:
        if self.model is not None and self.model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)}, got {self.model!r}")
        if self.init is not None and (self.model_options or self.variant):
            raise ValueError(
                "model_options belong to a new network, like variant; that of init is built as it was saved"
            )
        if self.variant and self.model is not None and "sonic" not in self.model:
            raise ValueError(f"variant belongs to the Sonic networks, not to {self.model}")
        check_ranges(self, "[8, inf)", "image_size", "stored_side")
        check_ranges(self, "[1, inf)", "test_images")
        check_ranges(self, "(0, inf)", "pixel_width")
        check_ranges(self, "(0, 1]", "test_crop")
        check_ranges(self, "[0, 1)", "label_smoothing", "hold_out")
        check_ranges(self, "[0, inf]", "cache_gb")
        others = {rows_and_columns(size, "test_sizes") for size in self.test_sizes if size != MIXED}
        if MIXED in self.test_sizes and len(others) < 2:
            raise ValueError(f"test_sizes: {MIXED} needs at least two other sizes, got {self.test_sizes}")

    @property
    def label(self) -> str:
        """The network in words: its name, what was changed about it, what it began with."""
        parts = [self.model or (DEFAULT_MODEL if self.init is None else "model"), *self.model_options]
        parts += [f"variant={self.variant}"] if self.variant else []
        parts += [f"from {self.source}"] if self.init else []
        return " ".join(parts)

    @property
    def source(self) -> str:
        """The last parts of ``init``: results need not say where on a disk it lies."""
        folder = Path(self.init or "")
        # A run keeps its network in "model", which would be the name of every one.
        folder = folder.parent if folder.name == "model" and len(folder.parts) > 1 else folder
        return "/".join(folder.parts[-2:])

    @property
    def name(self) -> str:
        """Folder of the run within a collection of runs."""
        words = re.sub(r"[^\w.,=-]+", "-", self.label)
        words += f"-held{self.hold_out:g}" if self.hold_out else ""
        return f"images/{self.data.resolve().name}/{words}-{self.image_size}px/seed{self.training.seed}"


def rows_and_columns(size: Size, name: str = "size") -> tuple[int, int]:
    """Pixels of images along both axes; ``name`` is what an error message begins with.

    Examples
    --------
    >>> rows_and_columns(96), rows_and_columns("64x128")
    ((96, 96), (64, 128))
    """
    words = str(size).split("x")
    if len(words) > 2 or not all(word.isdecimal() and int(word) >= SMALLEST for word in words):
        raise ValueError(f"{name} must be at least {SMALLEST} pixels, such as 96 or 64x128, got {size!r}")
    return int(words[0]), int(words[-1])


# What a preset changes; the same for every model.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {
        "image_size": 64,
        "test_images": 40,
        "training": {"steps": 6, "batch": 8, "learning_rate": 1e-3, "checkpoint_every": 3, "log_every": 1},
    },
    "quick": {
        "image_size": 128,
        # A test shows about as much of a scene as the crops of training do, and so objects of the same size.
        "test_crop": 0.875,
        "changes": {"crop": (0.5, 1.0)},
        "training": {
            "steps": 2000,
            "batch": 32,
            "learning_rate": 2e-3,
            "weight_decay": 0.05,
            "warmup": 0.1,
            "workers": 1,
            "checkpoint_every": 100,
        },
    },
    # The settings of the public implementation that the paper follows: pytorch/examples' ImageNet, whose rate drops
    # after 30 epochs, that is once within these 40.
    "imagenet-50m": {
        "image_size": 224,
        "test_crop": 0.875,
        "label_smoothing": 0.0,
        "changes": {"crop": (0.08, 1.0), "brightness": 0.0, "contrast": 0.0, "saturation": 0.0},
        "training": {
            "steps": 200_000,
            "batch": 256,
            "optimiser": "sgd",
            "learning_rate": 0.1,
            "momentum": 0.9,
            "nesterov": False,
            "weight_decay": 1e-4,
            "schedule": "staircase",
            "stair": 0.75,
            "warmup": 0.0,
            "clip": 0.0,
            "workers": 8,
            "log_every": 50,
            "checkpoint_every": 1000,
        },
    },
}
