"""MkDocs hook: what Markdown cannot say about a page's layout."""

from __future__ import annotations

import re
from typing import Any

LONGEST = 32
CELL = 14
"""Characters of a cell that is not broken, as an entry 2d-64-16-128, a goal <= 1.05 or a row distortion 2."""
PICTURE = re.compile(r"<img\b[^>]*?\bsrc=\"([^\"]+)\"[^>]*>")
WORD = re.compile(rf"<code>([^<\n]{{1,{LONGEST}}})</code>")
SHORT = re.compile(rf"<td([^>]*)>([^<\n]{{1,{CELL}}})</td>")


def on_page_content(html: str, **_: Any) -> str:
    """Let a picture open in its full size, and keep short code such as ``--num-modes`` and short cells on one line."""
    html = PICTURE.sub(r'<a class="picture" href="\1">\g<0></a>', html)
    html = SHORT.sub(r'<td\1><span class="word">\2</span></td>', html)
    return WORD.sub(r'<code class="word">\1</code>', html)
