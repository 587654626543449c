"""What all classifiers share: features, pooling, a linear head, and the interface that timm's users know."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar

from torch import Tensor, nn

from torchsonic.arguments import check_samples, choice
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.nn.chain import SpacedSequential, walk
from torchsonic.nn.parameters import mode_parameters
from torchsonic.nn.physical_layer import knows_spacing, refuse_unheard
from torchsonic.spectral.spacing import Spacing

__all__ = ["Classifier", "linear_rates"]


class Classifier(PretrainedModel):
    """Base of the classifiers; ``(B, C, H, W)`` to ``(B, num_classes)``.

    Subclasses build their stages, list them in :meth:`_stages` in the order features are taken, and call
    :meth:`_build_head` last. ``forward``, ``forward_features`` and ``forward_intermediates`` take ``spacing`` if
    ``takes_spacing``.
    """

    takes_spacing: bool
    in_channels: int
    pools: ClassVar[tuple[str, ...]] = ("avg", "max", "")
    num_classes: int
    num_features: int
    feature_info: list[dict[str, Any]]

    def _build_head(
        self, num_features: int, num_classes: int, *, drop_rate: float, global_pool: str, norm: nn.Module | None = None
    ) -> None:
        if not isinstance(num_classes, Integral) or num_classes < 0:
            raise ValueError(f"num_classes must be an integer of at least 0, got {num_classes!r}")
        self.num_features = self.head_hidden_size = num_features
        self.num_classes = num_classes
        self.norm = nn.Identity() if norm is None else norm
        self.global_pool = choice(global_pool, self.pools, "global_pool")
        self.head_drop = nn.Dropout(drop_rate)
        self.fc: nn.Module = nn.Linear(num_features, num_classes) if num_classes > 0 else nn.Identity()
        self._num_kept = len(self._stages())
        self.takes_spacing = knows_spacing(self)

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        """Names of the feature levels with the modules that lead from one to the next."""
        raise NotImplementedError

    def forward_features(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Features of the last stage, ``(B, num_features, h, w)``, normalised if the network does that."""
        check_samples(x, 2, self.in_channels, type(self).__name__)
        refuse_unheard(self, spacing)
        for _, modules in self._stages()[: self._num_kept]:
            for module in modules:
                x, spacing = walk(module, x, spacing)
        return self.norm(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool features and classify them; ``pre_logits`` stops before the linear layer."""
        axes = tuple(range(2, x.dim()))
        if self.global_pool == "avg":
            x = x.mean(axes)
        elif self.global_pool == "max":
            x = x.amax(axes)
        x = self.head_drop(x)
        return x if pre_logits else self.fc(x)

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Logits of images of the given spacing."""
        return self.forward_head(self.forward_features(x, spacing))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
        spacing: Spacing | None = None,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Features at several levels, and the last features unless ``intermediates_only``.

        Parameters
        ----------
        indices
            Levels to return: a number for the last so many, ``None`` for all.
        norm
            Normalise the last level as the head sees it.
        stop_early
            Compute nothing behind the last level asked for.
        """
        choice(output_fmt, ("NCHW",), "output_fmt")
        check_samples(x, 2, self.in_channels, type(self).__name__)
        refuse_unheard(self, spacing)
        taken = self._levels(indices)
        stages, features = self._stages()[: self._num_kept], []
        last = max(taken) if stop_early or intermediates_only else len(stages) - 1
        for level, (_, modules) in enumerate(stages[: last + 1]):
            for module in modules:
                x, spacing = walk(module, x, spacing)
            if level in taken:
                features.append(self.norm(x) if norm and level == len(stages) - 1 else x)
        if intermediates_only:
            return features
        return (self.norm(x) if last == len(stages) - 1 else x), features

    def _levels(self, indices: int | Sequence[int] | None) -> list[int]:
        count = self._num_kept
        if indices is None:
            return list(range(count))
        asked = range(count - indices, count) if isinstance(indices, int) else indices
        if len(asked) == 0 or any(not -count <= level < count for level in asked):
            raise ValueError(f"indices must name some of {count} feature levels, got {indices}")
        return [level % count for level in asked]

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop what lies behind the last level asked for; the model is then for features only. Returns the levels."""
        taken = self._levels(indices)
        for name, _ in self._stages()[max(taken) + 1 :]:
            setattr(self, name, nn.Identity())
        self._num_kept = max(taken) + 1
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return taken

    def get_classifier(self) -> nn.Module:
        """The linear layer that gives the logits."""
        return self.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Put a new head on; 0 classes leave the pooled features."""
        if global_pool is not None:
            self.global_pool = choice(global_pool, self.pools, "global_pool")
            self.arguments["global_pool"] = global_pool
        self.num_classes = self.arguments["num_classes"] = num_classes
        weight = next(self.parameters())
        self.fc = nn.Identity()
        if num_classes > 0:
            self.fc = nn.Linear(self.num_features, num_classes, device=weight.device, dtype=weight.dtype)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the inputs of blocks for the backward pass; recompute the rest."""
        for module in self.modules():
            if isinstance(module, SpacedSequential):
                module.checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that optimisers should not decay: those of the modes."""
        chosen = {id(p) for p in mode_parameters(self)}
        return {name for name, parameter in self.named_parameters() if id(parameter) in chosen}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Patterns that sort parameters by depth, for layer-wise learning rates."""
        raise NotImplementedError

    def init_weights(self) -> None:
        """Kaiming normal for convolutions, small normal for linear layers; operators keep what they drew themselves."""
        _draw_weights(self)


def _draw_weights(module: nn.Module) -> None:
    if getattr(module, "draws_own_weights", False):
        return
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)) and module.bias is not None:
        nn.init.zeros_(module.bias)
    for child in module.children():
        _draw_weights(child)


def linear_rates(last: float, count: int) -> list[float]:
    """Drop rates that grow evenly from 0 at the first block to ``last`` at the last."""
    return [last * index / max(1, count - 1) for index in range(count)]
