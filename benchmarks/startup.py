"""What a fresh process waits for before it computes: imports and the first call of a layer."""

from __future__ import annotations

import json
import os
import subprocess
import sys

__all__ = ["measure_startup"]

CODE = """
import json, time
marks = [time.perf_counter()]
mark = lambda: marks.append(time.perf_counter())
import torch; mark()
import torchsonic; mark()
layer, x = torchsonic.SonicConv2d(64, 64, num_modes=16, bias=False), torch.randn(1, 64, 64, 64); mark()
layer(x).sum().backward(); mark()
layer(x).sum().backward(); mark()
steps = [after - before for before, after in zip(marks, marks[1:])]
print(json.dumps(dict(import_torch=steps[0], import_torchsonic=steps[1], first_step=steps[3], second_step=steps[4])))
"""


def measure_startup(repeats: int) -> dict[str, float]:
    """Seconds, each the best of several processes, the first of which only warms the system's file cache."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    runs = [
        json.loads(
            subprocess.run([sys.executable, "-c", CODE], env=environment, check=True, capture_output=True).stdout
        )
        for _ in range(repeats + 1)
    ][1:]
    return {name: min(run[name] for run in runs) for name in runs[0]}
