"""The parts of vision transformers: blocks, and learned positions that follow the grid."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.nn.residual import DropPath

__all__ = ["PatchTokens", "TransformerBlock"]


class TransformerBlock(nn.Module):
    r"""Pre-norm self-attention and MLP on tokens ``(B, N, D)``.

    .. math:: x \leftarrow x + \mathrm{Attention}(\mathrm{LN}(x)), \qquad x \leftarrow x + \mathrm{MLP}(\mathrm{LN}(x))
    """

    def __init__(
        self, dim: int, num_heads: int, *, mlp_ratio: float = 4.0, qkv_bias: bool = True, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        if dim % num_heads != 0:
            raise ValueError(f"dim must be divisible by num_heads, got {dim} and {num_heads}")
        hidden = round(mlp_ratio * dim)
        self.num_heads = num_heads
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.num_heads, dim // self.num_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(batch, length, dim)
        x = x + self.drop_path(self.proj(attended))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class PatchTokens(nn.Module):
    """Embed patches and add learned positions: ``(B, C, H, W)`` to ``(B, D, h, w)``.

    Images are padded with zeros to whole patches. Positions are learned on a ``grid x grid`` lattice and interpolated
    bicubically to any other, as is usual when the resolution of a transformer changes.
    """

    draws_own_weights: ClassVar[bool] = True

    def __init__(self, in_channels: int, dim: int, patch: int, grid: int) -> None:
        super().__init__()
        self.patch = patch
        self.embed = nn.Conv2d(in_channels, dim, patch, stride=patch)
        self.positions = nn.Parameter(torch.empty(1, dim, grid, grid))
        nn.init.trunc_normal_(self.positions, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        return self.place(self.embed(F.pad(x, (0, -width % self.patch, 0, -height % self.patch))))

    def place(self, tokens: Tensor) -> Tensor:
        """Add positions to embedded patches, ``(B, D, h, w)``."""
        if tokens.shape[2:] == self.positions.shape[2:]:
            return tokens + self.positions
        return tokens + F.interpolate(self.positions, tokens.shape[2:], mode="bicubic", align_corners=False)
