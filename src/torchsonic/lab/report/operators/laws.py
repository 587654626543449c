"""How far an operator is from the laws of convolution on continuous images, as relative errors in float64."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchsonic.lab.report.operators.contenders import Contender
from torchsonic.lab.report.operators.fields import SWAP, TURN, lattice_field, local_field, turn_field
from torchsonic.lab.report.operators.turning import turned
from torchsonic.nn.physical_layer import apply

SIZE, CHANNELS = 40, 4
EXACT = 1e-3
"""Smaller errors count as zero: rounding, and what fields and nonlinear outputs have beyond the Nyquist frequency."""
LAWS = {
    "shift": "shifting the image shifts the output",
    "axes": "swapping the axes of image and operator swaps those of the output",
    "finer, told": "sampling the same field twice as finely gives the same output if the operator is given the spacing",
    "finer, not told": "the same if the operator is not given the spacing",
    "larger": "extending the image at the same pixel size does not change the output",
    "turned": "rotating image and operator by 53 degrees rotates the output",
    "turned, not told": "rotating only the image rotates the output",
}
TITLES = {
    "shift": "shift",
    "axes": "swapped axes",
    "finer, told": "finer grid, spacing given",
    "finer, not told": "finer grid, spacing not given",
    "larger": "larger image",
    "turned": "image and operator rotated",
    "turned, not told": "only image rotated",
}
"""Names of the laws on the page."""
SHIFT, MARGIN = (2, 3), 8


def _error(found: Tensor, expected: Tensor) -> float:
    """Error in the middle of the image, away from what a shift brings in, relative to what varies over it."""
    inside = (..., slice(MARGIN, -MARGIN), slice(MARGIN, -MARGIN))
    varying = expected[inside] - expected[inside].mean((-2, -1), keepdim=True)
    return float((found[inside] - expected[inside]).norm() / varying.norm())


def build_exactly(contender: Contender, seed: int) -> nn.Module:
    """The operator in float64, in evaluation, with weights of its own seed."""
    torch.manual_seed(seed)
    return contender.build(CHANNELS, SIZE).double().eval().requires_grad_(False)


def law_errors(contender: Contender, *, seed: int = 0) -> dict[str, float | None]:
    """The relative error of each law of ``LAWS``; ``None`` if the operator cannot be given the spacing, or rotated."""
    layer = build_exactly(contender, seed)
    x = local_field(SIZE, CHANNELS, seed=seed)
    y = layer(x)
    swapped = turned(layer, SWAP)
    assert swapped is not None
    fine = local_field(2 * SIZE, CHANNELS, seed=seed)
    told = getattr(layer, "takes_spacing", False)
    return {
        "shift": _error(layer(x.roll(SHIFT, (2, 3))), y.roll(SHIFT, (2, 3))),
        "axes": _error(swapped(x.mT), y.mT),
        "finer, told": _error(apply(layer, fine, 0.5)[..., ::2, ::2], y) if told else None,
        "finer, not told": _error(layer(fine)[..., ::2, ::2], y),
        "larger": _larger(contender, layer, x, y),
        **_turned_errors(layer, seed),
    }


def _larger(contender: Contender, layer: nn.Module, x: Tensor, y: Tensor) -> float:
    """Extends the image as the operator itself does: repeated if it wraps around, zeros if it pads with zeros."""
    if contender.boundary == "zeros":
        half = SIZE // 2
        wide = torch.nn.functional.pad(x, (half,) * 4)
        return _error(layer(wide)[..., half:-half, half:-half], y)
    return _error(layer(x.tile(2, 2))[..., :SIZE, :SIZE], y)


def _turned_errors(layer: nn.Module, seed: int) -> dict[str, float | None]:
    x = lattice_field(SIZE, CHANNELS, seed=seed)
    expected, moved = turn_field(layer(x)), turn_field(x)
    other = turned(layer, TURN)
    return {
        "turned": None if other is None else _error(other(moved), expected),
        "turned, not told": _error(layer(moved), expected),
    }


def takes_other_sizes(contender: Contender) -> bool:
    """Whether an operator built for one size runs at odd, unequal and much larger ones."""
    layer = build_exactly(contender, 0)
    try:
        for size in ((SIZE + 1, SIZE - 3), (3 * SIZE, SIZE // 2)):
            y = layer(torch.zeros(1, CHANNELS, *size, dtype=torch.float64))
            if tuple(y.shape[2:]) != size:
                return False
    except (RuntimeError, ValueError):
        return False
    return True
