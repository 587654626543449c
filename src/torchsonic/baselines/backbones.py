"""The baselines as backbones of :class:`torchsonic.models.SynthShapeNet`: ``(B, width, H, W)`` to the same.

Each has the block of the paper's Table 1, whose parameter counts leave little choice of norms and biases.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.arguments import choice
from torchsonic.baselines.gfnet import GFNet
from torchsonic.baselines.niff import NIFF
from torchsonic.baselines.s4nd import S4ND
from torchsonic.baselines.vit import PatchTokens, TransformerBlock
from torchsonic.nn.chain import SpacedSequential
from torchsonic.nn.norm import Activation, Norm, make_activation, make_conv, make_norm
from torchsonic.nn.physical_layer import apply
from torchsonic.spectral.spacing import Spacing

Form = Literal["table", "released"]
"""A block with the parameter count of Table 1, or the block in the script that SONIC's authors released."""


class FilterBlock(nn.Module):
    r"""A depthwise global filter, then channel mixing, with one skip connection around both.

    .. math:: y = \phi(x + \mathrm{MLP}(\mathrm{norm}_2(A\,\mathrm{norm}_1(x))))

    With ``two_paths``, each has its own skip connection; there is no activation by default.
    """

    takes_spacing: ClassVar[bool] = True

    def __init__(
        self,
        filter_: nn.Module,
        mlp: nn.Module,
        width: int,
        *,
        norm: Norm = "group",
        second_norm: bool = False,
        two_paths: bool = False,
        activation: Activation = "none",
    ) -> None:
        super().__init__()
        self.two_paths, self.activation = two_paths, make_activation(activation)
        self.norm1 = make_norm(norm, width, 2)
        self.filter = filter_
        self.norm2 = make_norm(norm if second_norm else "none", width, 2)
        self.mlp = mlp

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        y = apply(self.filter, self.norm1(x), spacing)
        if self.two_paths:
            x = y = x + y
        return self.activation(x + self.mlp(self.norm2(y)))


def _pointwise(width: int, hidden: int, *, bias: bool) -> nn.Module:
    widen = make_conv(width, hidden, spatial_dims=2, bias=bias)
    return nn.Sequential(widen, nn.GELU(), make_conv(hidden, width, spatial_dims=2, bias=bias))


def conv_backbone(width: int, depth: int, *, kernel_size: int = 3, norm: Norm = "group") -> nn.Module:
    """3x3 convolution, GroupNorm, GELU."""
    parts: list[nn.Module] = []
    for _ in range(depth):
        conv = make_conv(width, width, kernel_size, spatial_dims=2)
        parts += [conv, make_norm(norm, width, 2), nn.GELU()]
    return nn.Sequential(*parts)


def gfnet_backbone(
    width: int, depth: int, *, grid: int = 32, mlp_ratio: int = 4, norm: Norm = "group", form: Form = "table"
) -> nn.Module:
    """Norm, learned mask of ``grid x grid``, norm, MLP. As released: two skips, a fixed Gaussian mask."""
    released = choice(form, get_args(Form), "form") == "released"

    def block() -> nn.Module:
        mlp = _pointwise(width, mlp_ratio * width, bias=False)
        mask = GFNet(width, width, grid=grid, initial="gaussian" if released else "noise")
        mask.mask.requires_grad_(not released)  # the script makes masks too late for its optimiser
        return FilterBlock(mask, mlp, width, norm=norm, second_norm=True, two_paths=released)

    return nn.Sequential(*[block() for _ in range(depth)])


def niff_backbone(width: int, depth: int, *, norm: Norm = "group", form: Form = "table", **options: Any) -> nn.Module:
    """Norm, filter from an MLP of frequency, 1x1, GELU, 1x1. As released: by bins, another norm, a final ReLU."""
    released = choice(form, get_args(Form), "form") == "released"
    around: dict[str, Any] = {"second_norm": True, "activation": "relu"} if released else {}

    def block() -> nn.Module:
        filter_ = NIFF(width, width, bins=released, **options)
        return FilterBlock(filter_, _pointwise(width, width, bias=not released), width, norm=norm, **around)

    return nn.Sequential(*[block() for _ in range(depth)])


def s4nd_backbone(width: int, depth: int, *, norm: Norm = "group", **options: Any) -> nn.Module:
    """Norm, state-space filter, GELU, 1x1; takes the spacing."""

    def block() -> nn.Module:
        mix = nn.Sequential(nn.GELU(), make_conv(width, width, spatial_dims=2))
        return FilterBlock(S4ND(width, width, **options), mix, width, norm=norm)

    return SpacedSequential(*[block() for _ in range(depth)])


class VitBackbone(nn.Module):
    """Patches, transformer blocks, LayerNorm, and bilinear interpolation back to the pixels."""

    def __init__(
        self,
        width: int,
        depth: int,
        *,
        patch: int = 8,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        grid: int = 4,
        zero_positions: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = PatchTokens(width, width, patch, grid)
        if zero_positions:  # as released
            nn.init.zeros_(self.tokens.positions)
        self.blocks = nn.Sequential(*[TransformerBlock(width, num_heads, mlp_ratio=mlp_ratio) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def encode(self, tokens: Tensor) -> Tensor:
        """Transformer blocks and the last norm on a lattice of tokens, ``(B, D, h, w)`` to the same."""
        lattice = tokens.shape[2:]
        return self.norm(self.blocks(tokens.flatten(2).mT)).mT.unflatten(2, lattice)

    def forward(self, x: Tensor) -> Tensor:
        size, patch = x.shape[2:], self.tokens.patch
        tokens = self.encode(self.tokens(x))
        whole = F.interpolate(tokens, [patch * n for n in tokens.shape[2:]], mode="bilinear", align_corners=False)
        return whole[..., : size[0], : size[1]]
