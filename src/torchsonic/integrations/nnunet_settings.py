"""Settings of the nnU-Net trainers, from environment variables and a file.

``TORCHSONIC_NNUNET_WIDTH=32`` sets ``width``; ``TORCHSONIC_NNUNET_CONFIG=settings.toml`` names a TOML or JSON file with
any of the settings. A variable takes precedence over the file. nnU-Net itself is not needed here.
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from torchsonic.models.registry import model_entry
from torchsonic.models.sonicnet import CIRCULAR, SonicNet
from torchsonic.nn.bank import Variant
from torchsonic.nn.block import Form
from torchsonic.nn.norm import Norm
from torchsonic.spectral.boundary import PaddingMode

__all__ = ["BUDGET", "NETWORK", "ORBIT", "PREFIX", "Settings", "complete_network", "network_arguments", "read_settings"]

PREFIX = "TORCHSONIC_NNUNET_"
FILE = f"{PREFIX}CONFIG"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of an nnU-Net run; the defaults are those of nnU-Net and of the model preset."""

    epochs: int = 1000
    """Number of epochs, over which the learning rate falls to zero."""
    iterations: int = 250
    """Training steps per epoch."""
    val_iterations: int = 50
    """Validation batches per epoch, for the curve and the best checkpoint."""
    save_every: int = 50
    """Epochs between checkpoints, from which `--c` resumes."""
    seed: int | None = None
    """Seed of the weights and, with `nnUNet_n_proc_DA=0`, of patches and augmentation; not set by default."""
    batch_size: int | None = None
    """Patches per step; by default as in the plans."""
    patch_size: tuple[int, ...] | None = None
    """Patch size in voxels, in array order, for example `40,56,40`; by default as in the plans."""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """nnU-Net's SGD with Nesterov momentum 0.99, or AdamW."""
    learning_rate: float = 1e-2
    """Initial learning rate."""
    weight_decay: float = 3e-5
    """Weight decay of matrices; vectors and modes have none."""
    mode_lr_scale: float = 0.01
    """Learning rate of the modes of Sonic layers, relative to that of other parameters."""
    preset: Literal["default", "light", "paper", "paper_size"] = "default"
    """`default` is `sonicunet3d`, or SonicNet in 2-D or with a setting of its own; others are SonicNet presets."""
    width: int | None = None
    """Channels of SonicNet; by default as in the preset, like all settings below."""
    depth: int | None = None
    """Number of blocks."""
    num_modes: int | None = None
    """Modes per block."""
    stride: tuple[int, ...] | None = None
    """Stride of the first block: one number or one per axis, for example `1,2,2`."""
    mlp_ratio: int | None = None
    """Width of the two-layer network after each block, as a multiple of the channels; 0 for none."""
    norm: Norm | None = None
    """Normalisation."""
    form: Form | None = None
    """Norm after (post) or before (pre) the operator."""
    variant: Variant | None = None
    """Variant of the operator: exact, or as in the paper's notes."""
    padding_mode: PaddingMode | None = None
    """What the operator sees beyond the patch."""
    field: float | None = None
    """Longest decay of the initial modes, in voxels."""
    head_kernel: int | None = None
    """Kernel size of the last convolution, odd."""
    local_kernel: int = 3
    """Kernel size of the local convolutions of nnUNetTrainerSonicHybrid, odd."""
    group: str | None = None
    """Rotation group of nnUNetTrainerSonicOrbit, for example `C8` in 2-D and `O` or `C4` in 3-D."""
    checkpointing: bool | None = None
    """Keep only the inputs of blocks for the backward pass: less memory, more time."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name), field.name)


# What each kind of trainer listens to; the rest is said to be unused.
BUDGET = frozenset({"epochs", "iterations", "val_iterations", "save_every", "seed", "batch_size", "patch_size"})
BUDGET |= {"optimiser", "learning_rate", "weight_decay"}
_ORDER = [option.name for option in fields(Settings)]
NETWORK = frozenset(_ORDER[_ORDER.index("preset") :])  # those from there on
ORBIT = frozenset({"width", "depth", "num_modes", "stride", "padding_mode", "field", "group", "checkpointing"})
_SONICNET = frozenset({"width", "depth", "num_modes", "stride", "form", "head_kernel", "checkpointing"})
_FROM_PLANS = ("self", "in_channels", "num_classes", "spatial_dims", "spacing")
_COUNTS = ("epochs", "iterations", "val_iterations", "save_every", "batch_size", "width", "depth", "num_modes")


def read_settings(environment: Mapping[str, str] = os.environ) -> tuple[Settings, frozenset[str]]:
    """Read the settings from environment variables and the file that one of them names.

    Returns
    -------
    Settings
        The settings, with defaults for those not given.
    frozenset of str
        Names of the settings that were given.

    Examples
    --------
    >>> from torchsonic.integrations.nnunet_settings import read_settings
    >>> settings, given = read_settings({"TORCHSONIC_NNUNET_STRIDE": "1,2,2"})
    >>> settings.stride, sorted(given)
    ((1, 2, 2), ['stride'])
    """
    kinds = get_type_hints(Settings)
    values: dict[str, Any] = {}
    if environment.get(FILE):
        path = Path(environment[FILE])
        for name, value in _read_file(path).items():
            _refuse_unknown(name, kinds, f"{path}: {name}")
            values[name] = _check(name, _convert(value, kinds[name], f"{name} in {path}"), f"{name} in {path}")
    known = {f"{PREFIX}{name.upper()}": name for name in kinds}
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != FILE:
            _refuse_unknown(variable, known, variable)
            name = known[variable]
            values[name] = _check(name, _convert(text, kinds[name], variable), variable)
    return Settings(**values), frozenset(values)


def network_arguments(
    settings: Settings, num_axes: int, *, hybrid: bool = False, orbit: bool = False
) -> dict[str, Any]:
    """The class of the network, as ``"class"``, and its arguments from a preset and the settings.

    All arguments but channels, axes and spacing are included: a saved network must not change with later defaults.
    """
    own = ORBIT if orbit else NETWORK - {"preset", "local_kernel", "group"}
    given = {key: getattr(settings, key) for key in own if getattr(settings, key) is not None}
    name = f"{'orbit' if orbit else 'sonic'}net{num_axes}d"
    if orbit:
        pass
    elif settings.preset != "default":
        name += f".{settings.preset}"
    elif num_axes == 3 and not _SONICNET & given.keys():
        name = "sonicunet3d"
    try:
        entry, chosen = model_entry(name)
    except ValueError as error:
        raise ValueError(f"preset={settings.preset} does not fit a {num_axes}-D configuration: {error}") from error
    if settings.stride is not None:
        steps = given["stride"] = list(settings.stride)
        if len(steps) not in (1, num_axes):
            raise ValueError(f"stride must be one number or {num_axes}, got {','.join(map(str, steps))}")
        given["stride"] = steps if len(steps) > 1 else steps[0]
    defaults = inspect.signature(entry.build.__init__).parameters
    arguments = {key: p.default for key, p in defaults.items() if key not in _FROM_PLANS} | chosen | given
    arguments = {key: value for key, value in arguments.items() if key not in _FROM_PLANS}
    if arguments["padding_mode"] == "circular":
        arguments["padding"] = None
    local = {} if orbit else {"local_kernel": settings.local_kernel if hybrid else 0}
    return {"class": entry.build.__name__, **arguments, **local}


def complete_network(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Class and arguments of a network from plans, where older versions left out what had no choice then."""
    return {"class": SonicNet.__name__, **CIRCULAR, **saved}


def _check(name: str, value: Any, source: str) -> Any:
    """A value that is in range; otherwise the error says where it was given."""
    if value is None:
        return None
    if name in _COUNTS and value < 1:
        raise ValueError(f"{source} must be at least 1, got {value}")
    if name in ("patch_size", "stride") and (not value or min(value) < 1):
        raise ValueError(f"{source} must be positive integers, got {','.join(map(str, value)) or 'none'}")
    if name in ("head_kernel", "local_kernel") and (value < 1 or value % 2 == 0):
        raise ValueError(f"{source} must be a positive odd number, got {value}")
    if name == "seed" and not 0 <= value < 2**32:
        raise ValueError(f"{source} must be from 0 to 2^32 - 1, got {value}")
    if name in ("learning_rate", "field") and not 0 < value < math.inf:
        raise ValueError(f"{source} must be positive, got {value}")
    if name in ("weight_decay", "mode_lr_scale", "mlp_ratio") and not 0 <= value < math.inf:
        raise ValueError(f"{source} must not be negative, got {value}")
    return value


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{FILE}: cannot read {path}: {error}") from error
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"{FILE} must name a .toml or .json file, got {path}")
    try:
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:  # both parsers' errors are ones
        raise ValueError(f"{FILE}: {path} is not valid {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{FILE}: {path} must contain names and values, got a {type(values).__name__}")
    return values


def _refuse_unknown(name: str, known: Mapping[str, Any], source: str) -> None:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        remedy = f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"
        raise ValueError(f"{source} is not a setting; {remedy}")


def _convert(value: Any, kind: Any, source: str) -> Any:
    """A value from a file, or the text of a variable, as what the annotation asks for."""
    optional = NoneType in get_args(kind)
    target = next(k for k in get_args(kind) if k is not NoneType) if optional else kind
    text = value.strip().lower() if isinstance(value, str) else value
    # "none" is a norm of its own, and means no norm rather than the preset's.
    if optional and text in (None, "", "none") and text not in get_args(target):
        return None
    if get_origin(target) is Literal:
        choices = get_args(target)
        if text not in choices:
            raise ValueError(f"{source} must be one of {', '.join(choices)}, got {value!r}")
        return text
    if get_origin(target) is tuple:
        parts = value.replace("x", ",").split(",") if isinstance(value, str) else value
        parts = parts if isinstance(parts, (list, tuple)) else [parts]
        return tuple(_scalar(part, int, value, source) for part in parts)
    return _scalar(value, target, value, source)


def _scalar(part: Any, target: type, value: Any, source: str) -> Any:
    words = {int: "an integer", float: "a number", bool: "true or false", str: "a name"}[target]
    try:
        if target is bool:
            text = str(part).strip().lower()
            return {"true": True, "1": True, "false": False, "0": False}[text]
        if isinstance(part, bool) or not isinstance(part, (str, int, float)):
            raise TypeError
        if target is int and isinstance(part, float) and not part.is_integer():
            raise TypeError
        return target(part)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{source} must be {words}, got {value!r}") from None
