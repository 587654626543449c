"""Write and read the two files of a saved model, and find the folders that contain them.

Small trained networks are part of the package, each in a folder like that of a finished run: ``model/`` (weights and
configuration), the run's ``config.json`` and ``results.json``, and a model card. Others are on the Hugging Face Hub.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from torchsonic.io import replacing

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
FORMAT = 2
"""Contains all arguments; format 1 contained only those that were passed, so defaults could not change."""
MAX_CONFIG_BYTES = 1 << 20


class PretrainedError(ValueError):
    """A saved model that cannot be read; the message says which file, why, and what to do."""


def write_model(folder: Path, config: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Write the weights, and the configuration with their digest; each file is written completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / CONFIG_NAME
    with replacing(text, durable=True) as new_text, replacing(folder / WEIGHTS_NAME, durable=True) as weights:
        save_file(state, weights, metadata={"format": "pt"})
        new_text.write_text(json.dumps({**config, "sha256": file_digest(weights)}, indent=2) + "\n")


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_config(path: Path) -> dict[str, Any]:
    """Read what a model was built with; other files are refused."""
    if not path.is_file():
        raise _missing(path)
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise PretrainedError(f"{path} is {path.stat().st_size} bytes long, so it is not a torchsonic configuration")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{path} is not valid JSON, perhaps cut short: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("class"), str) or "torchsonic" not in config:
        raise PretrainedError(f"{path} was not written by torchsonic: it does not name a class and version")
    if config.get("format") not in range(1, FORMAT + 1):
        raise PretrainedError(
            f"{path} has format {config.get('format')!r}, but this version reads up to {FORMAT}; update torchsonic"
        )
    if not isinstance(config.get("arguments"), dict):
        raise PretrainedError(f"{path} does not contain the arguments of {config['class']}")
    return config


def read_weights(path: Path, digest: str | None) -> dict[str, Tensor]:
    """Tensors by name; a file is refused if it is damaged, or if it does not match the digest."""
    if not path.is_file():
        raise _missing(path)
    try:
        with safe_open(path, framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise PretrainedError(f"{path} is not a valid safetensors file ({error}); copy or download it again") from error
    if digest is not None and file_digest(path) != digest:
        raise PretrainedError(
            f"{path} is not the file that {CONFIG_NAME} was saved with: it is damaged or was replaced; "
            "copy both again, or pass verify=False if you replaced it on purpose"
        )
    return state


def _missing(path: Path) -> PretrainedError:
    found = sorted(p.name for p in path.parent.iterdir() if not p.name.startswith("."))
    listing = f"the folder contains {', '.join(found[:8])}" if found else "the folder is empty"
    return PretrainedError(f"{path.name} is missing in {path.parent}: {listing}; was it renamed?")


HUB = "hub:"
"""Before ``owner/name``: only names with this prefix are downloaded."""


def import_hub():
    """The package ``huggingface_hub``, or an error that names the extra which brings it."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError('the Hub needs huggingface_hub; run: pip install "torchsonic[hub]"') from error
    return huggingface_hub


def is_repository(name: str) -> bool:
    """Whether a name has the form ``owner/name``."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", name) is not None


def download(repository: str, files: Sequence[str], *, revision: str | None, token: str | None) -> Path:
    """Fetch some files of a repository; returns the local folder that holds them."""
    hub = import_hub()
    paths = [hub.hf_hub_download(repository, name, revision=revision, token=token) for name in files]
    return Path(paths[0]).parent


FOLDER = Path(__file__).parents[1] / "weights"


def list_pretrained() -> list[str]:
    """Names of the trained networks included in the package, for :func:`torchsonic.from_pretrained`."""
    return sorted(path.name for path in FOLDER.glob("*") if path.is_dir() and path.name.isidentifier())


def pretrained_folder(name: str) -> Path | None:
    """The folder of the packaged network of this name, if there is one."""
    return FOLDER / name if name in list_pretrained() else None


def find_folder(source: str | os.PathLike) -> Path:
    """The folder that a name means: that of a packaged network, unless a folder of this name has a network itself."""
    folder = Path(source)
    if any((place / CONFIG_NAME).is_file() for place in (folder, folder / "model")):
        return folder
    return pretrained_folder(os.fspath(source)) or folder


def is_packaged(folder: Path) -> bool:
    """Whether a folder is that of a packaged network, in which nothing may be written."""
    return folder.resolve().is_relative_to(FOLDER.resolve())
