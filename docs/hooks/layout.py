"""MkDocs hook: what Markdown cannot say about a page's layout."""

from __future__ import annotations

import re
from typing import Any

LONGEST = 32
PICTURE = re.compile(r"<img\b[^>]*?\bsrc=\"([^\"]+)\"[^>]*>")
WORD = re.compile(rf"<code>([^<\n]{{1,{LONGEST}}})</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Let a picture open in its full size, and keep short code such as ``--num-modes`` on one line."""
    html = PICTURE.sub(r'<a class="picture" href="\1">\g<0></a>', html)
    return WORD.sub(r'<code class="word">\1</code>', html)
