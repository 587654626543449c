"""Download models from the Hugging Face Hub and upload them; the package is optional."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["HUB", "download", "import_hub", "is_repository"]

HUB = "hub:"
"""Prefix of ``owner/name``; nothing is downloaded without it."""


def import_hub():
    """The package ``huggingface_hub``, or an error that names the extra to install."""
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
