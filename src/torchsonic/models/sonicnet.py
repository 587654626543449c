"""SonicNet: a segmentation network of Sonic blocks, in 1, 2 or 3 dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from torchsonic.arguments import check_samples, per_axis, positive
from torchsonic.functional.resample import resample
from torchsonic.models.pretrained import PretrainedModel
from torchsonic.nn.bank import Variant
from torchsonic.nn.block import Form, SonicBlock
from torchsonic.nn.chain import SpacedSequential
from torchsonic.nn.network_spacing import sonic_layers
from torchsonic.nn.norm import Activation, Norm, make_activation, make_conv, make_norm
from torchsonic.nn.released_init import Bank, spread_over_depth
from torchsonic.spectral.boundary import PaddingMode, even_margin
from torchsonic.spectral.spacing import Spacing, spacing_values

MARGIN = 8  # of zeros, in pixels along the finest axis, which every layer sees afresh
CIRCULAR = {"padding": None, "padding_mode": "circular"}  # the default of networks whose files have format 1


def border_options(
    padding: int | Sequence[int] | None,
    padding_mode: PaddingMode,
    spacing: Sequence[float],
    stride: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Padding options of a Sonic layer behind a stride, in a network whose images have a margin.

    The margin is a whole number of samples along the finest axis, and as wide along the others. Rounded to samples on
    every axis, it would not turn with the image.

    Parameters
    ----------
    padding
        Pixels of the image: one number for its finest axis (coarser axes get the same physical width), or one per
        axis; ``None`` for a margin as wide as the image.
    spacing
        Spacing of the images.
    stride
        Stride in front of the layer, per axis; by default none.

    Examples
    --------
    >>> border_options(8, "zeros", (10.0, 2.0, 2.0), (1, 2, 2))
    {'padding': (1.6, 4.0, 4.0), 'padding_mode': 'zeros'}
    """
    if padding_mode == "circular" and padding == MARGIN:  # the default, which only other modes have a use for
        padding = None
    if padding is None:
        return {"padding": None, "padding_mode": padding_mode}
    stride = stride or [1.0] * len(spacing)
    if isinstance(padding, Sequence):
        margin = tuple(math.ceil(n / s) for n, s in zip(padding, stride, strict=True))
    else:
        steps = [step * s for step, s in zip(spacing, stride, strict=True)]
        margin = even_margin(math.ceil(padding * min(spacing) / min(steps) - 1e-9), steps)
    return {"padding": margin, "padding_mode": padding_mode}


class SonicNet(PretrainedModel):
    r"""Sonic blocks and a head: ``(B, C, *size)`` to logits ``(B, num_classes, *size)``.

    The first block maps C to ``width`` channels, the others keep them; norm, GELU and a convolution give the logits.
    If told the spacing, the network does the same on every grid: only the head depends on pixels, and only with
    ``head_kernel > 1``.

    Parameters
    ----------
    in_channels, num_classes
        Channels of images and of logits.
    width, depth, num_modes
        Number of channels, of blocks, and of modes per block.
    stride
        Stride of the first block, alias-free. Band-limited interpolation brings the logits back to the input's grid.
        A stride of 2 saves three quarters of the work in 2-D, seven eighths in 3-D.
    form, norm, activation, local_kernel, mlp_ratio
        Options of the blocks, see :class:`torchsonic.nn.SonicBlock`.
    head_kernel
        Kernel size of the head: 1 by default, 3 in the paper.
    standardise
        Whether Sonic layers normalise each input channel to mean 0 and variance 1, as in the paper. This speeds up
        learning: otherwise the mean of an image dominates the long modes.
    spacing, field, variant, bank, mode_dropout, mode_chunk, recompute
        Options of the Sonic layers. ``spacing`` is the reference, for example the median voxel size of the training
        set. ``bank="released"`` gives each layer the released values for its depth.
    padding, padding_mode
        What every Sonic layer sees beyond the edge of its input, as in :class:`torchsonic.SonicConv2d`: by default a
        margin of zeros. A number is in pixels along the finest axis of the image; coarser axes and coarser grids get
        the same physical width. ``padding_mode="circular"`` wraps around, which keeps the layers' laws exact;
        ``padding=None`` makes the margin as wide as the image.
    checkpointing
        Keep only the inputs of blocks for the backward pass.

    Examples
    --------
    >>> model = torchsonic.create_model("sonicnet3d", in_channels=1, num_classes=4, width=16)
    >>> model(torch.randn(1, 1, 6, 20, 24), spacing=(10.0, 1.5, 1.5)).shape
    torch.Size([1, 4, 6, 20, 24])
    """

    takes_spacing: ClassVar[bool] = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        spatial_dims: int = 2,
        width: int = 64,
        depth: int = 4,
        num_modes: int | None = None,
        stride: int | Sequence[int] = 1,
        form: Form = "post",
        norm: Norm = "group",
        activation: Activation = "gelu",
        local_kernel: int = 0,
        mlp_ratio: int = 0,
        head_kernel: int = 1,
        standardise: bool = True,
        spacing: float | Sequence[float] = 1.0,
        field: float | None = None,
        padding: int | Sequence[int] | None = MARGIN,
        padding_mode: PaddingMode = "zeros",
        variant: Variant = "exact",
        bank: Bank | None = None,
        mode_dropout: float = 0.0,
        mode_chunk: int | None = None,
        recompute: bool | None = None,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels, self.num_axes = positive(in_channels, "in_channels"), spatial_dims
        positive(num_classes, "num_classes")
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        if head_kernel < 1 or head_kernel % 2 == 0:
            raise ValueError(f"head_kernel must be odd, got {head_kernel}")
        steps = spacing_values(spacing, spatial_dims)
        shared: dict[str, Any] = {"spatial_dims": spatial_dims, "num_modes": num_modes, "spacing": steps, "form": form}
        shared |= {"field": field, "norm": norm, "activation": activation, "local_kernel": local_kernel}
        shared |= {"mlp_ratio": mlp_ratio, "standardise": standardise, "variant": variant, "bank": bank}
        shared |= {"mode_dropout": mode_dropout, "execution": {"mode_chunk": mode_chunk, "recompute": recompute}}
        step = per_axis(stride, spatial_dims, "stride")
        first = {**shared, "stride": step, **border_options(padding, padding_mode, steps)}
        if form == "pre":  # a norm of the raw image would lose its grey values; the first block has it behind
            first |= {"norm": "none", "activation": "none"}
        others = {**shared, **border_options(padding, padding_mode, steps, step)}
        blocks = [SonicBlock(in_channels, width, **first)]
        self.blocks = SpacedSequential(*blocks, *[SonicBlock(width, width, **others) for _ in range(depth - 1)])
        self.blocks.checkpointing = checkpointing
        spread_over_depth(sonic_layers(self.blocks))
        self.head = nn.Sequential(
            make_norm(norm, width, spatial_dims),
            make_activation("gelu"),
            make_conv(width, num_classes, head_kernel, spatial_dims=spatial_dims, bias=True),
        )

    @classmethod
    def complete_arguments(cls, arguments: dict[str, Any], format: int) -> dict[str, Any]:
        return {**CIRCULAR, **arguments} if format == 1 else arguments

    def _forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)
        size = tuple(x.shape[2:])
        logits = self.head(self.blocks(x, spacing))
        return logits if tuple(logits.shape[2:]) == size else resample(logits, size)
