"""The vision transformer as a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchsonic.arguments import positive
from torchsonic.baselines.transformer import PatchTokens, TransformerBlock
from torchsonic.models.classifier import Classifier, linear_rates
from torchsonic.spectral.spacing import Spacing

__all__ = ["VisionTransformer"]


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
