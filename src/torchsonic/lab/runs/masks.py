"""Segmentation of pictures by their masks, of classes or of objects that touch: a kind of run like volumes.

What differs from volumes is here: how cases are found and read, and the network. Scores are in ``mask_scores``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchsonic.baselines import MonaiUNet
from torchsonic.lab.data import masks as files
from torchsonic.lab.data.images.files import ImageError, opened_image
from torchsonic.lab.data.instances import OUTLINE, outline
from torchsonic.lab.data.ranges import check_ranges
from torchsonic.lab.data.volumes import Case, Volume
from torchsonic.lab.data.volumes.augmentation import Augmentation
from torchsonic.lab.data.volumes.collection import Collection
from torchsonic.lab.data.volumes.preparation import normalise
from torchsonic.lab.data.volumes.survey import Facts
from torchsonic.lab.runs.folder import RunError, kind_of, load_model, read_config
from torchsonic.lab.runs.mask_scores import predict_mask, score_cases
from torchsonic.lab.runs.run import run
from torchsonic.lab.runs.volumes.config import SegmentationConfig
from torchsonic.lab.runs.volumes.plan import LEVELS, WIDTH, check_classes, median_spacing
from torchsonic.lab.runs.volumes.predict import read_good_cases
from torchsonic.lab.runs.volumes.run import SegmentationExperiment
from torchsonic.lab.training import Fit, TrainingConfig
from torchsonic.lab.training.progress import counting_progress
from torchsonic.lab.training.volumes import PatchBatch, VolumeTask
from torchsonic.models import PretrainedModel, create_model, list_models, model_entry

__all__ = ["PRESETS", "MasksConfig", "load_run", "predict_mask", "predict_masks", "run_experiment"]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"patch": (64, 64), "test_cases": 2, "training": {"steps": 10, "checkpoint_every": 5, "log_every": 2}},
    "quick": {"training": {"steps": 1500}},
}

MANY_CLASSES = 10
"""More are probably objects that were numbered."""


@dataclass(frozen=True, kw_only=True)
class MasksConfig(SegmentationConfig):
    """One run on a folder of images and masks. ``None`` is chosen from the data and saved with the run."""

    data: Path = Path("data")
    """Folder with images/ and masks/ (or labels/): PNG, TIFF or JPEG files with the same names."""
    model: str = "sonicunet2d"
    """Network for 2-D segmentation, see 'torchsonic models', or unet, which is MONAI's."""
    width: int | None = None
    """Channels of the U-Net's finest level, 16 by default."""
    instances: bool = False
    """Masks number the objects: learn their interiors and borders, and separate touching ones."""
    spacing: tuple[float, ...] | Literal["tags", "pixels"] | None = None
    """Pixel size, or height and width; tags reads it from TIFF files, the default if they have it; pixels means 1."""
    spacing_table: Path | None = None
    """CSV file with the pixel size of each image instead: name,size or name,height,width."""
    patch: tuple[int, int] = (192, 192)
    """Height and width of a training patch in pixels."""
    whole_pixels: int = 1 << 22
    """Images of up to this many pixels are predicted at once if memory allows, others in windows."""
    tolerance: float | None = None
    """Distance within which borders agree, in the unit of the spacing; two median pixels by default."""
    test_turns: tuple[float, ...] = ()
    """Also test each image rotated by these angles, in degrees."""
    test_scales: tuple[float, ...] = ()
    """Also test each image at these multiples of its resolution: told the pixel size, not told, and resampled back."""
    augmentation: Augmentation = field(default_factory=lambda: Augmentation(mirror=(1, 2), rotation=180.0))
    """Random changes to patches; axis 1 is the height and 2 the width."""
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(batch=4))

    def __post_init__(self) -> None:
        super().__post_init__()
        known = [name for name in list_models() if model_entry(name)[1].get("spatial_dims") == 2]
        if self.model not in (*known, "unet"):
            raise ValueError(f"model must be one of {', '.join(known)}, unet, got {self.model!r}")
        if self.augmentation.rotation_axes != "array":
            raise ValueError("rotation_axes must be array for images, which turn in their plane; leave it out")
        if self.width is not None and self.model != "unet":
            raise ValueError(f"width belongs to unet, not to {self.model}")
        check_ranges(self, "[1, inf)", "width")
        check_ranges(self, "[0, 180]", "test_turns")
        check_ranges(self, "[0.1, 10]", "test_scales")
        if min(self.patch) < 8:
            raise ValueError(f"patch must be at least 8 along each axis, got {self.patch}")
        if isinstance(self.spacing, tuple) and (len(self.spacing) not in (1, 2) or not min(self.spacing) > 0):
            raise ValueError(f"spacing must be one or two positive numbers, got {self.spacing}")
        if self.spacing is not None and self.spacing_table is not None:
            raise ValueError("spacing and spacing_table cannot be combined; leave one out")
        if self.instances and self.num_classes not in (None, len(OUTLINE)):
            raise ValueError("num_classes belongs to masks of classes, not to instances; leave it out")

    @property
    def name(self) -> str:
        """Folder of the run within a collection of runs."""
        width = self.width and f"width{self.width}"
        words = [self.model, width, self.variant, "instances" * self.instances, "untold" * (not self.tell_spacing)]
        return f"masks/{self.data.resolve().name}/{'-'.join(filter(None, words))}/{self.place}"

    def with_pixels(self, spacing: tuple[float, ...] | None, table: Path | None) -> MasksConfig:
        """The same for images of other pixel sizes; as they are where none are given."""
        return replace(self, spacing=spacing or None, spacing_table=table) if spacing or table else self

    @property
    def pixel_size(self) -> files.PixelSize:
        """Of all pictures, or where each one's is found."""
        if self.spacing_table is not None:
            return files.read_sizes(self.spacing_table)
        return (self.spacing[0], self.spacing[-1]) if isinstance(self.spacing, tuple) else self.spacing or "pixels"


class MaskTask(VolumeTask):
    """Patches of one slice, which the network sees without it."""

    def logits(self, model: nn.Module, batch: PatchBatch) -> Tensor:
        return super().logits(model, PatchBatch(batch.image[:, :, 0], batch.label, batch.spacing[:, 1:]))[:, :, None]


class MaskExperiment(SegmentationExperiment[MasksConfig]):
    """Segmentation of pictures."""

    kind = "masks"
    may_change = (*SegmentationExperiment.may_change, "whole_pixels", "tolerance", "test_turns", "test_scales")

    def find_cases(self) -> list[Case]:
        cases = files.find_pairs(self.config.data)
        if self.config.spacing is None and self.config.spacing_table is None:
            self.config = replace(self.config, spacing="tags" if any(map(_has_tags, cases)) else "pixels")
        if self.config.instances:
            self.config = replace(self.config, num_classes=len(OUTLINE))
        self.size: files.PixelSize = self.config.pixel_size
        return cases

    def read_case(self, case: Case, *, num_classes: int | None) -> Volume:
        volume = files.read_pair(case, num_classes=num_classes, instances=self.config.instances, size=self.size)
        assert volume.label is not None
        return replace(volume, label=outline(volume.label)) if self.config.instances else volume

    def prepare_volume(self, volume: Volume) -> Volume:
        return replace(volume, image=normalise(volume.image, "zscore"))

    def make_model(self, facts: Sequence[Facts], num_classes: int) -> PretrainedModel:
        check_classes(facts, num_classes)
        if self.config.num_classes is None and num_classes > MANY_CLASSES:
            text = f"the masks have {num_classes} classes; if these are numbered objects, pass --instances"
            warnings.warn(f"{text}, otherwise --num-classes {num_classes}", stacklevel=2)
        spacing = median_spacing(facts)[1:]
        tolerance = self.config.tolerance or 2 * min(spacing)
        self.config = replace(self.config, num_classes=num_classes, tolerance=tolerance)
        torch.manual_seed(self.config.training.seed)
        if self.config.model == "unet":
            widths = [(self.config.width or WIDTH) * 2**level for level in range(LEVELS)]
            return MonaiUNet(3, num_classes, spatial_dims=2, channels=widths, strides=[2] * (LEVELS - 1))
        options = {"variant": self.config.variant} if self.config.variant else {}
        return create_model(self.config.model, in_channels=3, num_classes=num_classes, spacing=spacing, **options)

    def make_task(self, volumes: Collection, **options: Any) -> VolumeTask:
        return MaskTask(volumes, patch=(1, *self.config.patch), **options)

    def test(self, model: PretrainedModel, *, show: bool) -> dict[str, Any]:
        return {**score_cases(model, self.tested, self.config, show=show), "left_out": self.left_out}

    def describe(self, model: PretrainedModel, result: Fit) -> dict[str, Any]:
        return {"task": "masks", "model": self.config.model, "patches": result.metrics}


def _has_tags(case: Case) -> bool:
    with suppress(ImageError), opened_image(case.images[0]) as picture:
        return files.tag_size(picture) is not None
    return False


def predict_masks(
    folder: Path,
    images: Path,
    out: Path,
    spacing: tuple[float, ...] | None = None,
    *,
    spacing_table: Path | None = None,
    keep_going: bool = False,
    device: str = "cpu",
    show: bool = True,
) -> tuple[int, int]:
    """Write a mask of the same name, as PNG, for each picture of a folder; how many, and how many pictures there are.

    Parameters
    ----------
    folder
        Of a run.
    images
        A picture, a folder of pictures, or one with ``images/`` in it.
    spacing, spacing_table
        Size of the pixels; by default as in training.
    keep_going
        Leave bad pictures out with a warning instead of stopping at the first.
    """
    model, config = load_run(folder)
    model.to(device)
    config = config.with_pixels(spacing, spacing_table)
    size = config.pixel_size
    pictures = files.find_pictures(images / "images" if (images / "images").is_dir() else images)
    if out.resolve() in {parent for path in pictures.values() for parent in path.resolve().parents}:
        raise ValueError(f"{out} contains the images, which masks could overwrite; choose another folder")
    cases, written = [Case(name, (path,), None) for name, path in pictures.items()], 0

    def read(case: Case, *, num_classes: int | None) -> Volume:
        return files.read_pair(case, size=size)

    with counting_progress("predicting", len(cases), show=show) as advance:
        for volume in read_good_cases(cases, read=read, keep_going=keep_going, advance=advance):
            files.write_mask(out / f"{volume.name}.png", predict_mask(model, volume, config))
            written += 1
    return written, len(cases)


def run_experiment(config: MasksConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; see :func:`torchsonic.lab.runs.run.run`."""
    return run(MaskExperiment(config), folder, show=show)


def load_run(folder: Path) -> tuple[PretrainedModel, MasksConfig]:
    """The trained network of a run and its completed configuration."""
    if kind_of(folder) != "masks":
        raise RunError(f"{folder} is a run on {kind_of(folder)}, not on masks")
    return load_model(folder), read_config(folder, MasksConfig)
