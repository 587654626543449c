"""The two-dimensional Sonic layers of a saved model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchsonic.explorer.filters import kernel_of
from torchsonic.explorer.knobs import ModeValues
from torchsonic.functional import ModeOperator, Modes
from torchsonic.models import from_pretrained
from torchsonic.nn.conv import SonicConvNd

THUMBNAIL = 48


@dataclass(frozen=True)
class Layer:
    """One layer: its modes, strongest first."""

    name: str
    operator: ModeOperator
    order: tuple[int, ...]
    strength: Tensor
    """``(M,)``: ``|C_m| |B_m|`` times the root of the mode's mean power, limits included."""
    unit: float
    """The layer's own reference spacing."""

    @property
    def modes(self) -> Modes:
        return self.operator.modes

    @property
    def exact(self) -> bool:
        """Whether the layer is the same operator on every grid, so that it can be compared between grids."""
        return self.operator.symmetry == "real"

    @property
    def note(self) -> str:
        """What the page says about the layer, if anything."""
        if not self.exact:
            return (
                "This layer follows the paper's notes: it uses half of the spectrum, with a gain that holds for one "
                "grid only. Its modes are drawn accordingly, on its reference grid. The sliders set exact modes, and "
                "the layer cannot be used as a filter here."
            )
        if self.operator.limits.active:
            return (
                "This layer limits its responses. Its modes are drawn and applied with these limits; modes set by the "
                "sliders have no limits."
            )
        return ""

    def summary(self) -> dict[str, Any]:
        """What the page knows of the layer before it asks."""
        sizes = {"modes": self.num_modes, "inputs": self.inputs, "outputs": self.outputs}
        return {"name": self.name, **sizes, "exact": self.exact, "note": self.note}

    @property
    def num_modes(self) -> int:
        return self.modes.scale.numel()

    @property
    def inputs(self) -> int:
        return self.modes.mix_in.shape[1]

    @property
    def outputs(self) -> int:
        return self.modes.mix_out.shape[0]

    def values(self, index: int) -> ModeValues:
        """The physical parameters of a mode, in the checkpoint's unit of length."""
        down, right = self.modes.direction[index].tolist()
        pole = self.modes.pole[index]
        return ModeValues(
            orientation=math.degrees(math.atan2(-down, right)),
            scale=float(self.modes.scale[index]),
            damping=-float(pole.real),
            oscillation=float(pole.imag),
            transverse=float(self.modes.transverse[index]),
        )

    def thumbnails(self, indices: list[int]) -> Tensor:
        """Kernels of some modes, real part, ``(len(indices), 48, 48)``, a pixel being the layer's reference spacing."""
        chosen = self.operator.select(indices)
        dtype = self.modes.pole.dtype
        each = chosen._replace(
            modes=chosen.modes._replace(
                mix_in=torch.ones(len(indices), 1, dtype=dtype), mix_out=torch.eye(len(indices), dtype=dtype)
            )
        )
        # A larger period than the picture: beams do not come back on the other side.
        around = 4 * THUMBNAIL
        first = (around - THUMBNAIL) // 2
        kept = slice(first, first + THUMBNAIL)
        return kernel_of(each, (around, around), self.unit)[:, kept, kept]


@dataclass(frozen=True)
class Checkpoint:
    """What the page may browse."""

    title: str
    layers: tuple[Layer, ...]


def open_checkpoint(path: Path) -> Checkpoint:
    """Read a folder of ``save_pretrained``, or a run's; one without a two-dimensional Sonic layer is refused."""
    model = from_pretrained(path)
    found = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, SonicConvNd)]
    flat = [(name, layer) for name, layer in found if layer.num_axes == 2]
    if not flat:
        there = "it has no Sonic layer"
        if found:
            there = f"its {len(found)} Sonic layers are {found[0][1].num_axes}-D; torchsonic explain shows those"
        raise ValueError(f"{path}: the explorer shows two-dimensional Sonic layers, but {there}")
    title = "/".join(path.resolve().parts[-3:]).lstrip("/")
    return Checkpoint(title, tuple(_layer(name, layer) for name, layer in flat))


@torch.no_grad()
def _layer(name: str, layer: SonicConvNd) -> Layer:
    name = name or "layer"
    operator = layer.reference_operator().to(torch.float32).check_finite(name)
    modes = operator.modes
    mixing = modes.mix_in.abs().square().sum(1) * modes.mix_out.abs().square().sum(0)
    strength = (mixing * operator.mean_powers(layer.reference_spacing)).sqrt()
    order = tuple(strength.argsort(descending=True).tolist())
    unit = math.prod(layer.reference_spacing) ** (1 / 2)
    return Layer(name, operator, order, strength, unit)
