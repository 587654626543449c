"""The vision transformer as a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchsonic.arguments import check_samples, choice, positive
from torchsonic.baselines.transformer import PatchTokens, TransformerBlock
from torchsonic.models.classifier import Classifier, linear_rates

__all__ = ["VisionTransformer"]


class VisionTransformer(Classifier):
    """Patches, a class token, transformer blocks, a linear head on the token; ``(B, C, H, W)`` to ``(B, num_classes)``.

    Parameters
    ----------
    patch, dim, depth, num_heads, mlp_ratio, qkv_bias
        Size of patches and of the transformer.
    image_size
        Usual size of images: the lattice on which positions are learnt.
    global_pool
        ``token`` reads the class token, ``avg`` the mean of the others.

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
        self._build_head(
            dim, num_classes, drop_rate=drop_rate, global_pool=global_pool, norm=nn.LayerNorm(dim, eps=1e-6)
        )
        self.init_weights()

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        return [(f"blocks.{i}", (block,)) for i, block in enumerate(self.blocks)]

    def _run(self, x: Tensor, taken: Sequence[int], last: int) -> tuple[Tensor, list[Tensor], tuple[int, int]]:
        """Tokens behind block ``last``, those behind the blocks taken, and the lattice of patches."""
        check_samples(x, 2, self.in_channels, type(self).__name__)
        x = self.tokens(x)
        lattice = (x.shape[2], x.shape[3])
        # The class token has no position of its own: adding one would only move its own initial value.
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x.flatten(2).mT], dim=1)
        kept = []
        for index, block in enumerate(self.blocks[: last + 1]):
            checkpointing = self.checkpointing and torch.is_grad_enabled()
            x = checkpoint(block, x, use_reentrant=False) if checkpointing else block(x)
            if index in taken:
                kept.append(x)
        return x, kept, lattice

    def forward_features(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Normalised tokens ``(B, 1 + h w, D)``, the class token first."""
        return self.norm(self._run(x, (), self._num_kept - 1)[0])

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Read the class token or the mean of the patches, and classify."""
        if self.global_pool == "token":
            x = x[:, 0]
        elif self.global_pool == "avg":
            x = x[:, 1:].mean(1)
        x = self.head_drop(x)
        return x if pre_logits else self.fc(x)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Logits of images."""
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(  # type: ignore[override]
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Patch features behind several blocks, ``(B, D, h, w)`` or ``(B, h w, D)`` with ``output_fmt="NLC"``."""
        choice(output_fmt, ("NCHW", "NLC"), "output_fmt")
        taken = self._levels(indices)
        last = max(taken) if stop_early or intermediates_only else self._num_kept - 1
        x, kept, lattice = self._run(x, taken, last)
        features = [(self.norm(tokens) if norm else tokens)[:, 1:] for tokens in kept]
        if output_fmt == "NCHW":
            features = [tokens.mT.reshape(tokens.shape[0], -1, *lattice) for tokens in features]
        if intermediates_only:
            return features
        return (self.norm(x) if last == self._num_kept - 1 else x), features

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        taken = self._levels(indices)
        self._num_kept = max(taken) + 1
        self.blocks = self.blocks[: self._num_kept]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return taken

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the inputs of blocks for the backward pass; recompute the rest."""
        self.checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that optimisers should not decay: positions and the class token."""
        return {"tokens.positions", "class_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return {"stem": r"^tokens|class_token", "blocks": [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))]}
