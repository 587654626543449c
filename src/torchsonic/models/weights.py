"""Small trained networks included in the package, each in a folder like that of a finished run.

A folder has ``model/`` (weights and configuration), the run's ``config.json`` and ``results.json``, and a model card.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_packaged", "list_pretrained", "pretrained_folder"]

FOLDER = Path(__file__).parents[1] / "weights"


def list_pretrained() -> list[str]:
    """Names of the trained networks included in the package, for :func:`torchsonic.from_pretrained`."""
    return sorted(path.name for path in FOLDER.glob("*") if path.is_dir() and path.name.isidentifier())


def pretrained_folder(name: str) -> Path | None:
    """The folder of the trained network with this name, or ``None`` if the package has none."""
    return FOLDER / name if name in list_pretrained() else None


def is_packaged(folder: Path) -> bool:
    """Whether a folder belongs to a network included in the package; nothing may be written there."""
    return folder.resolve().is_relative_to(FOLDER.resolve())
