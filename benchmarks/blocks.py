"""The three blocks of the paper's runtime-and-memory figure; each maps ``(B, C, H, W)`` images."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic import SonicConv2d

__all__ = ["TransformerBlock", "conv_block", "sonic_block"]

NUM_GROUPS = 8
PATCH = 4
NUM_HEADS = 4
MLP_RATIO = 4


class ResidualBlock(nn.Module):
    """``ReLU(GroupNorm(operator(x)) + x)``."""

    def __init__(self, operator: nn.Module, channels: int) -> None:
        super().__init__()
        self.operator = operator
        self.norm = nn.GroupNorm(NUM_GROUPS, channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.operator(x)) + x)


def sonic_block(channels: int, modes: int, *, recompute: bool = False) -> nn.Module:
    return ResidualBlock(SonicConv2d(channels, channels, modes, bias=False, recompute=recompute), channels)


def conv_block(channels: int) -> nn.Module:
    return ResidualBlock(nn.Conv2d(channels, channels, 3, padding=1, bias=False), channels)


class TransformerBlock(nn.Module):
    """Embedding of 4x4 patches and one pre-norm transformer block on ``(H/4)(W/4)`` tokens of C features.

    Returns the tokens; they are not spread over the pixels again, in the block's favour.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, channels, PATCH, stride=PATCH)
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.project = nn.Linear(channels, channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, MLP_RATIO * channels), nn.GELU(), nn.Linear(MLP_RATIO * channels, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).mT
        batch, length, channels = tokens.shape
        qkv = self.qkv(self.norm1(tokens)).view(batch, length, 3, NUM_HEADS, channels // NUM_HEADS)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.project(attended.transpose(1, 2).reshape(batch, length, channels))
        return tokens + self.mlp(self.norm2(tokens))
