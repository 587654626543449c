"""The two files of a saved model, as they are written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from torchsonic.io import replacing

__all__ = ["CONFIG_NAME", "WEIGHTS_NAME", "file_digest", "write_model"]

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"


def write_model(folder: Path, config: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Write weights and configuration, which gets the digest of the weights; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / CONFIG_NAME
    with replacing(text, durable=True) as new_text, replacing(folder / WEIGHTS_NAME, durable=True) as weights:
        save_file(state, weights, metadata={"format": "pt"})
        new_text.write_text(json.dumps({**config, "sha256": file_digest(weights)}, indent=2) + "\n")


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
