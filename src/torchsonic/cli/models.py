"""``torchsonic models``: the registered models and what they cost."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torchsonic.cli.command import UserError, make_folder, require
from torchsonic.lab.report.catalogue import CatalogueRow, catalogue_table, marked_table, put_table
from torchsonic.lab.report.console import print_table

__all__ = ["Models"]


@dataclass(frozen=True, kw_only=True)
class Models:
    """List the registered models with their parameters and FLOPs, beside the paper's."""

    positional: ClassVar[tuple[str, ...]] = ("pattern",)

    pattern: str = "*"
    """Shell pattern of names, for example 'resnet50_*'."""
    out: Path | None = None
    """Markdown file whose table to renew; the text round the table stays."""
    flops: bool = True
    """Leave the FLOPs out, which take a few seconds to count."""

    def run(self) -> None:
        require("rich", "cli")
        from torchsonic.models import list_models

        names = list_models(self.pattern)
        if not names:
            raise UserError(f"no model matches {self.pattern!r}; run: torchsonic models, without a pattern, for all")
        text = None if self.out is None else _read(self.out)
        rows = _count(names, flops=self.flops)
        print_table(catalogue_table(rows))
        if self.out is not None and text is not None:
            self.out.write_text(put_table(text, marked_table(rows, self._command())), encoding="utf-8")
            print("written:", self.out)

    def _command(self) -> str:
        words = ["torchsonic", "models", *([self.pattern] if self.pattern != "*" else [])]
        words += ["--out", str(self.out)] + ([] if self.flops else ["--no-flops"])
        return shlex.join(words)


def _read(path: Path) -> str:
    """The text that is to hold the table, checked before minutes of work are spent on that."""
    if not path.exists():
        make_folder(path.parent)
        return f"# Models\n\n{marked_table([], '')}\n"
    try:
        text = path.read_text(encoding="utf-8")
        put_table(text, "")
    except (OSError, ValueError) as error:
        raise UserError(f"--out {path}: {error}") from error
    return text


def _count(names: Sequence[str], *, flops: bool) -> list[CatalogueRow]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return [_row(name, flops=flops) for name in track(names, description="counting", console=console, transient=True)]


def _row(name: str, *, flops: bool) -> CatalogueRow:
    import torch

    from torchsonic.lab.metrics import count_flops, count_parameters, paper_cost
    from torchsonic.models import create_model, model_entry

    entry, _ = model_entry(name)
    model = create_model(name)
    number = None
    if flops:  # on a device that computes nothing: a pass through the largest takes minutes and all memory
        number = count_flops(model.to("meta"), torch.empty(1, *entry.input_size, device="meta"))
    row = entry.paper.get(name.partition(".")[2])
    paper = paper_cost(row, entry.task, len(entry.input_size) - 1)
    return CatalogueRow(name, entry.task, entry.input_size, count_parameters(model), number, paper)
