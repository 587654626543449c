"""What lies in the folder of a training: checkpoints, read without executing anything in them, and what it cost.

nnU-Net reads checkpoints as full pickles, which may execute what a file says. Its checkpoints hold tensors, plain
containers and, in the log of the training, NumPy's numbers. A file that can be read with those alone is harmless, so
our trainers read it this way first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from torchsonic.integrations.nnunet_settings import Settings
from torchsonic.io import RefusedFileError, load_plain, write_whole

# What NumPy's scalars are made of when they are unpickled: data, no code of the file's choice.
_NUMBERS = (np.float64, np.float32, np.float16, np.int64, np.int32, np.bool_)
_SCALAR = np.float64(0).__reduce__()[0]
SAFE = [_SCALAR, (_SCALAR, "numpy.core.multiarray.scalar"), np.dtype, *[type(np.dtype(kind)) for kind in _NUMBERS]]


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU; refuses a file that holds more than numbers, text and containers."""
    try:
        return load_plain(path, also=SAFE)
    except RefusedFileError as reason:
        raise ValueError(f"{path} {reason}") from reason


def saved_settings(saved: Mapping[str, Any]) -> Settings:
    """The settings that a checkpoint was trained with."""
    unknown = sorted(set(saved) - {field.name for field in fields(Settings)})
    if unknown:
        raise ValueError(f"the checkpoint has the unknown setting {unknown[0]}; it is from a newer torchsonic")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
    return Settings(**values)


COST_FILE = "cost.json"


def write_cost(
    folder: Path, network: nn.Module, begun: Sequence[float], ended: Sequence[float], device: torch.device
) -> None:
    """Write ``cost.json``: parameters, seconds of all epochs, and the most GPU memory that PyTorch held at one time.

    Times are those that nnU-Net logs and keeps in checkpoints, so a training that was stopped counts as one. Memory is
    unknown (``None``) on other devices than GPUs.

    Parameters
    ----------
    begun, ended
        Seconds since the epoch at which each epoch began and ended.
    """
    path, peak = folder / COST_FILE, None
    if device.type == "cuda":
        before = json.loads(path.read_text(encoding="utf-8"))["peak_bytes"] if path.is_file() else None
        peak = max(torch.cuda.max_memory_reserved(device), before or 0)
    facts = {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "epochs": len(ended),
        "seconds": math.fsum(end - begin for begin, end in zip(begun, ended, strict=False)),
        "peak_bytes": peak,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }
    write_whole(path, json.dumps(facts, indent=1) + "\n")
