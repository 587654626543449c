"""Runs the cells of a notebook in this process; ``python -m tests.notebooks.run`` stores what they show.

A notebook is JSON, so this needs no Jupyter. Like it, a cell shows what it prints, the figures it opened and its last
expression; lines that begin with ``%`` are for Jupyter alone.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import torch

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DPI = 70


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of a fresh run; an error names the cell."""
    matplotlib.use("agg")
    plt.close("all")
    notebook, names = read(path), {"__name__": "__main__"}
    for count, cell in enumerate(code_cells(notebook), start=1):
        cell["execution_count"] = count
        cell["outputs"] = _run_cell("".join(cell["source"]), names, f"{path.name}, cell {count}", count)
    return notebook


def _run_cell(source: str, names: dict[str, Any], title: str, count: int) -> list[dict[str, Any]]:
    lines = ["" if line.startswith("%") else line for line in source.splitlines()]
    tree, last, value = ast.parse("\n".join(lines), title), None, None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, title, "exec"), names)
        if last is not None:
            value = eval(compile(last, title, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
    if value is not None:
        shown = _picture(value) if hasattr(value, "savefig") else {"text/plain": [repr(value)]}
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": shown})
    for number in plt.get_fignums():
        outputs.append({"output_type": "display_data", "metadata": {}, "data": _picture(plt.figure(number))})
    plt.close("all")
    return outputs


def _picture(figure: Any) -> dict[str, Any]:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return {"image/png": base64.b64encode(buffer.getvalue()).decode() + "\n", "text/plain": ["<Figure>"]}


def main() -> None:
    torch.set_num_threads(1)
    for path in NOTEBOOKS:
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        start = time.perf_counter()
        text = json.dumps(run(path), indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
        print(f"written: {path}, {time.perf_counter() - start:.0f} s, {len(text) / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
