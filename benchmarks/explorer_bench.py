"""How long the explorer takes to answer one move of a slider, from the request to the last byte of its pictures."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.figures import COLOURS, draw_bars, new_figure, save_figure
from benchmarks.progress import progress_bar
from benchmarks.tables import Table, verdict
from torchsonic.evaluation.provenance import describe_run
from torchsonic.explorer import Session, make_server

__all__ = ["draw_explorer", "explorer_tables", "run_explorer_bench"]

GOAL_MS, GOAL_SIZE = 150.0, 256


def run_explorer_bench(sizes: Sequence[int], *, moves: int, seed: int = 0) -> dict:
    """Milliseconds of a move of the orientation at each size of the sampled image; moves are interleaved."""
    run = describe_run(seed=seed, device=torch.device("cpu"))
    server = make_server(Session())
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    wall: dict[int, list[float]] = {size: [] for size in sizes}
    cpu: dict[int, list[float]] = {size: [] for size in sizes}
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    try:
        with progress_bar("turning", moves) as part:
            for move in range(-2, moves):  # two to warm up
                done = part("turning the mode", 1.0)
                for size in sizes:
                    elapsed = _turn(connection, angle=7.0 * move % 180, size=size)
                    if move >= 0:
                        wall[size].append(elapsed[0])
                        cpu[size].append(elapsed[1])
                if move >= 0:
                    done(1.0)
    finally:
        connection.close()
        server.shutdown()
        server.server_close()
    rows = [
        {"size": n, "median": statistics.median(wall[n]), "worst": max(wall[n]), "cpu": statistics.median(cpu[n])}
        for n in sizes
    ]
    return {"kind": "explorer", "run": run, "moves": moves, "rows": rows}


def _turn(connection: http.client.HTTPConnection, *, angle: float, size: int) -> tuple[float, float]:
    """Milliseconds by the clock and of processor time, of the server and of this client together."""
    values = {"orientation": angle, "scale": 8, "damping": 0.5, "oscillation": 3, "transverse": 10}
    request = {"values": values, "image": "shapes", "rows": size, "columns": size, "highest": 0.8, "reach": 64}
    request["show_input"] = False  # the page has it already while a slider of the mode moves
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
        rows.append([f"{row['size']} x {row['size']}", *numbers, verdict(met)])
    note = (
        f"One request at a time, {result['moves']} moves of the orientation, all pictures that change; the browser's "
    )
    note += "own time to draw comes on top."
    headers = ["sampled image", "median ms", "worst ms", "processor ms", f"goal {GOAL_MS:.0f} ms"]
    return [Table("A move of a slider", headers, rows, [note])]


def draw_explorer(result: dict, path: Path) -> None:
    names = [f"{row['size']} x {row['size']}" for row in result["rows"]]
    keys = {"by the clock": "median", "processor": "cpu"}
    series = {title: [row[key] for row in result["rows"]] for title, key in keys.items()}
    figure, (panel,) = new_figure(1, 1, width=7, height=3.6)
    draw_bars(panel, names, series, dict(zip(series, COLOURS.values(), strict=False)))
    panel.axhline(GOAL_MS, color="0.3", linewidth=0.8, linestyle="--")
    panel.set(title="A move of a slider in the explorer", ylabel="milliseconds")
    panel.legend(frameon=False)
    save_figure(figure, path, result["run"])
