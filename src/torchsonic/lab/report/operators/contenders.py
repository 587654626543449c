"""The operators that are compared, and their groups in the paper's first figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from torchsonic.baselines.backbones import VitBackbone
from torchsonic.models.registry import OPERATORS

PLACES = (
    "Spatial domain",
    "Spectral domain, discrete grid",
    "Spectral domain, continuous, unstructured",
    "Spectral domain, continuous, structured",
)
PATCH = 8
"""Of the transformer block."""


@dataclass(frozen=True)
class Contender:
    """An operator in the comparison, with random weights and without a residual connection."""

    name: str
    place: str
    """One of ``PLACES``."""
    operator: str
    """Of the registry; ``"vit"`` for a block of a vision transformer."""
    boundary: Literal["circular", "zeros", "none"]
    """What surrounds the image; ``"none"`` if positions do not matter."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self, channels: int, size: int) -> nn.Module:
        """The operator on as many channels in as out, for images of the given size."""
        if self.operator == "vit":
            return VitBackbone(channels, 1, patch=PATCH, num_heads=2, grid=size // PATCH)
        return OPERATORS[self.operator](channels, channels, 1, grid=size, **self.options)


SPATIAL, DISCRETE, UNSTRUCTURED, STRUCTURED = PLACES
CONTENDERS = (
    Contender("3x3 convolution", SPATIAL, "conv", "zeros"),
    Contender("dilated convolution", SPATIAL, "dilated", "zeros"),
    Contender("RepLK, 31x31", SPATIAL, "replk", "zeros", {"pointwise": True}),
    Contender("non-local block", SPATIAL, "non_local", "none", {"skip": False}),
    Contender("A2 double attention", SPATIAL, "double_attention", "none", {"skip": False}),
    Contender("ViT block", SPATIAL, "vit", "zeros"),
    Contender("spectral CNN", DISCRETE, "spectral_cnn", "zeros"),
    Contender("GFNet", DISCRETE, "gfnet", "circular", {"pointwise": True}),
    Contender("FNO", DISCRETE, "fno", "circular", {"pointwise": False}),
    Contender("NIFF", UNSTRUCTURED, "niff", "circular", {"pointwise": True}),
    Contender("continuous FNO", UNSTRUCTURED, "continuous_fno", "circular"),
    Contender("SNO", STRUCTURED, "sno", "circular"),
    Contender("S4ND", STRUCTURED, "s4nd", "zeros", {"pointwise": True}),
    Contender("SONIC, paper's notes", STRUCTURED, "sonic", "circular", {"variant": "paper"}),
    Contender("SONIC", STRUCTURED, "sonic", "circular"),
    Contender("SONIC + local 3x3", STRUCTURED, "hybrid", "circular"),
)
