"""The files of a document."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchsonic.io import write_whole
from torchsonic.lab.report.document import Document
from torchsonic.lab.report.html import to_html
from torchsonic.lab.report.markdown import to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["to_png", "write_document"]

DPI = 130


def write_document(document: Document, folder: Path, *, name: str = "report") -> list[Path]:
    """Write ``report.html``, ``report.md``, ``report.json`` and the figures; a file appears whole or not at all."""
    contents: dict[str, str | bytes] = {f"{name}.html": to_html(document), f"{name}.md": to_markdown(document)}
    if document.data is not None:
        contents[f"{name}.json"] = json.dumps(_plain(document.data), indent=1, allow_nan=False, default=str) + "\n"
    contents |= {figure.file: figure.data for figure in document.figures}
    for file, content in contents.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / file, content)
    return [folder / file for file in contents]


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: what is not finite is ``None``."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_png(figure: Figure, *, dpi: int = DPI) -> bytes:
    """A drawing as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()
