"""The two files of a saved model, as they are written."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

__all__ = ["CONFIG_NAME", "WEIGHTS_NAME", "file_digest", "write_model"]

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"


def write_model(folder: Path, config: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Write weights and configuration, which gets the digest of the weights; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as scratch:
        weights = Path(scratch) / WEIGHTS_NAME
        save_file(state, weights, metadata={"format": "pt"})
        text = Path(scratch) / CONFIG_NAME
        text.write_text(json.dumps({**config, "sha256": file_digest(weights)}, indent=2) + "\n")
        for path in (weights, text):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            os.replace(path, folder / path.name)


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
