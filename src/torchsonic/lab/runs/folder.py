"""The folder of a run, whatever its task.

``config.json`` holds the kind of the run, the version that wrote it and all settings; ``split.json`` or
``classes.json`` what was found in the data; ``log.jsonl`` and ``checkpoints/`` the training; ``commits.json`` the
versions that took part in it; ``model/`` the trained network; ``results.json`` the test. A file ``.lock`` is there
while a process works in the folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from torchsonic import __version__
from torchsonic.io import RefusedFileError, read_json, write_json
from torchsonic.lab.runs.settings import complete_settings, plain_settings
from torchsonic.models.pretrained import CONFIG_NAME, PretrainedModel, from_pretrained

__all__ = [
    "KINDS",
    "RunError",
    "is_run",
    "kind_of",
    "load_model",
    "model_kind",
    "read_config",
    "read_facts",
    "write_config",
]

C = TypeVar("C")
FORMAT = 1
HEAD = ("kind", "format", "torchsonic")
KINDS = {"volumes": "patch", "images": "image_size", "synthetic": "task", "masks": "instances", "arrays": "rates"}
"""Kinds of runs, and a setting by which a run is known that was written before runs said their kind."""


class RunError(ValueError):
    """A folder that holds no run, or none that can be used; the message says why and what to do."""


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a finished run rather than of a saved model."""
    return (folder / "model" / CONFIG_NAME).is_file()


def write_config(folder: Path, kind: str, config: Any) -> None:
    """Write ``config.json``."""
    head = dict(zip(HEAD, (kind, FORMAT, __version__), strict=True))
    write_json(folder / CONFIG_NAME, {**head, **plain_settings(config)})


def read_config(folder: Path, cls: type[C]) -> C:
    """The settings of a run."""
    values = {name: value for name, value in _read(folder).items() if name not in HEAD}
    return complete_settings(cls, values, str(folder / CONFIG_NAME))


def kind_of(folder: Path) -> str:
    """The kind of a run, one of :data:`KINDS`."""
    values = _read(folder)
    kind = values.get("kind") or next((kind for kind, mark in KINDS.items() if mark in values), None)
    if kind not in KINDS:
        raise RunError(f"{folder / CONFIG_NAME} is not from a run on {', '.join(KINDS)}, but from {kind or 'a model'}")
    return kind


def model_kind(folder: Path) -> str | None:
    """The kind of run that a saved model came from, if its folder says so."""
    if (folder / "images.json").is_file() and not is_run(folder):
        return "images"
    if folder.name == "model" and is_run(folder.parent):
        raise RunError(f"{folder} is the network of a run; name the folder of the run, {folder.parent}")
    return None


def _read(folder: Path) -> dict[str, Any]:
    values = _read_json(folder / CONFIG_NAME, lambda: _reason(folder))
    if values.get("format", FORMAT) != FORMAT:
        text = f"{folder / CONFIG_NAME} has format {values['format']!r}, but this version reads {FORMAT}"
        raise RunError(f"{text}; update torchsonic")
    return values


def read_facts(path: Path, *names: str) -> dict[str, Any]:
    """A file that a run has beside its settings, which must hold some names."""
    facts = _read_json(path, lambda: f"{path.name} is missing in {path.parent}; was it removed?")
    missing = [name for name in names if name not in facts]
    if missing:
        raise RunError(f"{path} has no {missing[0]!r}; it is damaged, or not a file of a run")
    return facts


def _read_json(path: Path, absent: Callable[[], str]) -> dict[str, Any]:
    try:
        return read_json(path)
    except FileNotFoundError:
        raise RunError(absent()) from None
    except RefusedFileError as error:
        raise RunError(str(error)) from error


def load_model(folder: Path) -> PretrainedModel:
    """The trained network of a run."""
    if not is_run(folder):
        raise RunError(_reason(folder))
    return from_pretrained(folder / "model")


def _reason(folder: Path) -> str:
    """Why a folder is no finished run."""
    if not folder.is_dir():
        return f"there is no folder {folder}"
    if (folder / "checkpoints").is_dir():
        return f"the training in {folder} has not finished; run its command again to continue"
    runs = sorted(path.parent for path in folder.glob("**/model") if (path / CONFIG_NAME).is_file())
    return f"{folder} is not a run; did you mean {runs[0]}?" if runs else f"{folder} is not a run: it has no model/"
