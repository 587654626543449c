"""Residual blocks around any operator; all pass the physical spacing on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Never, Protocol

import torch
from torch import Tensor, nn

from torchsonic.arguments import choice, per_axis
from torchsonic.functional.resample import resample
from torchsonic.nn.hybrid import make_operator
from torchsonic.nn.norm import Activation, Norm, make_activation, make_conv, make_norm
from torchsonic.nn.options import refuse_third
from torchsonic.nn.physical_layer import apply, coarsening, sampling
from torchsonic.nn.residual import ChannelMLP, DropPath, Shortcut
from torchsonic.spectral.orientation import Matrix
from torchsonic.spectral.spacing import Spacing

torch.fx.wrap("resample")  # one node of a graph that torch.fx records

Form = Literal["post", "pre"]
Stride = int | Sequence[int]


class Operator(Protocol):
    """Builds a spatial operator: ``operator(in_channels, out_channels, stride=stride)``."""

    def __call__(self, in_channels: int, out_channels: int, /, *, stride: Any) -> nn.Module: ...


class _Block(nn.Module):
    """Common part of blocks: the operator of the given name, and no other, has the stride."""

    takes_spacing: ClassVar[bool] = True
    operator_name: ClassVar[str]

    @property
    def stride(self) -> tuple[int, ...]:
        """Nominal stride of the block, per axis."""
        return getattr(self, self.operator_name).stride

    def coarsening(self, size: Sequence[int]) -> tuple[float, ...]:
        """Ratio of output to input spacing for an input of the given size."""
        return coarsening(getattr(self, self.operator_name), size)


def _grid_of(operator: nn.Module) -> tuple[bool, bool]:
    """Whether a strided operator's grid has the extent of its input's, and whether it has its centre, too."""
    return getattr(operator, "keeps_extent", False), getattr(operator, "centred", False)


class ResidualBlock(_Block):
    r"""One operator with a skip connection.

    .. math::
        \text{post: } y = \phi(\mathrm{norm}(A x) + S x) \qquad
        \text{pre: } y = A\,\phi(\mathrm{norm}(x)) + S x

    Shapes: ``(B, C, *size)`` to ``(B, K, *size / stride)``; ``S`` is the identity or a 1x1 projection.

    Parameters
    ----------
    operator
        ``operator(C, K, stride=stride)`` builds ``A``: any module, called with the spacing if it takes one.
    form
        ``"post"`` puts the norm after the operator, as the paper's figure does; ``"pre"`` before it, as its appendix.
    drop_path
        Probability of skipping the operator for a sample during training.

    Examples
    --------
    >>> conv = lambda c, k, stride: torch.nn.Conv2d(c, k, 3, stride, 1)
    >>> block = torchsonic.nn.ResidualBlock(conv, 8, 16, stride=2)
    >>> block(torch.randn(1, 8, 9, 12)).shape
    torch.Size([1, 16, 5, 6])
    """

    operator_name = "operator"

    def __init__(
        self,
        operator: Operator,
        in_channels: int,
        out_channels: int,
        *,
        spatial_dims: int = 2,
        stride: Stride = 1,
        form: Form = "post",
        norm: Norm = "group",
        activation: Activation | None = None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.form: Form = choice(form, ("post", "pre"), "form")
        self.operator = operator(in_channels, out_channels, stride=stride)
        self.norm = make_norm(norm, out_channels if form == "post" else in_channels, spatial_dims)
        self.activation = make_activation(activation or ("relu" if form == "post" else "gelu"))
        self.drop_path = DropPath(drop_path)
        smooth, centred = _grid_of(self.operator)
        self.shortcut = Shortcut(
            in_channels, out_channels, stride, spatial_dims=spatial_dims, smooth=smooth, centred=centred
        )

    def forward(self, x: Tensor, spacing: Spacing | None = None, *, orientation: Matrix | None = None) -> Tensor:
        """Apply the block to an input of the given spacing and orientation."""
        spacing = sampling(x, spacing, orientation)
        if self.form == "post":
            return self.activation(self.drop_path(self.norm(apply(self.operator, x, spacing))) + self.shortcut(x))
        return self.drop_path(apply(self.operator, self.activation(self.norm(x)), spacing)) + self.shortcut(x)


class SonicBlock(ResidualBlock):
    """The paper's block: Sonic, norm, + skip, activation; with ``form="pre"``: norm, activation, Sonic, + skip.

    Shapes: ``(B, C, *size)`` to ``(B, K, *ceil(size / stride))``.

    Parameters
    ----------
    form, norm, activation, drop_path
        See :class:`ResidualBlock`. The default activation is ReLU in form "post" and GELU in form "pre".
        ``norm="channel"`` normalises each pixel.
    local_kernel
        Taps per axis of a local convolution next to the global one (:class:`HybridConv`); 0 for none.
    mlp_ratio
        Width of a :class:`ChannelMLP` after the block, as a multiple of the channels; 0 for none. A block has only one
        nonlinearity between two global operators; this adds another at little extra cost.
    options
        Options of the Sonic layer, for example ``spacing``, ``field``, ``padding_mode`` or ``execution``.

    Examples
    --------
    >>> block = torchsonic.nn.SonicBlock(3, 16, num_modes=8, spatial_dims=2, form="pre", local_kernel=3)
    >>> block(torch.randn(1, 3, 12, 10), spacing=(1.0, 0.5)).shape
    torch.Size([1, 16, 12, 10])

    References
    ----------
    Spectral Oriented Neural Invariant Convolutions (SONIC), section "Formulation"; the local branch is what its
    conclusion names as future work.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *surplus: Never,
        num_modes: int | None = None,
        spatial_dims: int = 2,
        stride: Stride = 1,
        form: Form = "post",
        norm: Norm = "group",
        activation: Activation | None = None,
        drop_path: float = 0.0,
        local_kernel: int = 0,
        mlp_ratio: int = 0,
        bias: bool = False,
        **options: Any,
    ) -> None:
        refuse_third(self, surplus)
        if mlp_ratio < 0:
            raise ValueError(f"mlp_ratio must be 0 or a multiple of the channels, got {mlp_ratio}")
        options |= {"num_modes": num_modes, "local_kernel": local_kernel, "bias": bias}
        operator = partial(make_operator, spatial_dims=spatial_dims, **options)
        block: dict[str, Any] = {"form": form, "norm": norm, "activation": activation, "drop_path": drop_path}
        super().__init__(operator, in_channels, out_channels, spatial_dims=spatial_dims, stride=stride, **block)
        self.mlp: nn.Module = nn.Identity()
        if mlp_ratio:
            self.mlp = ChannelMLP(out_channels, mlp_ratio, spatial_dims=spatial_dims, norm=norm)

    def forward(self, x: Tensor, spacing: Spacing | None = None, *, orientation: Matrix | None = None) -> Tensor:
        """Apply the block to an input of the given spacing and orientation."""
        return self.mlp(super().forward(x, spacing, orientation=orientation))


class Bottleneck(_Block):
    r"""The residual bottleneck block of ResNets, built around any operator.

    .. math:: y = \phi(\mathrm{norm}(W_3\,\phi(\mathrm{norm}(A\,\phi(\mathrm{norm}(W_1 x))))) + S x)

    ``W_1`` narrows to ``width`` channels, ``A`` is the spatial operator with the stride, and ``W_3`` widens to
    ``expansion * width``. Shapes: ``(B, C, *size)`` to ``(B, expansion * width, *size / stride)``. Submodules are named
    as in common ResNet checkpoints. With a spectral stride the skip connection is resampled without aliasing.

    Examples
    --------
    >>> sonic = lambda c, k, stride: torchsonic.SonicConv2d(c, k, stride=stride, bias=False)
    >>> block = torchsonic.nn.Bottleneck(sonic, 32, 8, stride=2)
    >>> block(torch.randn(1, 32, 10, 12), spacing=0.5).shape
    torch.Size([1, 32, 5, 6])
    """

    operator_name = "conv2"
    expansion: ClassVar[int] = 4

    def __init__(
        self,
        operator: Operator,
        in_channels: int,
        width: int,
        *,
        spatial_dims: int = 2,
        stride: Stride = 1,
        norm: Norm = "batch",
        activation: Activation = "relu",
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        out_channels = self.expansion * width
        self.conv1 = make_conv(in_channels, width, spatial_dims=spatial_dims)
        self.bn1 = make_norm(norm, width, spatial_dims)
        self.conv2 = operator(width, width, stride=stride)
        self.bn2 = make_norm(norm, width, spatial_dims)
        self.conv3 = make_conv(width, out_channels, spatial_dims=spatial_dims)
        self.bn3 = make_norm(norm, out_channels, spatial_dims)
        self.activation = make_activation(activation)
        self.drop_path = DropPath(drop_path)
        self.downsample: nn.Module = nn.Identity()
        strided = max(per_axis(stride, spatial_dims, "stride")) > 1
        smooth, self.centred = _grid_of(self.conv2)
        self.smooth = strided and smooth
        if in_channels != out_channels or strided:
            self.downsample = nn.Sequential(
                make_conv(in_channels, out_channels, spatial_dims=spatial_dims, stride=1 if self.smooth else stride),
                make_norm(norm, out_channels, spatial_dims),
            )

    def forward(self, x: Tensor, spacing: Spacing | None = None, *, orientation: Matrix | None = None) -> Tensor:
        """Apply the block to an input of the given spacing and orientation."""
        spacing = sampling(x, spacing, orientation)
        y = self.activation(self.bn1(self.conv1(x)))
        y = self.activation(self.bn2(apply(self.conv2, y, spacing)))
        x = resample(x, y.shape[2:], centred=self.centred) if self.smooth else x
        return self.activation(self.drop_path(self.bn3(self.conv3(y))) + self.downsample(x))
