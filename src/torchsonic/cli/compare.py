"""``torchsonic compare``: things side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchsonic.cli.command import Command, make_folder, publish


@dataclass(frozen=True, kw_only=True)
class CompareOperators(Command):
    """Measure every operator of the library on the same footing: laws, directions, field, cost; some minutes."""

    out: Path = Path("operators")
    """Folder for the page, its figure and its numbers."""
    quick: bool = False
    """Use small sizes and one draw of weights: under a minute."""

    needs = ("rich", "matplotlib")

    def run(self) -> None:
        import torch
        from rich.console import Console

        from torchsonic.lab.report.operators import Budget, make_page, measure_operators
        from torchsonic.lab.runs.provenance import describe_run

        out = make_folder(self.out)
        run = describe_run(seed=0, device=torch.device("cpu"))
        budget = Budget.quick() if self.quick else Budget()
        with Console(stderr=True).status("measuring") as status:
            measured = measure_operators(budget, say=lambda text: status.update(f"measuring: {text}"))
        publish(make_page(measured, budget, run), out)
