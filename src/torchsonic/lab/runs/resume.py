"""What a run that was stopped, or is finished, must have in common with the command that is given again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torchsonic.io import read_json
from torchsonic.lab.training import CheckpointError
from torchsonic.lab.training.loop import MAY_CHANGE

__all__ = ["origins", "refuse_changes"]


def refuse_changes(folder: Path, settings: Mapping[str, Any], *, may_change: Collection[str]) -> None:
    """Refuse to go on with a run whose ``config.json`` has other settings.

    Parameters
    ----------
    settings
        As JSON holds them, those of the loop and other groups as mappings. One that is younger than the run is not
        compared.
    may_change
        Settings that have no effect on the weights, beside those of the loop that have none.
    """
    if not (folder / "checkpoints").exists() or not (folder / "config.json").exists():
        return
    # Those of the loop, too, although it looks for itself: that would be after the configuration is written.
    _compare(read_json(folder / "config.json"), settings, {*may_change, *MAY_CHANGE})


def _compare(saved: Mapping[str, Any], settings: Mapping[str, Any], may_change: Collection[str]) -> None:
    for name, value in settings.items():
        before = saved.get(name, value)
        if name in may_change or before == value or _is_same_path(before, value):
            continue
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            _compare(before, value, may_change)
            continue
        raise CheckpointError(
            f"the run to be resumed had {name}={before}, not {value}; give the old value or another folder"
        )


def _is_same_path(before: Any, value: Any) -> bool:
    """Whether a path may be the one that an earlier version stored as it was typed, from wherever that was."""
    if not isinstance(before, str) or not isinstance(value, str) or Path(before).is_absolute():
        return False
    parts = [part for part in Path(before).parts if part != ".."]
    return Path(value).is_absolute() and bool(parts) and list(Path(value).parts[-len(parts) :]) == parts


def origins(folder: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """Where results come from: ``run`` trained, and ``tested`` tested again if training was finished before it."""
    try:
        before = read_json(folder / "results.json")["run"]
    except (OSError, ValueError, KeyError):
        return {"run": dict(run)}
    return {"run": before, "tested": dict(run)}
