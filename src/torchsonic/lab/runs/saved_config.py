"""Configurations as JSON holds them, and what JSON forgets of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

__all__ = ["plain_config", "with_tuples"]


def plain_config(config: Any) -> dict[str, Any]:
    """A dataclass of settings as JSON gives it back: tuples as lists, paths as text."""
    return json.loads(json.dumps(asdict(config), default=lambda path: path.as_posix()))


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from JSON whose lists are the tuples they were."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
