"""MkDocs hook: the site asks no other host for anything, which is checked whenever it is built."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

FETCHED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^\"' >]+")
SCRIPTS = "assets/javascripts"
HOST = "https://unpkg.com/"  # from which the theme would load what no page here uses


def on_post_build(config: MkDocsConfig) -> None:
    """Take foreign addresses out of the theme's scripts, and refuse pages that have any."""
    site = Path(config.site_dir)
    for path in (site / SCRIPTS).rglob("*.map"):
        path.unlink()
    for path in (site / SCRIPTS).rglob("*.js"):
        text = path.read_text()
        path.write_text(re.sub(r"\n//# sourceMappingURL=\S+", "", text.replace(HOST, "")))
    for path in sorted(site.rglob("*.html")):
        if found := FETCHED.search(path.read_text()):
            raise PluginError(f"{path.relative_to(site)} loads from a foreign host: {found[0]}")
