"""The vision transformer: its blocks, learned positions that follow the grid, and a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchsonic.arguments import positive
from torchsonic.models.classifier import Classifier, linear_rates
from torchsonic.nn.residual import DropPath
from torchsonic.spectral.spacing import Spacing


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

    Images are padded with zeros to whole patches. Positions are learnt on a ``grid x grid`` lattice and interpolated
    bicubically to any other, as is usual when a transformer changes its resolution.
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


class VisionTransformer(Classifier):
    """Patches, a class token, transformer blocks, a linear head on the token; ``(B, C, H, W)`` to ``(B, num_classes)``.

    Parameters
    ----------
    patch, dim, depth, num_heads, mlp_ratio, qkv_bias
        Size of patches and of the transformer.
    image_size
        Usual size of images, which sets the lattice on which positions are learned.
    global_pool
        ``token`` uses the class token, ``avg`` the mean of the others.

    Examples
    --------
    >>> model = torchsonic.create_model("vit_s16", num_classes=10, depth=1)
    >>> model(torch.randn(1, 3, 64, 90)).shape
    torch.Size([1, 10])

    References
    ----------
    Dosovitskiy et al.: An Image is Worth 16x16 Words (2021).
    """

    pools: ClassVar[tuple[str, ...]] = ("token", "avg", "")
    formats: ClassVar[tuple[str, ...]] = ("NCHW", "NLC")

    def __init__(
        self,
        *,
        in_channels: int = 3,
        num_classes: int = 1000,
        image_size: int = 224,
        patch: int = 16,
        dim: int = 384,
        depth: int = 12,
        num_heads: int = 6,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        global_pool: str = "token",
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        positive(depth, "depth")
        positive(patch, "patch")
        self.tokens = PatchTokens(in_channels, dim, patch, -(-image_size // patch))
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.blocks = nn.ModuleList(
            TransformerBlock(dim, num_heads, mlp_ratio=mlp_ratio, qkv_bias=qkv_bias, drop_path=rate)
            for rate in linear_rates(drop_path_rate, depth)
        )
        self.checkpointing = False
        self.feature_info = [{"num_chs": dim, "reduction": patch, "module": f"blocks.{i}"} for i in range(depth)]
        norm = nn.LayerNorm(dim, eps=1e-6)
        self._build_head(dim, num_classes, drop_rate=drop_rate, global_pool=global_pool, norm=norm)
        self.init_weights()

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        return [(f"blocks.{i}", (block,)) for i, block in enumerate(self.blocks)]

    def _run(
        self, x: Tensor, spacing: Spacing | None, last: int, taken: Sequence[int] = (), norm: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Tokens ``(B, 1 + h w, D)``, the class token first; ``norm`` normalises those of all blocks taken."""
        # The class token has no position of its own: adding one would only move its own initial value.
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), self.tokens(x).flatten(2).mT], dim=1)
        kept = []
        for index, block in enumerate(self.blocks[: last + 1]):
            checkpointing = self.checkpointing and torch.is_grad_enabled()
            x = checkpoint(block, x, use_reentrant=False) if checkpointing else block(x)
            if index in taken:
                kept.append(self.norm(x) if norm else x)
        return x, kept

    def _as_map(self, feature: Tensor, size: Sequence[int], output_fmt: str) -> Tensor:
        """Patches without the class token: ``(B, D, h, w)``, or ``(B, h w, D)`` as "NLC"."""
        lattice = [-(-n // self.tokens.patch) for n in size]
        return feature[:, 1:] if output_fmt == "NLC" else feature[:, 1:].mT.unflatten(2, lattice)

    def _pool(self, x: Tensor) -> Tensor:
        if self.global_pool == "":
            return x
        return x[:, 0] if self.global_pool == "token" else x[:, 1:].mean(1)

    def _drop_behind(self, level: int) -> None:
        self.blocks = self.blocks[: level + 1]

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the inputs of blocks for the backward pass and recompute the rest."""
        self.checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay: positions and the class token."""
        return {"tokens.positions", "class_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return {"stem": r"^tokens|class_token", "blocks": [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))]}
