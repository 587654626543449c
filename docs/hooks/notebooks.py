"""MkDocs hook: the pages under "Notebooks" are those of `notebooks/`, with the outputs that are stored in them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FOLDER = "notebooks"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append the notebooks to the navigation, each under its own heading."""
    entries = [{_heading(path): f"{FOLDER}/{path.stem}.md"} for path in _notebooks(config)]
    config.nav = [*(config.nav or []), {"Notebooks": entries}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and its pictures."""
    for path in _notebooks(config):
        text, pictures = to_markdown(json.loads(path.read_text(encoding="utf-8")), path.stem)
        files.append(File.generated(config, f"{FOLDER}/{path.stem}.md", content=text))
        for name, data in pictures.items():
            files.append(File.generated(config, f"{FOLDER}/{name}", content=data))
    return files


def to_markdown(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and the pictures that it shows."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                file = f"{name}-{len(pictures)}.png"
                pictures[file] = base64.b64decode(data["image/png"])
                parts.append(f"![What the cell draws]({file})")
            else:
                shown = "".join(output.get("text") or data["text/plain"]).rstrip("\n")
                parts.append(f"```text\n{shown}\n```")
    return "\n\n".join([*parts, f"Open `{FOLDER}/{name}.ipynb` in Jupyter to run this page."]) + "\n", pictures


def _notebooks(config: MkDocsConfig) -> list[Path]:
    return sorted((Path(config.config_file_path).parent / FOLDER).glob("*.ipynb"))


def _heading(path: Path) -> str:
    first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"][0]
    if not first.startswith("# "):
        raise ValueError(f"{path} has no heading; begin it with '# What it shows'")
    return first.removeprefix("# ").strip()
