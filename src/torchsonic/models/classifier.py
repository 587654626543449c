"""What all classifiers share: features, pooling, a linear head, and the interface that timm users know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar

from torch import Tensor, nn

from torchsonic.arguments import check_samples, choice
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.models.reference_grid import run_per_grid
from torchsonic.models.stem import SonicStem
from torchsonic.nn.chain import SpacedSequential, walk
from torchsonic.nn.network_spacing import sonic_layers
from torchsonic.nn.parameters import mode_parameters
from torchsonic.nn.physical_layer import knows_spacing, refuse_unheard
from torchsonic.nn.released_init import spread_over_depth
from torchsonic.spectral.orientation import Matrix
from torchsonic.spectral.spacing import Spacing


class Classifier(PretrainedModel):
    """Base class of the classifiers; ``(B, C, H, W)``, or ``(B, C, L)`` for signals, to ``(B, num_classes)``.

    Subclasses build their stages, list them in :meth:`_stages` in the order of feature levels, and call
    :meth:`_build_head` last. ``forward``, ``forward_features`` and ``forward_intermediates`` take ``spacing`` if
    ``takes_spacing``.
    """

    takes_spacing: bool
    in_channels: int
    num_axes: int = 2
    pools: ClassVar[tuple[str, ...]] = ("avg", "max", "")
    formats: ClassVar[tuple[str, ...]] = ("NCHW",)
    num_classes: int
    num_features: int
    feature_info: list[dict[str, Any]]

    def _build_head(
        self, num_features: int, num_classes: int, *, drop_rate: float, global_pool: str, norm: nn.Module | None = None
    ) -> None:
        if not isinstance(num_classes, Integral) or num_classes < 0:
            raise ValueError(f"num_classes must be an integer >= 0, got {num_classes!r}")
        self.num_features = self.head_hidden_size = num_features
        self.num_classes = num_classes
        self.norm = nn.Identity() if norm is None else norm
        self.global_pool = choice(global_pool, self.pools, "global_pool")
        self.head_drop = nn.Dropout(drop_rate)
        self.fc: nn.Module = nn.Linear(num_features, num_classes) if num_classes > 0 else nn.Identity()
        self._num_kept = len(self._stages())
        self.takes_spacing = knows_spacing(self)

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        """Names of the feature levels, with the modules that lead from one to the next."""
        raise NotImplementedError

    def _run(
        self, x: Tensor, spacing: Spacing | None, last: int, taken: Sequence[int] = (), norm: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Features after level ``last`` and those of the requested levels; ``norm`` normalises the network's last."""
        kept = []
        for level, (_, modules) in enumerate(self._stages()[: last + 1]):
            for module in modules:
                x, spacing = walk(module, x, spacing)
            if level in taken:
                kept.append(self.norm(x) if norm and level == self._num_kept - 1 else x)
        return x, kept

    def _check(self, x: Tensor, spacing: Spacing | None) -> None:
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)
        refuse_unheard(self, spacing)

    def forward_features(
        self, x: Tensor, spacing: Spacing | None = None, *, orientation: Matrix | None = None, affine=None
    ) -> Tensor:
        """Features of the last stage, ``(B, num_features, h, w)``, after the final norm if the network has one."""
        return self._oriented(self._features, x, spacing, orientation=orientation, affine=affine)

    def _features(self, x: Tensor, spacing: Spacing | None) -> Tensor:
        self._check(x, spacing)
        return self.norm(self._run(x, spacing, self._num_kept - 1)[0])

    def _pool(self, x: Tensor) -> Tensor:
        if self.global_pool == "":
            return x
        axes = tuple(range(2, x.dim()))
        return x.mean(axes) if self.global_pool == "avg" else x.amax(axes)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool features and classify them; ``pre_logits`` stops before the linear layer."""
        x = self.head_drop(self._pool(x))
        return x if pre_logits else self.fc(x)

    def _forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        stem = next((part for part in self._stages()[0][1] if isinstance(part, SonicStem)), None)

        def run(x: Tensor, spacing: Spacing | None) -> Tensor:
            return self.forward_head(self._features(x, spacing))

        if stem is None or self.global_pool == "":  # feature maps of one batch share one grid
            return run(x, spacing)
        self._check(x, spacing)
        return run_per_grid(run, stem.first_size, x, spacing, stem.told(spacing))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
        spacing: Spacing | None = None,
        orientation: Matrix | None = None,
        affine: Matrix | None = None,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Features at several levels, and the last features unless ``intermediates_only``.

        Parameters
        ----------
        indices
            Levels to return: a list, a number ``n`` for the last n, or ``None`` for all.
        norm
            Apply the final norm to the last level, as before the head.
        stop_early
            Compute nothing beyond the last requested level.
        """
        choice(output_fmt, self.formats, "output_fmt")
        taken, end = self._levels(indices), self._num_kept - 1
        last = max(taken) if stop_early or intermediates_only else end

        def run(x: Tensor, spacing: Spacing | None) -> Any:
            self._check(x, spacing)
            y, kept = self._run(x, spacing, last, taken, norm)
            features = [self._as_map(feature, x.shape[2:], output_fmt) for feature in kept]
            return features if intermediates_only else ((self.norm(y) if last == end else y), features)

        return self._oriented(run, x, spacing, orientation=orientation, affine=affine)

    def _as_map(self, feature: Tensor, size: Sequence[int], output_fmt: str) -> Tensor:
        """Features of an image of the given size, in the requested format."""
        return feature

    def _levels(self, indices: int | Sequence[int] | None) -> list[int]:
        count = self._num_kept
        if indices is None:
            return list(range(count))
        asked = range(count - indices, count) if isinstance(indices, int) else indices
        if len(asked) == 0 or any(not -count <= level < count for level in asked):
            raise ValueError(f"indices must select from the {count} feature levels, got {indices}")
        return [level % count for level in asked]

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop everything after the last requested level; only features remain. Returns the levels."""
        taken = self._levels(indices)
        self._drop_behind(max(taken))
        self._num_kept = max(taken) + 1
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return taken

    def _drop_behind(self, level: int) -> None:
        for name, _ in self._stages()[level + 1 :]:
            setattr(self, name, nn.Identity())

    def get_classifier(self) -> nn.Module:
        """The linear layer that computes the logits."""
        return self.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head; with 0 classes the model returns the pooled features."""
        if global_pool is not None:
            self.global_pool = choice(global_pool, self.pools, "global_pool")
            self.arguments["global_pool"] = global_pool
        self.num_classes = self.arguments["num_classes"] = num_classes
        weight = next(self.parameters())
        self.fc = nn.Identity()
        if num_classes > 0:
            self.fc = nn.Linear(self.num_features, num_classes, device=weight.device, dtype=weight.dtype)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the inputs of blocks for the backward pass and recompute the rest."""
        for module in self.modules():
            if isinstance(module, SpacedSequential):
                module.checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay: those of the modes."""
        chosen = {id(p) for p in mode_parameters(self)}
        return {name for name, parameter in self.named_parameters() if id(parameter) in chosen}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Patterns that sort parameters by depth, for layer-wise learning rates."""
        raise NotImplementedError

    def init_weights(self) -> None:
        """Kaiming normal for convolutions, small normal for linear layers; operators keep their own initialisation."""
        _draw_weights(self)
        spread_over_depth(sonic_layers(self))


def _draw_weights(module: nn.Module) -> None:
    if getattr(module, "draws_own_weights", False):
        return
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)):
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
        else:
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    for child in module.children():
        _draw_weights(child)


def linear_rates(last: float, count: int) -> list[float]:
    """Drop rates that grow evenly from 0 at the first block to ``last`` at the last."""
    return [last * index / max(1, count - 1) for index in range(count)]


def stage_options(options: Mapping[str, Any], stage: int, num_stages: int) -> dict[str, Any]:
    """Options of one stage: a list with one value per stage is replaced by the stage's own value."""
    return {
        key: value[stage] if isinstance(value, (list, tuple)) and len(value) == num_stages else value
        for key, value in options.items()
    }
