"""Runs the probe of initial banks and writes it as a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks.figures import COLOURS, Figure, draw_bars, new_figure
from benchmarks.init_probe import BANKS, MLP_STEPS, probe
from benchmarks.progress import progress_bar
from benchmarks.tables import Table
from torchsonic.lab.runs.provenance import describe_run

__all__ = ["draw_init", "init_tables", "run_init_bench"]

FAR, NEAR = "far: which corners match", "near: the 3 x 3 neighbourhood"


def run_init_bench(modes: Sequence[int], seeds: int) -> dict:
    run = describe_run(seed=0, device=torch.device("cpu"))
    results = []
    with progress_bar("probing", len(modes) * len(BANKS)) as part:
        for num_modes in modes:
            for bank in BANKS:
                done = part(f"{bank.name}, M = {num_modes}", 1.0)
                results.append(probe(bank, num_modes, seeds))
                done(1.0)
    return {"kind": "init", "run": run, "seeds": seeds, "mlp_steps": MLP_STEPS, "banks": results}


def init_tables(result: dict) -> list[Table]:
    def listed(values: list[float], form: str) -> str:
        return ", ".join(f"{v:{form}}" for v in values)

    rows = [
        [r["bank"], str(r["modes"]), listed(r["far"], ".2f"), listed(r["rank"], ".4f"), listed(r["near"], ".2f")]
        for r in result["banks"]
    ]
    notes = [
        f"Far: balanced accuracy of an MLP ({result['mlp_steps']} steps) on 64 frozen features at the centre",
        "of all 625 corner scenes; chance is 0.5. Rank: 16th singular value of those features over the first.",
        "Near: share of variance of the 3 x 3 neighbourhood that a linear map of them explains. One number per draw.",
    ]
    notes = [" ".join(notes)]
    return [Table("Initial banks of modes", ["bank", "modes", "far", "rank", "near"], rows, notes)]


def draw_init(result: dict) -> Figure:
    counts = sorted({r["modes"] for r in result["banks"]})
    figure, panels = new_figure(len(counts), 1, width=11, height=3.6 * len(counts))
    for panel, modes in zip(panels, counts, strict=True):
        chosen = [r for r in result["banks"] if r["modes"] == modes]
        names = [r["bank"].replace(", ", ",\n") for r in chosen]
        mean = {key: [sum(r[key]) / len(r[key]) for r in chosen] for key in ("far", "near")}
        colours = {FAR: COLOURS["sonic"], NEAR: COLOURS["paper_order"]}
        draw_bars(panel, names, {FAR: list(mean["far"]), NEAR: list(mean["near"])}, colours)
        panel.set(title=f"M = {modes}", ylabel="balanced accuracy,\nshare of variance", ylim=(0, 1.05))
        panel.axhline(0.5, color="0.3", linewidth=0.8, linestyle="--")
        panel.tick_params(axis="x", labelsize="small")
    panels[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.1), ncols=2, frameon=False)
    return figure
