"""Pieces of Markdown that reports share."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

__all__ = ["as_code", "as_list", "as_table", "as_text"]

SPECIAL = re.compile(r"([\\`*_|\[\]])")


def as_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int, escaped: bool = False) -> str:
    """A table whose first columns stand left, the others right; with ``escaped``, cells are Markdown already."""
    marks = ["---" if place < left else "---:" for place in range(len(headers))]
    body = rows if escaped else [[as_text(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in ([as_text(word) for word in headers], marks, *body))


def as_list(lines: Iterable[str]) -> str:
    """A list of pieces of Markdown."""
    return "\n".join(f"- {line}" for line in lines)


def as_text(text: str) -> str:
    """A text in which nothing is a mark or a tag, on one line."""
    return SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def as_code(text: str) -> str:
    """A text as code: its fence is longer than any it holds."""
    text = " ".join(text.split())
    fence = "`" * (1 + max((len(found) for found in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`"
