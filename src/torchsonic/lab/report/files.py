"""The files of a document: one HTML file that needs no other, Markdown with pictures beside it, and JSON.

The style, script and pictures of the HTML file are inside, and nothing is fetched. Jinja2, which PyTorch requires
anyway, escapes whatever a document says; the page's policy runs no script but ours.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchsonic.io import write_whole
from torchsonic.lab.report import document as parts
from torchsonic.lab.report.document import Document
from torchsonic.lab.report.markdown import to_markdown

if TYPE_CHECKING:
    from jinja2 import Template
    from matplotlib.figure import Figure

BLOCKS = (parts.Code, parts.Figure, parts.Group, parts.Items, parts.Prose, parts.Section, parts.Table)


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


def to_html(document: Document) -> str:
    """The whole page."""
    script = _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(document=document, style=_read("page.css"), script=script, digest=digest)


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    for kind in BLOCKS:
        environment.tests[kind.__name__.lower()] = lambda block, kind=kind: isinstance(block, kind)
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode("ascii")
    environment.filters["slug"] = lambda title: re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return environment.from_string(_read("page.html"))


@cache
def _read(name: str) -> str:
    return files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def to_png(figure: Figure, *, dpi: int = 130) -> bytes:
    """A drawing as a PNG file."""
    return _save(figure, format="png", dpi=dpi)


def to_webp(figure: Figure, *, dpi: int) -> bytes:
    """A drawing with photographs in it as a WebP file."""
    return _save(figure, format="webp", dpi=dpi, pil_kwargs={"quality": 82, "method": 4})


def _save(figure: Figure, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, **options)
    return buffer.getvalue()
