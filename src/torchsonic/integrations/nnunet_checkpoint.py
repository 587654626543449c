"""Reading a checkpoint of nnU-Net without executing anything in it.

nnU-Net reads checkpoints as full pickles, which can execute code. Its checkpoints contain tensors, plain containers
and, in the training log, NumPy numbers. A file that can be read with those alone is harmless, so our trainers read it
this way first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from torchsonic.integrations.nnunet_settings import Settings
from torchsonic.io import RefusedFileError, load_plain

# What NumPy's scalars are made of when they are unpickled: data, no code of the file's choice.
_NUMBERS = (np.float64, np.float32, np.float16, np.int64, np.int32, np.bool_)
_SCALAR = np.float64(0).__reduce__()[0]
SAFE = [_SCALAR, (_SCALAR, "numpy.core.multiarray.scalar"), np.dtype, *[type(np.dtype(kind)) for kind in _NUMBERS]]


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU; files with more than numbers, text and containers are refused."""
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
