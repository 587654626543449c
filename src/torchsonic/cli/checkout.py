"""The door to ``tools``, which a checkout has and the wheel has not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torchsonic

__all__ = ["commands_of_checkout"]


def commands_of_checkout() -> dict[str, Any]:
    """Benchmarks, dependencies and figures, if the package lies in a checkout; nothing otherwise."""
    root = Path(torchsonic.__file__).resolve().parents[2]
    if not (root / "tools" / "commands.py").is_file() or not (root / "pyproject.toml").is_file():
        return {}
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    from tools.commands import COMMANDS

    return COMMANDS
