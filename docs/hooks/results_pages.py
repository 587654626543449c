"""MkDocs hook: the pages under "Results" are the files of `results/`, taken when the site is built.

Pages link to results as the repository's tree has them (``../results/bench/models.md``), so that the links work there,
too; on the site `results` lies beside the other pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

RESULTS = "results"
ICON = "src/torchsonic/explorer/page/icon.svg"
LINK = re.compile(r"(\]\()(?:\.\./)+(results/)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the results to the navigation, by folder, each page under its own heading."""
    pages = _pages(config)
    folders: dict[str, list[Any]] = {}
    for uri, text in pages.items():
        folders.setdefault(Path(uri).parent.relative_to(RESULTS).as_posix(), []).append({_heading(text, uri): uri})
    entries: list[Any] = [{"Overview": f"{RESULTS}/index.md"}]
    for folder, members in folders.items():
        entries.extend(members if len(members) == 1 else [{folder.replace("_", " ").capitalize(): members}])
    config.nav = [*(config.nav or []), {"Results": entries}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of `results/` and an overview of their pages."""
    root = _root(config)
    for path in sorted(path for path in (root / RESULTS).rglob("*") if path.is_file()):
        files.append(File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, f"{RESULTS}/index.md", content=_overview(_pages(config))))
    files.append(File.generated(config, "images/icon.svg", abs_src_path=str(root / ICON)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to results at their place on the site."""
    return LINK.sub(r"\1\2", markdown)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _pages(config: MkDocsConfig) -> dict[str, str]:
    root = _root(config)
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / RESULTS).rglob("*.md"))}


def _heading(text: str, uri: str) -> str:
    found = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
    if found is None:
        raise ValueError(f"{uri} has no heading; begin it with '# What was measured'")
    return found[1].strip()


def _overview(pages: dict[str, str]) -> str:
    lines = [
        "# Results",
        "",
        "Each page is a file of `results/` as a command wrote it, with command, commit, seed and machine.",
        "Numbers of the paper stand beside ours and are never mixed with them.",
        "",
    ]
    for uri, text in pages.items():
        lines.append(f"- [{_heading(text, uri)}]({Path(uri).relative_to(RESULTS).as_posix()})")
    return "\n".join(lines) + "\n"
