"""Small trained networks that come with the package, each in a folder like that of a finished run.

A folder holds ``model/`` (weights and configuration), the run's ``config.json`` and ``results.json``, and a model card.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "weights"


def list_pretrained() -> list[str]:
    """Names of the trained networks that come along, for :func:`torchsonic.from_pretrained`."""
    return sorted(path.name for path in FOLDER.glob("*") if path.is_dir() and path.name.isidentifier())


def pretrained_folder(name: str) -> Path | None:
    """The folder of a trained network that comes along, if there is one of this name."""
    return FOLDER / name if name in list_pretrained() else None


def is_packaged(folder: Path) -> bool:
    """Whether a folder is that of a network that comes along, in which nothing may be written."""
    return folder.resolve().is_relative_to(FOLDER.resolve())
