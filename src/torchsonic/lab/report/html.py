"""A document as one HTML file that needs no other: style, script and pictures are inside, and nothing is fetched.

Jinja2, which PyTorch requires anyway, escapes whatever a document says; the page's policy runs no script but ours.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from torchsonic.lab.report.document import Code, Document, Figure, Group, Items, Prose, Section, Table

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["to_html"]

BLOCKS = {kind.__name__.lower(): kind for kind in (Code, Figure, Group, Items, Prose, Section, Table)}


def to_html(document: Document) -> str:
    """The whole page."""
    script = _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(document=document, style=_read("page.css"), script=script, digest=digest)


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    for name, kind in BLOCKS.items():
        environment.tests[name] = lambda block, kind=kind: isinstance(block, kind)
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode("ascii")
    environment.filters["slug"] = lambda title: re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return environment.from_string(_read("page.html"))


@cache
def _read(name: str) -> str:
    return files(__package__ or "").joinpath(name).read_text(encoding="utf-8")
