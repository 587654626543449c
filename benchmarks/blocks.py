"""The three blocks of the paper's runtime-and-memory figure; each maps ``(B, C, H, W)`` images."""

from __future__ import annotations

from torch import Tensor, nn

from torchsonic.baselines.vit import TransformerBlock
from torchsonic.nn import ResidualBlock, SonicBlock

__all__ = ["conv_block", "sonic_block", "transformer_block"]

PATCH = 4
NUM_HEADS = 4


def sonic_block(channels: int, modes: int, *, recompute: bool = False) -> nn.Module:
    return SonicBlock(channels, channels, num_modes=modes, execution={"recompute": recompute})


def conv_block(channels: int) -> nn.Module:
    def conv(in_channels: int, out_channels: int, stride: int) -> nn.Module:
        return nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)

    return ResidualBlock(conv, channels, channels)


class _Tokens(nn.Module):
    """Embedding of patches: ``(B, C, H, W)`` to ``(B, (H / 4)(W / 4), C)``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, channels, PATCH, stride=PATCH)

    def forward(self, x: Tensor) -> Tensor:
        return self.embed(x).flatten(2).mT


def transformer_block(channels: int) -> nn.Module:
    """Embedding of 4x4 patches and one pre-norm transformer block on ``(H/4)(W/4)`` tokens of C features.

    Returns the tokens; they are not spread over the pixels again, in the block's favour.
    """
    return nn.Sequential(_Tokens(channels), TransformerBlock(channels, NUM_HEADS))
