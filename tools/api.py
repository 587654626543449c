"""The public names: ``python -m tools.api`` writes them to ``tests/golden/api.txt``, and a test compares.

Public is what the pages in ``docs/api`` show of a module, that is its ``__all__``; models by name; and commands.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from torchsonic import list_models
from torchsonic.cli.table import COMMANDS, Group

__all__ = ["LISTING", "public_names"]

ROOT = Path(__file__).resolve().parents[1]
LISTING = ROOT / "tests" / "golden" / "api.txt"


def public_names() -> list[str]:
    """All names, sorted within their kind."""
    modules = {"torchsonic"}
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        modules |= set(re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE))
    names = sorted(f"{module}.{name}" for module in modules for name in _exported(module))
    commands = []
    for word, entry in COMMANDS.items():
        commands += [f"{word} {member}" for member in entry.members] if isinstance(entry, Group) else [word]
    return [*names, *(f"model {name}" for name in sorted(list_models())), *(f"command {c}" for c in sorted(commands))]


def _exported(module: str) -> list[str]:
    """``__all__`` of a module, read without importing it: it may need packages that are not there."""
    path = ROOT.joinpath("src", *module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return ast.literal_eval(node.value)
    return []


if __name__ == "__main__":
    LISTING.write_text("\n".join(public_names()) + "\n", encoding="utf-8")
    print("written:", LISTING)
