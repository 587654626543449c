"""A hierarchical classifier whose only spatial operator is Sonic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from torchsonic.arguments import choice, positive
from torchsonic.models.classifier import Classifier, linear_rates, stage_options
from torchsonic.models.stem import Grid, field_of, make_stem
from torchsonic.nn.chain import SpacedSequential
from torchsonic.nn.conv import SonicConv2d
from torchsonic.nn.hybrid import make_operator
from torchsonic.nn.network_spacing import place_behind
from torchsonic.nn.norm import Norm, make_activation, make_last_norm, make_norm
from torchsonic.nn.residual import DropPath
from torchsonic.spectral.boundary import PaddingMode
from torchsonic.spectral.spacing import Spacing


class _Downsample(SonicConv2d):
    """Norm, then a Sonic layer of stride 2: alias-free, and it widens at the same time."""

    def __init__(self, in_channels: int, out_channels: int, *, pre_norm: Norm, **options: Any) -> None:
        super().__init__(in_channels, out_channels, stride=2, **options)
        self.pre_norm = make_norm(pre_norm, in_channels, 2)

    def forward(self, x: Tensor, spacing: Spacing | None = None, output_size=None, *, orientation=None) -> Tensor:
        return super().forward(self.pre_norm(x), spacing, output_size, orientation=orientation)


class MixerBlock(nn.Module):
    r"""Mix positions, then channels.

    .. math::
        x \leftarrow x + \gamma_1 A\,\mathrm{norm}(x), \qquad
        x \leftarrow x + \gamma_2\,\mathrm{MLP}(\mathrm{norm}(x))

    ``A`` is a Sonic layer, optionally with a local branch; the MLP acts on each pixel. ``(B, C, H, W)`` to the same.

    Examples
    --------
    >>> block = torchsonic.models.MixerBlock(16, num_modes=8, local_kernel=3)
    >>> block(torch.randn(1, 16, 12, 10), spacing=0.5).shape
    torch.Size([1, 16, 12, 10])
    """

    takes_spacing: ClassVar[bool] = True

    def __init__(
        self,
        channels: int,
        num_modes: int | None = None,
        *,
        mlp_ratio: float = 4.0,
        norm: Norm = "group",
        layer_scale: float = 0.1,
        drop_path: float = 0.0,
        local_kernel: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        hidden = round(mlp_ratio * channels)
        self.norm1, self.norm2 = make_norm(norm, channels, 2), make_norm(norm, channels, 2)
        self.mixer = make_operator(channels, channels, num_modes=num_modes, local_kernel=local_kernel, **options)
        self.mlp = nn.Sequential(nn.Conv2d(channels, hidden, 1), nn.GELU(), nn.Conv2d(hidden, channels, 1))
        self.gamma1 = nn.Parameter(torch.full((channels, 1, 1), float(layer_scale)))
        self.gamma2 = nn.Parameter(torch.full((channels, 1, 1), float(layer_scale)))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Apply the block to features of the given spacing."""
        x = x + self.drop_path(self.gamma1 * self.mixer(self.norm1(x), spacing))
        return x + self.drop_path(self.gamma2 * self.mlp(self.norm2(x)))


class SonicClassifier(Classifier):
    """A stem of stride 4, stages of Sonic and MLP blocks, mean, linear head; ``(B, C, H, W)`` to ``(B, num_classes)``.

    The stem brings an image with a given spacing onto the reference grid, so that it gives the same logits at every
    sampling that can represent its frequencies.

    Parameters
    ----------
    widths, depths
        Channels and blocks of the stages; each stage halves the grid of the previous one.
    modes_ratio
        Number of modes of a layer relative to its channels.
    mlp_ratio, norm, layer_scale, drop_path_rate, local_kernel
        Options of the blocks; ``local_kernel=3`` adds a local branch.
    operator_options
        More arguments of the Sonic layers in the stages, such as ``num_modes``, ``bank`` or ``field``; a list with one
        value per stage gives each its own.
    stem
        ``linear``: one Sonic layer of stride 4, which passes nothing finer than 8 pixels. ``deep``: two of stride 2
        with a norm and GELU between them. ``local``: the 7x7 convolution and max pooling of ResNets on the network's
        own grid, onto which an image with a given spacing is resampled exactly; the registered networks use it.
    grid
        See :class:`torchsonic.models.stem.SonicStem`; only for ``stem="linear"`` and ``stem="deep"``.
    image_size
        Usual size of images, not a limit: at this size, the longest initial modes of a stage span its grid.
    spacing, padding_mode
        Reference spacing of images, and how Sonic layers pad them; a local stem pads with zeros.
    drop_rate, global_pool
        Dropout before the last layer; ``avg``, ``max`` or ``""`` for pooling.

    Examples
    --------
    >>> model = torchsonic.create_model("sonic_tiny", num_classes=10).eval()
    >>> fine = torch.randn(1, 3, 128, 128)
    >>> model(fine, spacing=0.5).shape
    torch.Size([1, 10])
    """

    def __init__(
        self,
        *,
        in_channels: int = 3,
        num_classes: int = 1000,
        widths: Sequence[int] = (32, 64, 128, 256),
        depths: Sequence[int] = (2, 2, 6, 2),
        modes_ratio: float = 0.25,
        mlp_ratio: float = 4.0,
        norm: Norm = "group",
        layer_scale: float = 0.1,
        local_kernel: int = 0,
        operator_options: Mapping[str, Any] | None = None,
        stem: Literal["linear", "deep", "local"] = "linear",
        grid: Grid = "reference",
        image_size: int = 224,
        spacing: float | Sequence[float] = 1.0,
        padding_mode: PaddingMode = "circular",
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        global_pool: str = "avg",
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels")
        if len(widths) != len(depths) or not widths or min(*widths, *depths) < 1:
            raise ValueError(f"widths and depths must be positive and of equal length, got {widths} and {depths}")
        for name in ("spacing", "padding_mode", "stride"):
            if name in (operator_options or {}):
                raise ValueError(f"pass {name} to the network, not in operator_options: {operator_options}")
        sonic: dict[str, Any] = {"spacing": spacing, "padding_mode": padding_mode}
        positive(image_size, "image_size")
        modes = [max(8, round(modes_ratio * width)) for width in widths]
        choice(stem, ("linear", "deep", "local"), "stem")
        first: dict[str, Any] = {"num_modes": modes[0], "field": field_of(image_size), "norm": norm, "grid": grid}
        self.stem = make_stem(stem, in_channels, widths[0], **first, **sonic)
        if isinstance(self.stem, SpacedSequential):
            for part in (make_norm(norm, widths[0], 2), make_activation("gelu"), nn.MaxPool2d(3, stride=2, padding=1)):
                self.stem.append(part)
        self.stem_norm = make_norm(norm, widths[0], 2)
        block = {"mlp_ratio": mlp_ratio, "norm": norm, "layer_scale": layer_scale, "local_kernel": local_kernel}
        rates = iter(linear_rates(drop_path_rate, sum(depths)))
        self.feature_info, reduction = [], 4
        for index, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            parts: list[nn.Module] = []
            size = -(-image_size // (reduction * (2 if index > 0 else 1)))
            own = {"num_modes": modes[index], "field": field_of(size), **sonic}
            own |= stage_options(operator_options or {}, index, len(widths))
            own |= {"field": None} if own.get("bank") == "released" else {}
            if index > 0:
                parts.append(_Downsample(widths[index - 1], width, pre_norm=norm, **own))
            parts += [MixerBlock(width, drop_path=next(rates), **block, **own) for _ in range(depth)]
            self.add_module(f"stage{index}", place_behind(SpacedSequential(*parts), reduction))
            reduction *= 2 if index > 0 else 1
            self.feature_info.append({"num_chs": width, "reduction": reduction, "module": f"stage{index}"})
        last = make_last_norm(norm, widths[-1], 2)
        self._build_head(widths[-1], num_classes, drop_rate=drop_rate, global_pool=global_pool, norm=last)
        self.init_weights()

    def _stages(self) -> list[tuple[str, Sequence[nn.Module]]]:
        names = [info["module"] for info in self.feature_info]
        first = [(names[0], (self.stem, self.stem_norm, getattr(self, names[0])))]
        return [*first, *[(name, (getattr(self, name),)) for name in names[1:]]]

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return {"stem": r"^stem", "blocks": r"^stage(\d+)" if coarse else r"^stage(\d+)\.(\d+)"}
