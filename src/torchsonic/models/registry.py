"""Networks, and the parts they are built from, by name."""

from __future__ import annotations

import difflib
import fnmatch
import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torchsonic.models.pretrained import PretrainedModel

T = TypeVar("T")


class Registry(Generic[T]):
    """Named things of one kind; for an unknown name, the error suggests the closest known one."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> T:
        """Register an entry; names are unique."""
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is already registered")
        self._entries[name] = entry
        return entry

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise ValueError(f"unknown {self.kind} {name!r}{_nearest(name, self._entries)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def _nearest(name: str, known: Mapping[str, Any] | list[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; choose from {', '.join(known)}" if known else "; there are none"


@dataclass(frozen=True)
class ModelEntry:
    """How to build a model by name: a class, its arguments, and named changes to them."""

    build: type[PretrainedModel]
    arguments: Mapping[str, Any]
    input_size: tuple[int, ...]
    """Channels and size of the usual input, for counting operations; not a limit."""
    task: str
    """``segmentation``, ``classification`` (of photographs) or ``arrays`` (their classification)."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: Mapping[str, str] = field(default_factory=dict)
    """Row of the paper's table, for the model itself (``""``) and its presets."""


# An operator is built by `(in_channels, out_channels, stride, *, grid, **options)`, where `grid` is the size of its
# output for the model's usual image; a backbone by `(width, depth, **options)`.
OPERATORS: Registry[Callable[..., Any]] = Registry("operator")
BACKBONES: Registry[Callable[..., Any]] = Registry("backbone")
MODELS: Registry[ModelEntry] = Registry("model")


def list_models(pattern: str = "*", *, presets: bool = True) -> list[str]:
    """Names that :func:`create_model` knows.

    Parameters
    ----------
    pattern
        Shell pattern, for example ``"resnet50_*"``.
    presets
        Include ``name.preset``.

    Examples
    --------
    >>> torchsonic.list_models("sonicnet3d*")
    ['sonicnet3d', 'sonicnet3d.light', 'sonicnet3d.paper', 'sonicnet3d.paper_size']
    """
    names = []
    for name in MODELS:
        names.append(name)
        if presets:
            names += [f"{name}.{preset}" for preset in MODELS[name].presets]
    return sorted(fnmatch.filter(names, pattern))


def model_entry(name: str) -> tuple[ModelEntry, dict[str, Any]]:
    """The entry of ``name`` or ``name.preset`` and the arguments its class is built with."""
    base, _, preset = name.partition(".")
    entry = MODELS[base]
    if preset and preset not in entry.presets:
        raise ValueError(f"unknown preset {preset!r} of model {base!r}{_nearest(preset, entry.presets)}")
    # A copy: what a caller does to it must not change the registry.
    return entry, deepcopy({**entry.arguments, **(entry.presets[preset] if preset else {})})


def create_model(name: str, **overrides: Any) -> PretrainedModel:
    """Build an untrained model by name.

    Parameters
    ----------
    name
        One of :func:`list_models`; ``name.preset`` for a preset.
    overrides
        Arguments of the model's class to change, for example ``num_classes=10``.

    Examples
    --------
    >>> model = torchsonic.create_model("sonic_tiny", num_classes=10)
    >>> model(torch.randn(1, 3, 64, 96)).shape
    torch.Size([1, 10])
    """
    entry, arguments = model_entry(name)
    known = list(inspect.signature(entry.build.__init__).parameters)[1:]
    for key in overrides:
        if key == "pretrained" and key not in known:
            raise TypeError(
                f"{name} has no weights to load with pretrained={overrides[key]!r}; torchsonic.from_pretrained loads "
                "packaged networks, see torchsonic.list_pretrained()"
            )
        if key not in known:
            raise TypeError(f"{name} has no argument {key!r}{_nearest(key, known)}")
    return entry.build(**{**arguments, **overrides})
