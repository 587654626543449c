"""Pieces of HTML that reports share."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

__all__ = ["embed", "item_list", "read_part", "scrollable", "warning_box"]


def read_part(name: str, package: str = "torchsonic.lab.report.table1") -> str:
    """A file that lies beside the code: the style all reports have, or the frame of a page."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def warning_box(warnings: Sequence[str]) -> str:
    """What to know before comparing; nothing without warnings."""
    if not warnings:
        return ""
    return (
        '<section class="warnings" aria-labelledby="warnings"><h2 id="warnings">Before comparing</h2>'
        f"{item_list(map(escape, warnings))}</section>"
    )


def scrollable(caption: str, content: str, kind: str) -> str:
    """A table in a box of its own that scrolls sideways where it is too wide; the caption is for those who listen."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f'<table class="{kind}"><caption>{escape(caption)}</caption>{content}</table></div>'
    )


def item_list(items: Iterable[str]) -> str:
    """A list of pieces of HTML."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def embed(data: bytes, title: str, *, kind: str = "png") -> str:
    """A picture inside the page, in a box that scrolls; the title stands in for it."""
    text = base64.b64encode(data).decode("ascii")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(title)}">'
        f'<img alt="{escape(title)}" src="data:image/{kind};base64,{text}"></div>'
    )
