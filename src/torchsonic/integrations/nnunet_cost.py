"""The cost of a training in nnU-Net, stored next to its checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from torchsonic.io import write_whole

COST_FILE = "cost.json"


def write_cost(
    folder: Path, network: nn.Module, begun: Sequence[float], ended: Sequence[float], device: torch.device
) -> None:
    """Write ``cost.json``: parameters, seconds of all epochs, and PyTorch's peak GPU memory.

    Times are those that nnU-Net logs and keeps in checkpoints, so a resumed training counts as one. Memory is unknown
    (``None``) on devices other than GPUs.

    Parameters
    ----------
    begun, ended
        Seconds since the epoch at which each epoch began and ended.
    """
    path, peak = folder / COST_FILE, None
    if device.type == "cuda":
        before = json.loads(path.read_text(encoding="utf-8"))["peak_bytes"] if path.is_file() else None
        peak = max(torch.cuda.max_memory_reserved(device), before or 0)
    facts = {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "epochs": len(ended),
        "seconds": math.fsum(end - begin for begin, end in zip(begun, ended, strict=False)),
        "peak_bytes": peak,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }
    write_whole(path, json.dumps(facts, indent=1) + "\n")
