"""Numbers of the operator that no change of its execution may move: one case each for what it can be told.

``python -m tests.functional.goldens`` writes them anew, for a change of the operator itself.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.functional import ModeShape, ResponseLimits, spectral_conv

STORED = Path(__file__).parents[1] / "golden" / "operator.json"
SIZES = {1: ((10,), (7,)), 2: ((6, 7), (8, 4)), 3: ((4, 3, 6), (3, 5, 4))}
LIMITS = {"none": ResponseLimits(), "band": ResponseLimits(2, 0.0, False), "both": ResponseLimits(1, 1.5, True)}
BATCH, CHANNELS, OUT_CHANNELS, MODES = 3, 2, 3, 5


class Case(NamedTuple):
    num_axes: int
    padding_mode: str
    symmetry: str
    limits: str
    per_sample: bool
    resized: bool

    @property
    def name(self) -> str:
        return "-".join(map(str, self))


CASES = [
    Case(*choice)
    for choice in product(
        SIZES, ("circular", "zeros", "reflect"), ("real", "half"), LIMITS, (False, True), (False, True)
    )
    if choice[0] == 2 or (choice[3] != "band" and choice[4] == choice[5])
]


def waves(*shape: int, phase: float) -> Tensor:
    """Numbers in [-1, 1] without a random generator."""
    index = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return torch.sin(phase + 0.7 * index + 0.013 * index.square()).reshape(shape)


def evaluate(case: Case, *, dtype=torch.float64, **execution) -> dict[str, Tensor]:
    """Output and all gradients of one case."""
    size, other = SIZES[case.num_axes]
    groups = BATCH if case.per_sample else 1
    raw = {
        "x": waves(BATCH, CHANNELS, *size, phase=0.1),
        "mix_in": waves(MODES, 2, CHANNELS, phase=0.2),
        "mix_out": waves(OUT_CHANNELS, MODES, 2, phase=0.3),
        "direction": torch.nn.functional.normalize(waves(1, MODES, case.num_axes, phase=0.4) + 0.1, dim=-1),
        "scale": 1.5 + waves(1, MODES, phase=0.5),
        "damping": 0.6 + 0.4 * waves(1, MODES, phase=0.6),
        "oscillation": waves(1, MODES, phase=0.7),
        "transverse": 1.1 + waves(1, MODES, phase=0.8),
        "gain": 1.2 + 0.5 * waves(groups, MODES, phase=0.9),
        "bias": waves(OUT_CHANNELS, phase=1.0),
    }
    if LIMITS[case.limits].band_order:
        raw["cutoff"] = 1.6 + waves(1, MODES, phase=1.1)
    given = {name: value.to(dtype).requires_grad_() for name, value in raw.items()}
    spacing = 1.0 + 0.3 * waves(groups, case.num_axes, phase=1.2)
    names = ("direction", "scale", "damping", "oscillation", "transverse", "gain", "cutoff")
    y = spectral_conv(
        given["x"],
        given["mix_in"],
        given["mix_out"],
        ModeShape(*[given.get(name) for name in names]),  # type: ignore[arg-type]
        given["bias"],
        spacing=spacing,
        output_size=other if case.resized else None,
        padding_mode=case.padding_mode,  # type: ignore[arg-type]
        symmetry=case.symmetry,  # type: ignore[arg-type]
        limits=LIMITS[case.limits],
        execution=execution,
    )
    y.backward(waves(*y.shape, phase=1.3).to(dtype))
    return {"y": y.detach(), **{name: value.grad for name, value in given.items()}}  # type: ignore[dict-item]


def summarise(found: dict[str, Tensor]) -> dict[str, list[float]]:
    """Two numbers of each tensor that see all of its entries."""
    return {
        name: [(value * waves(*value.shape, phase=1.4)).sum().item(), value.norm().item()]
        for name, value in found.items()
    }


if __name__ == "__main__":
    STORED.write_text(json.dumps({case.name: summarise(evaluate(case)) for case in CASES}, indent=0) + "\n")
