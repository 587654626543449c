"""Settings of runs that learn to segment from patches, those of runs on volumes, and their presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from torchsonic.lab.data.ranges import check_ranges
from torchsonic.lab.data.volumes.augmentation import Augmentation
from torchsonic.lab.data.volumes.preparation import Normalisation
from torchsonic.lab.training import TrainingConfig
from torchsonic.lab.training.volumes import ScaleBy
from torchsonic.nn.bank import Variant

ModelName = Literal[
    "sonicunet3d",
    "sonicnet3d.light",
    "sonicnet3d",
    "sonicnet3d.paper",
    "sonicnet3d.paper_size",
    "hybrid",
    "orbitnet3d",
    "unet",
]
MODELS: tuple[str, ...] = get_args(ModelName)


@dataclass(frozen=True, kw_only=True)
class SegmentationConfig:
    """Settings of all runs that learn from patches of cases. ``None`` is chosen from the data and saved."""

    before: ClassVar[Mapping[str, Any]] = {"augmentation": {"shift": 0.0}}
    """What runs did that are older than a setting."""

    data: Path = Path("data")
    """Folder of the cases."""
    model: str = ""
    """Network to train."""
    split: Path | None = None
    """JSON file with the names of the cases, {"train": [..], "test": [..]}, instead of folds."""
    folds: int = 5
    """Number of folds in the cross-validation."""
    fold: int = 0
    """Fold to hold out for testing."""
    hold_out: float = 0.0
    """Hold this share of the training cases out of training and test on them instead, to choose settings."""
    split_seed: int = 0
    """Seed for assigning cases to folds."""
    patient: str | None = None
    """Regular expression for the patient in a case's name, such as 'patient[0-9]+'; keeps a patient in one fold."""
    test_cases: int | None = None
    """Test at most this many cases at the end; all by default."""
    num_classes: int | None = None
    """Number of classes, including the background; found in the labels by default."""
    keep_going: bool = False
    """Skip bad cases with a warning instead of stopping at the first."""
    variant: Variant | None = None
    """Variant of the Sonic layers: exact, or as in the paper's notes; the network's own by default."""
    tell_spacing: bool = True
    """Do not tell the network the spacing, so that it assumes the median one. A U-Net is never told."""
    foreground: float = 0.5
    """Share of training patches that are centred on a point of the foreground."""
    scale_by: ScaleBy | None = None
    """Scale anatomy through the spacing, the default for networks that are told it, or by stretching the image."""
    overlap: float = 0.5
    """Overlap of neighbouring windows when predicting whole cases, as a fraction."""
    test_patches: int = 16
    """Number of test patches to score during training; whole cases are tested at the end."""
    cache_gb: float = 4.0
    """Memory in GB for prepared cases; the rest are read each time."""
    cache_dtype: Literal["float32", "float16"] = "float32"
    """Data type of cached images."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    """Random changes to patches."""
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(batch=2))
    """Training loop."""

    def __post_init__(self) -> None:
        defaults = {option.name: option.default for option in fields(self)}
        check_ranges(self, "[2, inf)", "folds", "num_classes")
        check_ranges(self, "[1, inf)", "test_patches", "test_cases")
        dealt = [name for name in ("folds", "fold", "split_seed") if getattr(self, name) != defaults[name]]
        if self.split is not None and dealt:
            raise ValueError(f"{dealt[0]} belongs to folds, which the split file replaces; leave one out")
        if not 0.0 <= self.hold_out <= 0.5:
            raise ValueError(f"hold_out must be in [0, 0.5], got {self.hold_out}")
        if not 0 <= self.fold < self.folds:
            raise ValueError(f"fold must be 0 to {self.folds - 1}, got {self.fold}")
        check_ranges(self, "[0, 1]", "foreground")
        check_ranges(self, "[0, 1)", "overlap")
        check_ranges(self, "(0, inf]", "cache_gb")
        if self.variant is not None and (self.model == "unet" or self.model.startswith("orbit")):
            raise ValueError(f"variant belongs to SonicNet and SonicUNet, not to {self.model}")
        if self.scale_by == "spacing" and not self.is_told:
            raise ValueError(f"scale_by spacing needs a network that is told the spacing, not {self.model}; use image")

    @property
    def is_told(self) -> bool:
        """Whether the network is told the spacing."""
        return self.tell_spacing and self.model != "unet"

    @property
    def is_oriented(self) -> bool:
        """Whether the network is told the orientation of cases."""
        return False

    hears_oblique = is_oriented

    @property
    def place(self) -> str:
        """Last folder of the run: what is tested, and the seed."""
        part = f"fold{self.fold}" if self.split is None else self.split.stem
        part += f"-held{self.hold_out:g}" if self.hold_out else ""
        return f"{part}-seed{self.training.seed}"


@dataclass(frozen=True, kw_only=True)
class VolumesConfig(SegmentationConfig):
    """One run on a folder of NIfTI files. ``None`` is chosen from the data and saved with the run."""

    before: ClassVar[Mapping[str, Any]] = {**SegmentationConfig.before, "tell_orientation": False}

    data: Path = Path("data")
    """Folder with images/ and labels/."""
    model: ModelName = "sonicunet3d"
    """Network to train. hybrid: sonicnet3d.light plus a local branch; orbitnet3d: equivariant; unet: MONAI's."""
    common_spacing: tuple[float, float, float] | Literal["median"] | None = None
    """Resample all cases to this spacing, in mm along depth, height and width, or to the median; off by default."""
    tell_orientation: bool = True
    """Do not bring cases to one axis order, nor tell the network the rest of the orientation. A U-Net is never told."""
    normalisation: Normalisation = "zscore"
    """Normalise each channel of a case to mean 0 and deviation 1 (zscore), or not at all."""
    patch: tuple[int, int, int] | None = None
    """Patch size in voxels: depth, height and width; by default chosen from the median case and --patch-voxels."""
    patch_voxels: int = 160_000
    """Largest number of voxels in a patch whose size is chosen automatically."""
    width: int | None = None
    """Channels of SonicNet, by default as in its preset; or of the U-Net's finest level, 16 by default."""
    depth: int | None = None
    """Blocks of SonicNet; by default as in its preset."""
    num_modes: int | None = None
    """Modes per block of SonicNet; by default as in its preset."""
    test_turns: tuple[float, ...] = ()
    """Also test each case rotated by these angles, in degrees, each about a random axis."""
    test_storages: int = 0
    """Also test each case stored in this many of the 48 orders and directions of axes, drawn at random."""
    stride: tuple[int, int, int] | None = None
    """Stride of SonicNet's first block; light and hybrid have 2 along fine axes and 1 along others by default."""
    mlp_ratio: int | None = None
    """Width of the two-layer network after each block of SonicNet, relative to its channels; 0 for none."""
    padding: Literal["circular", "zeros", "reflect"] | None = None
    """What surrounds a patch, in a margin as wide as the patch; by default the network's own margin of zeros."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "[64, inf)", "patch_voxels")
        check_ranges(self, "[1, inf)", "width", "depth", "num_modes", "patch", "stride")
        check_ranges(self, "[0, inf]", "mlp_ratio")
        check_ranges(self, "[0, 180]", "test_turns")
        check_ranges(self, "[0, 48]", "test_storages")
        if isinstance(self.common_spacing, tuple):
            check_ranges(self, "(0, inf]", "common_spacing")
        if self.cache_dtype == "float16" and self.normalisation == "none":
            raise ValueError("cache_dtype float16 only holds values up to 65504; use it with normalisation zscore")
        changed = [name for name in _SONIC_ONLY if getattr(self, name) not in (DEFAULTS[name], FORMER.get(name))]
        if self.model == "unet" and changed:
            raise ValueError(f"{changed[0]} belongs to the Sonic networks, not to unet")
        if self.model == "orbitnet3d" and self.mlp_ratio is not None:
            raise ValueError("mlp_ratio belongs to SonicNet and SonicUNet, not to orbitnet3d")
        changed = [name for name in _SONICNET_ONLY if getattr(self, name) != DEFAULTS[name]]
        if self.model == "sonicunet3d" and changed:
            raise ValueError(f"{changed[0]} belongs to SonicNet; use it with model sonicnet3d.light or sonicnet3d")

    @property
    def is_oriented(self) -> bool:
        """Whether the network is told the orientation of cases."""
        return self.tell_orientation and self.model != "unet"

    @property
    def hears_oblique(self) -> bool:
        """Whether its layers can be told what remains: the paper's variant is tied to the axes of the array."""
        variant = self.variant or ("paper" if self.model == "sonicnet3d.paper" else "exact")
        return self.is_oriented and variant == "exact"

    @property
    def name(self) -> str:
        """Folder of the run within a collection of runs."""
        parts = [self.model]
        sizes = {name: getattr(self, name) for name in ("width", "depth", "num_modes", "mlp_ratio")}
        parts += [f"{name}{value}" for name, value in sizes.items() if value is not None]
        parts += [self.variant] if self.variant else []
        parts += ["untold"] if self.model != "unet" and not self.tell_spacing else []
        parts += ["unturned"] if self.model != "unet" and not self.tell_orientation else []
        parts += ["resampled"] if self.common_spacing else []
        return f"volumes/{self.data.resolve().name}/{'-'.join(parts)}/{self.place}"


_SONICNET_ONLY = ("width", "depth", "num_modes", "stride")
_SONIC_ONLY = ("depth", "num_modes", "stride", "mlp_ratio", "padding")
FORMER = {"padding": "circular"}  # former defaults, which the settings of older runs hold whatever the network
DEFAULTS = {option.name: option.default for option in fields(VolumesConfig)}

# What a preset changes; the same for every model.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {
        "patch_voxels": 8_000,
        "test_patches": 4,
        "test_cases": 2,
        "overlap": 0.25,
        "training": {"steps": 10, "checkpoint_every": 5, "log_every": 2},
    },
    "quick": {"training": {"steps": 1000}},
}
