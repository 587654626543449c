"""Where the numbers of a run go: JSON lines always, TensorBoard and Weights & Biases on request."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torchsonic.io import write_whole


class Logger(Protocol):
    """Takes numbers with the step they belong to."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """One JSON object on each line of ``log.jsonl``; a resumed run first drops the lines it will write again."""

    def __init__(self, folder: Path, *, first_step: int = 0) -> None:
        path = folder / "log.jsonl"
        before = read_log(path) if first_step and path.exists() else []
        write_whole(path, "".join(json.dumps(entry) + "\n" for entry in before if entry["step"] <= first_step))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  (open as long as the run)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a log; a last line that a kill cut short is left out."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return entries


class TensorBoard:
    """Scalars for TensorBoard, in the run's folder."""

    def __init__(self, folder: Path, *, first_step: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("the logger tensorboard needs tensorboard; run: pip install tensorboard") from error
        self._writer = SummaryWriter(str(folder), purge_step=first_step or None)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases named after the folders; it goes on when training resumes."""

    def __init__(self, folder: Path, *, first_step: int = 0) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError("the logger wandb needs wandb; run: pip install wandb") from error
        # Folders of different runs have the same name, and may be moved: the run remembers its own number.
        known = folder / "wandb-id"
        if not known.exists():
            write_whole(known, uuid.uuid4().hex)
        name = "/".join(folder.resolve().parts[-3:])
        number = known.read_text(encoding="utf-8")
        self._run = wandb.init(project="torchsonic", name=name, id=number, dir=str(folder), resume="allow")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


KINDS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def make_loggers(names: Sequence[str], folder: Path, *, first_step: int) -> list[Logger]:
    """The JSON lines and the loggers named."""
    return [JsonLines(folder, first_step=first_step), *[KINDS[name](folder, first_step=first_step) for name in names]]
