"""SonicConv1d, SonicConv2d and SonicConv3d: global convolutions with the interface of ``nn.ConvNd``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Never, get_args

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from torchsonic.arguments import check_samples, choice, fraction, is_number, per_axis, positive
from torchsonic.engine.autograd import convolve
from torchsonic.engine.call import Mixing, Operands, Options, without_autocast
from torchsonic.engine.lowering import lowering
from torchsonic.functional.options import Execution, group_fields
from torchsonic.nn.bank import DEFAULT_FIELD, Gain, Variant
from torchsonic.nn.evaluation import CachedModes
from torchsonic.nn.options import refuse_third, show_option, take_groups
from torchsonic.nn.physical_layer import leaf_call, sampling, split_batch
from torchsonic.nn.released_init import Bank
from torchsonic.nn.standardise import Standardise, standardise
from torchsonic.spectral.boundary import PaddingMode, check_margin
from torchsonic.spectral.limits import ResponseLimits
from torchsonic.spectral.orientation import Matrix
from torchsonic.spectral.response import ModeShape
from torchsonic.spectral.spacing import Spacing, as_spacing, orientation_of


class SonicConvNd(CachedModes):
    """Common part of the three layers; see :class:`SonicConv2d`."""

    keeps_extent: ClassVar[bool] = True
    own_modes: slice = slice(None)  # the modes of this process; see torchsonic.parallel
    replaced: str | None = None  # the convolution that replace_convs replaced

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *surplus: Never,
        num_modes: int | None = None,
        stride: int | Sequence[int] = 1,
        bias: bool = True,
        spacing: float | Sequence[float] = 1.0,
        padding: float | Sequence[float] | None = None,
        padding_mode: PaddingMode = "circular",
        variant: Variant = "exact",
        field: float | None = None,
        bank: Bank | None = None,
        gain: Gain = "power",
        limits: ResponseLimits | Mapping[str, Any] | None = None,
        mode_dropout: float = 0.0,
        standardise: Standardise | None = None,
        input_noise: float = 0.0,
        execution: Execution | Mapping[str, Any] | None = None,
        device=None,
        dtype=None,
        **old: Any,
    ) -> None:
        refuse_third(self, surplus)
        super().__init__()
        self.limits, (self.order, self.mode_chunk, self.recompute) = take_groups(self, limits, execution, old)
        self.in_channels = positive(in_channels, "in_channels")
        self.out_channels = positive(out_channels, "out_channels")
        most = max(in_channels, out_channels)
        self.num_modes = max(8, most // 4) if num_modes is None else positive(num_modes, "num_modes")
        self.stride = per_axis(stride, self.num_axes, "stride")
        self._assume_spacing(spacing)
        self.padding_mode = choice(padding_mode, get_args(PaddingMode), "padding_mode")
        self.padding = check_margin(padding, padding_mode, self.num_axes)
        self.variant = choice(variant, get_args(Variant), "variant")
        self._choose_bank(bank, field)
        self.gain = choice(gain, get_args(Gain), "gain")
        self.mode_dropout = fraction(mode_dropout, "mode_dropout")
        standardise = variant == "paper" if standardise is None else standardise
        self.standardise: Standardise = choice(standardise, (False, True, "channel", "sample"), "standardise")
        if not is_number(input_noise) or input_noise < 0 or (input_noise > 0 and not self.standardise):
            raise ValueError(f"input_noise must be >= 0 and needs standardised input, got {input_noise!r}")
        self.input_noise = input_noise
        self._make_parameters(device, dtype)
        num_biases = out_channels // self.orbit_size
        self.bias = nn.Parameter(torch.empty(num_biases, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    @property
    def execution(self) -> Execution:
        """The attributes ``order``, ``mode_chunk`` and ``recompute``, all of which can be set."""
        return Execution(self.order, self.mode_chunk, self.recompute)

    def definition(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("variant", "gain", "padding_mode", "padding", "standardise")}
        return {**super().definition(), **own, "limits": group_fields(self.limits)}

    def reset_parameters(self, generator: torch.Generator | None = None, **bank: float) -> None:
        """Draw all parameters anew; ``bank`` overrides settings of the layer's ``bank``."""
        super().reset_parameters(generator, **bank)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Tensor,
        spacing: Spacing | None = None,
        output_size: int | Sequence[int] | None = None,
        *,
        orientation: Matrix | None = None,
    ) -> Tensor:
        """Apply the layer.

        Parameters
        ----------
        x
            ``(B, C, N_1 .. N_D)`` or ``(C, N_1 .. N_D)``, real.
        spacing
            Physical step of ``x``: a number, one per axis, or ``(B, D)``. Defaults to the layer's spacing.
        output_size
            Number of output samples over the same extent, instead of ``ceil(size / stride)``.
        orientation
            Directions of the array's axes, as the columns of an orthogonal matrix ``(D, D)`` or ``(B, D, D)``. Defaults
            to the identity. See :mod:`torchsonic.spectral.orientation`.

        Returns
        -------
        Tensor
            ``(B, K, *output_size)`` or ``(K, *output_size)``, dtype of ``x``.
        """
        if isinstance(x, Proxy):
            return leaf_call(self, x, spacing, output_size, orientation=orientation)
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__, unbatched=True)
        if x.dim() == self.num_axes + 1:
            return self.forward(x[None], spacing, output_size, orientation=orientation)[0]
        size = tuple(x.shape[2:])
        out_size = (
            self.output_size(size) if output_size is None else per_axis(output_size, self.num_axes, "output_size")
        )
        given = self.told(sampling(x, spacing, orientation))
        dtype = torch.promote_types(torch.promote_types(x.dtype, self.mix_in.dtype), torch.float32)
        with without_autocast(x.device):
            return self._convolved(self._standardised(x.to(dtype)), given, out_size).to(x.dtype)

    def _convolved(self, x: Tensor, given: Spacing, out_size: tuple[int, ...]) -> Tensor:
        """Apply the modes to a prepared batch ``x (B, C, *size)`` of known spacing."""
        size = tuple(x.shape[2:])
        steps = as_spacing(given, self.num_axes, batch=x.shape[0], device=x.device)
        if self._margins_differ(given):
            parts = zip(x.split(1), split_batch(given, self.num_axes), strict=True)
            return torch.cat([self._convolved(sample, own, out_size) for sample, own in parts])
        if (active := lowering()) is not None:
            return active.convolve(self, x, out_size, given, steps)
        boundary = self.boundary(given)
        chunk = 0 if self.mode_chunk is None else positive(self.mode_chunk, "mode_chunk")
        options = Options(out_size, *boundary, self.order, chunk, self._symmetry, *self.limits)
        mix_in, mix_out, bias = self.mixing(x.dtype)
        if self._may_cache(given):
            return self._evaluate(Mixing(x, mix_in, mix_out, bias), options, given, steps)
        # The exact variant does not use the grid, so that compilers need not know its padded size.
        grid = size if self.variant == "exact" else boundary.band(size, out_size).size_in
        shape = self._shape(grid, steps, x.dtype, orientation_of(given))
        shape, mix_out = self._dropped(shape, mix_out)
        operands = Operands(x, mix_in, mix_out, *shape, bias, steps)
        return convolve(operands, options, recompute=self.recompute)

    def _standardised(self, x: Tensor) -> Tensor:
        if not self.standardise:
            return x
        x = standardise(x, self.standardise, self.num_axes, exact=self.variant == "exact")
        noisy = self.training and self.input_noise > 0
        return x + self.input_noise * torch.randn_like(x) if noisy else x

    def _dropped(self, shape: ModeShape, mix_out: Tensor) -> tuple[ModeShape, Tensor]:
        """Drop modes at random in training."""
        if not (self.training and self.mode_dropout > 0):
            return shape, mix_out
        kept = (torch.rand(self.num_modes, device=shape.gain.device) >= self.mode_dropout)[self.own_modes]
        kept = kept.repeat_interleave(self.orbit_size)
        if self.limits.magnitude > 0:  # the limit would undo a larger gain
            return shape, mix_out * kept[:, None] / (1 - self.mode_dropout)
        return shape._replace(gain=shape.gain * kept / (1 - self.mode_dropout)), mix_out

    def extra_repr(self) -> str:
        usual = {
            "stride": (1,) * self.num_axes,
            "padding_mode": "circular",
            "padding": None,
            "variant": "exact",
            "field": DEFAULT_FIELD[self.num_axes],
            "bank": {},
            "gain": "power",
            "limits": ResponseLimits(),
            "mode_dropout": 0.0,
            "standardise": self.variant == "paper",
            "input_noise": 0.0,
            "execution": Execution(),
            "spacing": (1.0,) * self.num_axes,
            "bias": True,
        }
        derived = {"execution": self.execution, "spacing": self.reference_spacing, "bias": self.bias is not None}
        own = {**vars(self), **derived}
        shown = [f"{name}={show_option(own[name])}" for name, value in usual.items() if own[name] != value]
        return ", ".join([f"{self.in_channels}, {self.out_channels}, num_modes={self.num_modes}", *shown])


class SonicConv1d(SonicConvNd):
    """Global convolution of signals ``(B, C, N)``; see :class:`SonicConv2d`."""

    num_axes = 1


class SonicConv2d(SonicConvNd):
    r"""Global, oriented, resolution-invariant convolution of images.

    .. math:: y = \operatorname{Re}\{ C\,\mathcal F^{-1}[\, g_m T_m(\omega)\,\mathcal F[B x]_m ]\} + \text{bias}

    Shapes: ``x (B, C, H, W)`` to ``y (B, K, ceil(H / stride), ceil(W / stride))``; unbatched input works too.
    Learnable parameters: ``2 K M + 2 M C + (4 + D) M + 1``, plus ``K`` for the bias.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    num_modes
        M; by default a quarter of the larger channel count, at least 8.
    stride
        Crops the spectrum before the inverse transform. This is free of aliasing, and no sample is computed only to be
        discarded.
    spacing
        Reference spacing: the layer is initialised for it and assumes it unless given another. A number, or one per
        axis in array-axis order.
    padding_mode
        ``"circular"`` wraps around; ``"zeros"`` surrounds the image with zeros, and ``"reflect"`` with its mirror image
        without repeating the edge.
    padding
        Width of that margin in pixels of the reference spacing, whole or not: a number, or one per axis. At other
        spacings the margin keeps its physical width. Each axis gets one margin, between its end and its beginning,
        rather than one on each side: half of a mirrored margin belongs to each end, and the middle sample of an odd one
        to both. Modes longer than the margin still wrap around. By default the margin is as wide as the image, which
        costs several times as much.
    variant
        ``"exact"`` commutes with shifts, permuted axes and resampling exactly; ``"paper"`` follows the paper's
        implementation notes.
    field
        Length of the longest initial mode in pixels; by default 128, 64 and 32 in one, two and three dimensions.
    bank
        Settings of the initial modes: ``shortest_decay`` in pixels, ``highest_frequency`` in radians per pixel, and
        ``width_to_length``. Long, narrow modes see distant objects; short ones see edges. ``"released"`` initialises
        the layer like the first one in the authors' released code (:mod:`torchsonic.nn.released_init`), and
        ``{"released": depth}`` like a deeper one, with depth 1 for the last; networks fill in the depths themselves.
    gain
        ``"power"`` gives every mode unit mean power (over the reference cell, or over the grid in the paper's variant).
        ``"dc"``, that is ``g = |a|``, gives it magnitude 1 for a constant. ``"free"`` learns the gain.
    limits
        Limits on the responses: a :class:`torchsonic.functional.ResponseLimits` or a mapping of its fields.
        ``band_order`` is the order ``n`` of a Butterworth band limit ``1 / (1 + (|w| / w_c)^{2n})`` with a learned
        cutoff per mode. ``magnitude`` is the largest ``|g T|``: a hard clip or, with ``soft``, a smooth limit like a
        hyperbolic tangent. The gain does not take limits into account.
    mode_dropout
        Probability of dropping a mode for the whole batch during training.
    standardise
        Normalise each channel of each sample to mean 0 and variance 1 first. On by default only in the paper's variant:
        the layer learns faster and tolerates noise, but is no longer linear. In the exact variant, ``True`` uses the
        variance of the field (:func:`torchsonic.functional.field_power`), which is the same on every grid.
        ``"channel"`` uses the variance of the samples, as the paper does; ``"sample"`` uses mean and variance over
        all channels of a sample.
    input_noise
        Standard deviation of noise added to the standardised input during training, as in the paper.
    execution
        How the layer is computed; this does not change its result. A :class:`torchsonic.nn.Execution` or a mapping
        of its fields, for example ``{"mode_chunk": 16}`` to save memory.

    Examples
    --------
    >>> layer = torchsonic.SonicConv2d(3, 16, num_modes=8)
    >>> layer(torch.randn(2, 3, 32, 48)).shape
    torch.Size([2, 16, 32, 48])
    >>> layer(torch.randn(2, 3, 64, 96), spacing=0.5).shape  # the same field, sampled twice as finely
    torch.Size([2, 16, 64, 96])

    References
    ----------
    Spectral Oriented Neural Invariant Convolutions (SONIC), sections "Formulation" and Appendix A.
    """

    num_axes = 2


class SonicConv3d(SonicConvNd):
    """Global convolution of volumes ``(B, C, D, H, W)``; see :class:`SonicConv2d`."""

    num_axes = 3


_LAYERS: dict[int, type[SonicConvNd]] = {1: SonicConv1d, 2: SonicConv2d, 3: SonicConv3d}


def make_sonic(in_channels: int, out_channels: int, *surplus: Never, spatial_dims: int, **options: Any) -> SonicConvNd:
    """Build a Sonic layer with the given number of spatial axes."""
    choice(spatial_dims, tuple(_LAYERS), "spatial_dims")
    return _LAYERS[spatial_dims](in_channels, out_channels, *surplus, **options)
