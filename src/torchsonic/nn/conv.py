"""SonicConv1d, SonicConv2d and SonicConv3d: global convolutions with the interface of ``nn.ConvNd``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Never, get_args

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from torchsonic.arguments import check_samples, choice, per_axis, positive
from torchsonic.engine import kernels
from torchsonic.engine.autograd import convolve
from torchsonic.engine.cache import CouplingCache, recording_graph
from torchsonic.engine.call import Operands, Options, without_autocast
from torchsonic.engine.coupling import TorchCoupling
from torchsonic.engine.lowering import lowering
from torchsonic.nn.bank import DEFAULT_FIELD, Gain, Variant
from torchsonic.nn.fx_leaf import leaf_call
from torchsonic.nn.options import Execution, group_fields, refuse_third, show_option, take_groups
from torchsonic.nn.physical_layer import batch_spacing
from torchsonic.nn.readable_modes import ReadableModes
from torchsonic.nn.standardise import Standardise, standardise
from torchsonic.spectral.boundary import Boundary, PaddingMode, check_padding, scaled_margin
from torchsonic.spectral.limits import ResponseLimits
from torchsonic.spectral.response import ModeShape
from torchsonic.spectral.spacing import ANY_BATCH, Spacing, as_spacing, spacing_values
from torchsonic.spectral.tracing import inside_function_transform, tracing

__all__ = ["SonicConv1d", "SonicConv2d", "SonicConv3d", "SonicConvNd", "make_sonic"]


class SonicConvNd(ReadableModes):
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
        padding: int | Sequence[int] | None = None,
        padding_mode: PaddingMode = "circular",
        variant: Variant = "exact",
        field: float | None = None,
        bank: Mapping[str, float] | None = None,
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
        limits, execution = take_groups(self, limits, execution, old)
        super().__init__(
            in_channels,
            out_channels,
            num_modes=num_modes,
            spacing=spacing,
            variant=variant,
            field=field,
            bank=bank,
            gain=gain,
            limits=limits,
            device=device,
            dtype=dtype,
        )
        self.stride = per_axis(stride, self.num_axes, "stride")
        self.padding_mode: PaddingMode = choice(padding_mode, get_args(PaddingMode), "padding_mode")
        self.padding = check_padding(padding, padding_mode, self.num_axes)
        if not 0.0 <= mode_dropout < 1.0:
            raise ValueError(f"mode_dropout must be in [0, 1), got {mode_dropout}")
        standardise = variant == "paper" if standardise is None else standardise
        self.standardise: Standardise = choice(standardise, (False, True, "channel", "sample"), "standardise")
        if input_noise < 0 or (input_noise > 0 and not self.standardise):
            raise ValueError(f"input_noise must be >= 0 and belongs to standardised input, got {input_noise}")
        self.mode_dropout, self.input_noise = mode_dropout, input_noise
        self.order, self.mode_chunk, self.recompute = execution
        self._cache = CouplingCache()
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    @property
    def execution(self) -> Execution:
        """The attributes ``order``, ``mode_chunk`` and ``recompute``, which may be set."""
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
        self, x: Tensor, spacing: Spacing | None = None, output_size: int | Sequence[int] | None = None
    ) -> Tensor:
        """Apply the layer.

        Parameters
        ----------
        x
            ``(B, C, N_1 .. N_D)`` or ``(C, N_1 .. N_D)``, real.
        spacing
            Physical step of ``x``: a number, one per axis, or ``(B, D)``; by default the layer's.
        output_size
            Samples of the output, on the same extent, instead of ``ceil(size / stride)``.

        Returns
        -------
        Tensor
            ``(B, K, *output_size)`` or ``(K, *output_size)``, dtype of ``x``.
        """
        if isinstance(x, Proxy):
            return leaf_call(self, x, spacing, output_size)
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__, unbatched=True)
        if x.dim() == self.num_axes + 1:
            return self.forward(x[None], spacing, output_size)[0]
        size = tuple(x.shape[2:])
        out_size = (
            self.output_size(size) if output_size is None else per_axis(output_size, self.num_axes, "output_size")
        )
        given = self._spacing if spacing is None else batch_spacing(spacing)
        steps = as_spacing(given, self.num_axes, batch=x.shape[0], device=x.device)
        if self._margins_differ(given):
            parts = zip(x.split(1), steps.split(1), strict=True)  # the plain method: a subclass acts on the whole batch
            return torch.cat([SonicConvNd.forward(self, sample, own, out_size) for sample, own in parts])
        dtype = torch.promote_types(torch.promote_types(x.dtype, self.mix_in.dtype), torch.float32)
        active = lowering()
        if active is not None:
            return active.convolve(self, self._standardised(x.to(dtype)), out_size, given, steps).to(x.dtype)
        boundary = self.boundary(given)
        chunk = 0 if self.mode_chunk is None else positive(self.mode_chunk, "mode_chunk")
        options = Options(out_size, *boundary, self.order, chunk, self._symmetry, *self.limits)
        with without_autocast(x.device):
            signal = self._standardised(x.to(dtype))
            mix_in, mix_out = self.mix_in.to(dtype), self.mix_out.to(dtype)
            bias = None if self.bias is None else self.bias.to(dtype)
            if self._may_cache(given):
                return self._evaluate((signal, mix_in, mix_out, bias), options, given, steps).to(x.dtype)
            # The exact variant does not use the grid, so that compilers need not know its padded size.
            grid = size if self.variant == "exact" else boundary.band(size, out_size).size_in
            shape, mix_out = self._dropped(self._shape(grid, steps, dtype), mix_out)
            operands = Operands(signal, mix_in, mix_out, *shape, bias, steps)
            return convolve(operands, options, recompute=self.recompute).to(x.dtype)

    def boundary(self, spacing: Spacing) -> Boundary:
        """How images of a spacing continue across their edge: the margin keeps its physical width on finer grids.

        Of several spacings, the finest counts; ``forward`` takes samples with margins of their own one by one.
        """
        if self.padding is None:
            return Boundary(self.padding_mode)
        if not isinstance(spacing, Tensor):
            finest = spacing_values(spacing, self.num_axes)
        elif len(spacing) == 0:
            finest = self.reference_spacing
        else:
            finest = as_spacing(spacing, self.num_axes, batch=ANY_BATCH).amin(0).tolist()
        return Boundary(self.padding_mode, scaled_margin(self.padding, self.reference_spacing, finest))

    def _margins_differ(self, given: Spacing) -> bool:
        """Whether samples need margins of different widths, and so grids of different sizes."""
        if self.padding is None or not isinstance(given, Tensor):
            return False
        if lowering() is not None or torch.compiler.is_exporting():
            raise ValueError(
                f"the margin of padding={self.padding} follows the spacing, which therefore cannot be an input of an "
                "exported model, nor change with dynamic sizes behind a stride; export with a fixed spacing and "
                "fixed sizes"
            )
        rows = as_spacing(given, self.num_axes, batch=ANY_BATCH).tolist()
        return len({self.boundary(tuple(row)) for row in rows}) > 1

    def _standardised(self, x: Tensor) -> Tensor:
        if not self.standardise:
            return x
        x = standardise(x, self.standardise, self.num_axes, exact=self.variant == "exact")
        noisy = self.training and self.input_noise > 0
        return x + self.input_noise * torch.randn_like(x) if noisy else x

    def _evaluate(self, mixing: tuple, options: Options, given: Spacing, steps: Tensor) -> Tensor:
        """The output without gradient, from the responses of an earlier call if they are still valid."""
        x, mix_in, mix_out, _ = mixing
        sizes = (x, mix_out.shape[0], mix_in.shape[0])
        plan = kernels.plan_for(*sizes, options)

        def make() -> TorchCoupling:
            shape = self._shape(plan.band.size_in, steps, x.dtype)
            return TorchCoupling(shape, steps, plan.band, options.symmetry, options.limits)

        settings = (self.reference_spacing, self.variant, self.gain, self.limits)
        key = (plan.band, spacing_values(given, self.num_axes), *settings, x.dtype, x.device)
        coupling = self._cache.get(key, self.mode_parameters(), make)
        with kernels.prepared(*sizes, options):
            return kernels.order_of(plan).forward(*mixing, lambda samples, modes: coupling, plan)[0]

    def _dropped(self, shape: ModeShape, mix_out: Tensor) -> tuple[ModeShape, Tensor]:
        """Drop modes at random in training."""
        if not (self.training and self.mode_dropout > 0):
            return shape, mix_out
        kept = (torch.rand(self.num_modes, device=shape.gain.device) >= self.mode_dropout)[self.own_modes]
        if self.limits.magnitude > 0:  # the limit would undo a larger gain
            return shape, mix_out * kept[:, None] / (1 - self.mode_dropout)
        return shape._replace(gain=shape.gain * kept / (1 - self.mode_dropout)), mix_out

    def _may_cache(self, given: Spacing) -> bool:
        return not (
            self.training
            or self.mode_chunk is not None  # memory matters more than time
            or torch.is_grad_enabled()
            or tracing()
            or inside_function_transform()
            or recording_graph(self._device)
            or isinstance(given, Tensor)
            or any(p.is_inference() for p in self.mode_parameters())
        )

    def clear_cache(self) -> None:
        """Drop responses kept in evaluation; needed only after writing to ``parameter.data`` on an accelerator."""
        self._cache.clear()

    def train(self, mode: bool = True):
        self._cache.clear()
        return super().train(mode)

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        self._cache.clear()
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, fn, recurse=True):
        self._cache.clear()
        return super()._apply(fn, recurse)

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
        own = {
            **vars(self),
            "execution": self.execution,
            "spacing": self.reference_spacing,
            "bias": self.bias is not None,
        }
        shown = [f"{name}={show_option(own[name])}" for name, value in usual.items() if own[name] != value]
        return ", ".join([f"{self.in_channels}, {self.out_channels}, num_modes={self.num_modes}", *shown])


class SonicConv1d(SonicConvNd):
    """Global convolution of signals ``(B, C, N)``; see :class:`SonicConv2d`."""

    num_axes = 1


class SonicConv2d(SonicConvNd):
    r"""Global, oriented, resolution-invariant convolution of images.

    .. math:: y = \operatorname{Re}\{ C\,\mathcal F^{-1}[\, g_m T_m(\omega)\,\mathcal F[B x]_m ]\} + \text{bias}

    Shapes: ``x (B, C, H, W)`` to ``y (B, K, ceil(H / stride), ceil(W / stride))``; unbatched input works as well.
    Learnable reals: ``2 K M + 2 M C + (4 + D) M + 1``, and ``K`` for the bias.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    num_modes
        M; by default a quarter of the larger channel count, at least 8.
    stride
        Crops the spectrum before the inverse transform, which is free of aliasing and saves computing samples only to
        discard them.
    spacing
        Reference spacing: the layer is initialised for it, and assumes it unless told another. A number, or one per
        axis in array-axis order.
    padding_mode
        ``"circular"`` wraps around; ``"zeros"`` surrounds the image with zeros, and ``"reflect"`` with its mirror image
        without repeating the edge.
    padding
        Width of that margin in pixels of the reference spacing, a number or one per axis. At another spacing the margin
        keeps its physical width. It lies once between the end of an axis and its beginning, not on either side: half of
        a mirrored margin belongs to each end. Modes longer than the margin still wrap around. By default the margin is
        as wide as the image, which costs several times as much; then only modes longer than the image wrap around.
    variant
        ``"exact"`` commutes with shifts, permuted axes and resampling exactly; ``"paper"`` follows the paper's
        implementation notes.
    field
        Length of the longest initial mode in pixels; by default 128, 64 and 32 in one, two and three dimensions.
    bank
        Settings of the initial modes: ``shortest_decay`` in pixels, ``highest_frequency`` in radians per pixel, and
        ``width_to_length``. Long, narrow modes see distant objects, short ones edges.
    gain
        ``"power"`` gives every mode unit mean power (over the reference cell, or over the grid in the paper's variant);
        ``"dc"``, or ``g = |a|``, gives it magnitude 1 for a constant; ``"free"`` learns the gain.
    limits
        Limits of the responses: a :class:`torchsonic.functional.ResponseLimits` or a mapping of its fields.
        ``band_order`` is the order ``n`` of a Butterworth band limit ``1 / (1 + (|w| / w_c)^{2n})`` with a learned
        cutoff per mode. ``magnitude`` is the largest ``|g T|``, cut hard or, if ``soft``, approached like a hyperbolic
        tangent. The gain does not take limits into account.
    mode_dropout
        Probability of dropping a mode for the whole batch, in training.
    standardise
        Bring each channel of each sample to mean 0 and variance 1 first. This is the default of the paper's variant
        only: the layer learns faster and tolerates noise, but is no longer linear. In the exact variant, ``True`` takes
        the variance of the field (:func:`torchsonic.functional.field_power`), which is the same on every grid.
        ``"channel"`` takes the variance of the samples, as the paper does; ``"sample"`` takes mean and variance over
        all channels of a sample.
    input_noise
        Standard deviation of noise added to standardised input in training, as in the paper.
    execution
        How the layer is evaluated, which does not change its result: an :class:`torchsonic.nn.Execution` or a mapping
        of its fields, for example ``{"mode_chunk": 16}`` to save memory.

    Examples
    --------
    >>> layer = torchsonic.SonicConv2d(3, 16, num_modes=8)
    >>> layer(torch.randn(2, 3, 32, 48)).shape
    torch.Size([2, 16, 32, 48])
    >>> layer(torch.randn(2, 3, 64, 96), spacing=0.5).shape  # the same field, sampled twice as fine
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
