"""Warnings that are given once."""

from __future__ import annotations

import warnings

__all__ = ["warn_once"]

_seen: set[str] = set()


def warn_once(subject: str, message: str, *, stacklevel: int = 3) -> None:
    """Give a ``FutureWarning`` about a subject, once per process."""
    if subject not in _seen:
        _seen.add(subject)
        warnings.warn(message, FutureWarning, stacklevel=stacklevel)
