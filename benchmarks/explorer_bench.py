"""How long the explorer takes to answer one move, from the request to the last byte of its pictures."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.figures import COLOURS, Figure, draw_bars, new_figure
from benchmarks.progress import progress_bar
from benchmarks.tables import Table, verdict
from torchsonic.explorer import Session, make_server, open_checkpoint
from torchsonic.explorer.checkpoint import Checkpoint
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.models import SonicLayers

__all__ = ["draw_explorer", "explorer_tables", "run_explorer_bench"]

GOAL_MS, GOAL_SIZE = 150.0, 256
LAYER_MODES = 64
MOVES = {
    "mode": "one mode, turned",
    "bank": "bank of 8, turned",
    "layer": f"trained layer of {LAYER_MODES} modes, other channels",
    "grid": "one mode, another grid",
}
CHANNELS = 8


def run_explorer_bench(sizes: Sequence[int], *, moves: int, seed: int = 0) -> dict:
    """Milliseconds of each kind of move at each size of the sampled image; moves are interleaved."""
    run = describe_run(seed=seed, device=torch.device("cpu"))
    server = make_server(Session(_checkpoint(seed)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    entries = [(kind, size) for kind in MOVES for size in sizes]
    wall: dict[tuple[str, int], list[float]] = {entry: [] for entry in entries}
    cpu: dict[tuple[str, int], list[float]] = {entry: [] for entry in entries}
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    try:
        with progress_bar("turning", moves) as part:
            for move in range(-2, moves):  # two to warm up
                done = part("moving", 1.0)
                for entry in entries:
                    if entry[0] == "grid":  # the filter is known already
                        _ask(connection, _request("grid", move - 1, entry[1]))
                    elapsed = _ask(connection, _request(entry[0], move, entry[1]))
                    if move >= 0:
                        wall[entry].append(elapsed[0])
                        cpu[entry].append(elapsed[1])
                if move >= 0:
                    done(1.0)
    finally:
        connection.close()
        server.shutdown()
        server.server_close()
    rows = [
        {
            "move": kind,
            "size": size,
            "median": statistics.median(wall[kind, size]),
            "worst": max(wall[kind, size]),
            "cpu": statistics.median(cpu[kind, size]),
        }
        for kind, size in entries
    ]
    return {"kind": "explorer", "run": run, "moves": moves, "rows": rows}


def _checkpoint(seed: int) -> Checkpoint:
    """One untrained layer; how long it takes does not depend on its numbers."""
    torch.manual_seed(seed)
    arguments = {"in_channels": CHANNELS, "out_channels": CHANNELS, "num_modes": LAYER_MODES, "spatial_dims": 2}
    with TemporaryDirectory() as folder:
        return open_checkpoint(SonicLayers({"layer": arguments}).save_pretrained(folder))


def _request(kind: str, move: int, size: int) -> dict[str, Any]:
    """What the page asks after a move."""
    angle = 30.0 if kind == "grid" else 7.0 * move % 180
    values = {"orientation": angle, "scale": 8, "damping": 0.5, "oscillation": 3, "transverse": 10}
    request = {"values": values, "image": "shapes", "rows": size, "columns": size, "highest": 0.8, "reach": 64}
    request["filter"] = "mode" if kind == "grid" else kind
    if kind == "grid":  # of nearly the same size
        request["columns"] = max(48, size - move % 2)
    elif kind == "layer":
        request.update(layer=0, input=move % CHANNELS, output=0)
    request["show_input"] = kind == "grid"  # else the page has it already
    return request


def _ask(connection: http.client.HTTPConnection, request: dict[str, Any]) -> tuple[float, float]:
    """Milliseconds by the clock and of processor time, of the server and of this client together."""
    start, used = time.perf_counter(), time.process_time()
    connection.request("POST", "/api/view", json.dumps(request), {"X-Torchsonic": "1"})
    answer = connection.getresponse()
    body = answer.read()
    elapsed = 1000 * (time.perf_counter() - start), 1000 * (time.process_time() - used)
    if answer.status != 200:
        raise RuntimeError(f"the explorer answered {answer.status}: {body[:200]!r}")
    return elapsed


def explorer_tables(result: dict) -> list[Table]:
    rows = []
    for row in result["rows"]:
        met = row["median"] <= GOAL_MS if row["size"] == GOAL_SIZE else None
        numbers = [f"{row[name]:.0f}" for name in ("median", "worst", "cpu")]
        rows.append([MOVES[row["move"]], f"{row['size']} x {row['size']}", *numbers, verdict(met)])
    note = f"One request at a time, {result['moves']} moves of each kind, with all pictures that change, excluding the "
    note += "browser's time to draw them. A change of the grid also changes the picture of the image."
    headers = ["move", "sampled image", "median ms", "worst ms", "processor ms", f"goal {GOAL_MS:.0f} ms"]
    return [Table("A move", headers, rows, [note], left=2)]


def draw_explorer(result: dict) -> Figure:
    names = [f"{row['move']}\n{row['size']}" for row in result["rows"]]
    keys = {"wall clock": "median", "processor": "cpu"}
    series = {title: [row[key] for row in result["rows"]] for title, key in keys.items()}
    figure, (panel,) = new_figure(1, 1, width=max(7, 0.75 * len(names)), height=3.6)
    draw_bars(panel, names, series, dict(zip(series, COLOURS.values(), strict=False)))
    panel.axhline(GOAL_MS, color="0.3", linewidth=0.8, linestyle="--")
    panel.set(title="Time of a move in the explorer, by filter and pixels per side", ylabel="milliseconds")
    panel.legend(frameon=False)
    return figure
