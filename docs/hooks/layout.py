"""MkDocs hook: what Markdown cannot say about a page's layout."""

from __future__ import annotations

import re
from typing import Any

LONGEST = 32
CELL = 18
"""Characters of a cell that is not broken, such as 2d-64-16-128 or 0.971 ± 0.003 (3)."""
PICTURE = re.compile(r"<img\b[^>]*?\bsrc=\"([^\"]+)\"[^>]*>")
WORD = re.compile(rf"<code>([^<\n]{{1,{LONGEST}}})</code>")
SHORT = re.compile(rf"<td([^>]*)>((?:<strong>)?[^<\n]{{1,{CELL}}}(?:</strong>)?)</td>")


def on_page_content(html: str, **_: Any) -> str:
    """Let a picture open in its full size, and keep short code such as ``--num-modes`` and short cells on one line."""
    html = PICTURE.sub(r'<a class="picture" href="\1">\g<0></a>', html)
    html = SHORT.sub(r'<td\1><span class="word">\2</span></td>', html)
    return WORD.sub(r'<code class="word">\1</code>', html)
