"""From a model to a checked file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchsonic import __version__
from torchsonic.export.check import TOLERANCE, CheckRow, check_file
from torchsonic.export.config import ExportConfig, ExportError
from torchsonic.export.program import input_channels, reference_spacing, told_orientation, trace_model
from torchsonic.export.run import require_packages
from torchsonic.export.write import write_program
from torchsonic.io import replacing


@dataclass(frozen=True)
class ExportedFile:
    """The file that was written, and how it compares with the model."""

    path: Path
    num_bytes: int
    rows: tuple[CheckRow, ...]

    @property
    def error(self) -> float | None:
        """The largest error found; ``None`` if the file was not checked."""
        return max((row.error for row in self.rows), default=None)


def export_model(
    model: nn.Module,
    path: str | os.PathLike,
    config: ExportConfig,
    *,
    classes: Sequence[str] = (),
    preparation: Mapping[str, Any] | None = None,
    check: bool = True,
    timed_seconds: float = 2.0,
    say: Callable[[str], None] = lambda text: None,
) -> ExportedFile:
    """Export a model to another runtime and compare the file with the model.

    Parameters
    ----------
    model
        Any module with one input, and ``spacing`` if it ``takes_spacing``; it is exported in evaluation mode.
    path
        Path of the new file, ending in ``.onnx`` or ``.pt2``. The file appears only if it is complete and correct.
    classes
        Names of the classes, stored in the file.
    preparation
        A description of how input is made from raw data, stored in the file as JSON.
    check, timed_seconds
        See :func:`check_file`.
    say
        Called with what is done next; tracing and writing may take minutes each.

    Raises
    ------
    ValueError
        If model and configuration do not match.
    ExportError
        If the model cannot be exported, or if the file's output differs by more than 1e-4 of the largest value.

    Examples
    --------
    >>> import tempfile
    >>> from torchsonic.export import ExportConfig, export_model
    >>> layer = torchsonic.SonicConv2d(3, 4, num_modes=4)
    >>> file = export_model(layer, tempfile.mkdtemp() + "/layer.pt2", ExportConfig(to="pt2", size=(12, 15)))
    >>> file.error < 1e-4
    True
    """
    path = Path(path)
    require_packages(config.to)
    ending = ".onnx" if config.to == "onnx" else ".pt2"  # by which runtimes know their files
    if path.suffix != ending:
        raise ValueError(f"path must end in {ending} with to={config.to!r}, got {path.name!r}")
    if not path.parent.is_dir():  # found out now, not when all is traced
        raise FileNotFoundError(f"there is no folder {path.parent} for {path.name}")
    say(f"tracing {type(model).__name__} ...")
    program = trace_model(model, config)
    metadata = json.dumps(_describe(model, config, classes, preparation or {}))
    with replacing(path) as scratch:
        say(f"{'compiling' if config.to == 'aoti' else 'writing'} {path.name} ...")
        write_program(program, scratch, config, metadata)
        say("comparing it with PyTorch ..." if check else "not compared with PyTorch")
        rows = tuple(check_file(model, scratch, config, timed_seconds=timed_seconds)) if check else ()
        for row in rows:
            if not row.error <= TOLERANCE:
                raise ExportError(
                    f"the exported file differs from the model by {row.error:.1e} of the largest value for an input "
                    f"{row.shape}, more than {TOLERANCE:.0e}; nothing was written"
                )
        num_bytes = scratch.stat().st_size
    return ExportedFile(path, num_bytes, rows)


def _describe(model: nn.Module, config: ExportConfig, classes: Sequence[str], preparation: Mapping[str, Any]) -> dict:
    turn = told_orientation(model)
    return {
        "version": __version__,
        "model": type(model).__name__,
        "inputs": config.input_names,
        "outputs": ["y"],
        "channels": input_channels(model),
        "dtype": str(next(model.parameters(), torch.empty(0)).dtype).removeprefix("torch."),
        **{name: value for name, value in asdict(config).items() if name not in ("opset", "constant_megabytes")},
        "transforms": config.chosen_transforms,
        "reference_spacing": reference_spacing(model),
        "orientation": None if turn is None else (turn[0] if len(turn) == 1 else turn).tolist(),
        "classes": list(classes),
        "preparation": dict(preparation),
    }
