"""SonicConv1d, SonicConv2d, SonicConv3d: a global convolution that reads like ``nn.ConvNd``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.functional.frequency import Spacing, as_spacing, frequency_grid
from torchsonic.functional.kernels import respond_with
from torchsonic.functional.pair import ModeShape, Responses
from torchsonic.functional.plan import make_plan
from torchsonic.functional.spectral_conv import apply_responses, spectral_conv
from torchsonic.functional.spectrum import PaddingMode, padded_sizes
from torchsonic.functional.transfer import Modes, grid_gain, reference_gain, response_matrix, spacing_frame
from torchsonic.nn.cache import ResponseCache
from torchsonic.nn.init import initial_directions, initial_mixing, initial_responses

__all__ = ["SonicConv1d", "SonicConv2d", "SonicConv3d", "SonicConvNd"]

Variant = Literal["exact", "paper"]

# Keeps 1 / |Re a| and 1 / s finite when softplus underflows; far below any useful value.
SMALLEST = 1e-6
STANDARDISE_EPS = 1e-5
DEFAULT_FIELD = {1: 128.0, 2: 64.0, 3: 32.0}


def _inverse_softplus(value: Tensor) -> Tensor:
    return value + torch.log(-torch.expm1(-value))


def _per_axis(value: int | Sequence[int], num_axes: int, name: str) -> tuple[int, ...]:
    if isinstance(value, bool) or not isinstance(value, (int, Sequence)):
        raise TypeError(f"{name} must be an integer or {num_axes} of them, got {value!r}")
    values = (value,) * num_axes if isinstance(value, int) else tuple(value)
    if len(values) != num_axes or any(not isinstance(v, int) or isinstance(v, bool) or v < 1 for v in values):
        raise ValueError(f"{name} must be 1 or {num_axes} positive integers, got {value!r}")
    return values


def _positive(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


class SonicConvNd(nn.Module):
    """Common part of the three layers; see :class:`SonicConv2d`."""

    num_axes: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_modes: int | None = None,
        *,
        stride: int | Sequence[int] = 1,
        bias: bool = True,
        spacing: float | Sequence[float] = 1.0,
        padding_mode: PaddingMode = "circular",
        variant: Variant = "exact",
        field: float | None = None,
        mode_dropout: float = 0.0,
        input_noise: float = 0.0,
        order: str = "auto",
        mode_chunk: int | None = None,
        recompute: bool = False,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        self.in_channels = _positive(in_channels, "in_channels")
        self.out_channels = _positive(out_channels, "out_channels")
        if num_modes is None:
            num_modes = max(8, max(in_channels, out_channels) // 4)
        self.num_modes = _positive(num_modes, "num_modes")
        self.stride = _per_axis(stride, self.num_axes, "stride")
        if padding_mode not in get_args(PaddingMode):
            raise ValueError(f"padding_mode must be one of {', '.join(get_args(PaddingMode))}, got {padding_mode!r}")
        if variant not in get_args(Variant):
            raise ValueError(f"variant must be one of {', '.join(get_args(Variant))}, got {variant!r}")
        if not 0.0 <= mode_dropout < 1.0:
            raise ValueError(f"mode_dropout must be in [0, 1), got {mode_dropout}")
        if input_noise < 0 or (input_noise > 0 and variant != "paper"):
            raise ValueError(f"input_noise must be >= 0 and belongs to variant='paper', got {input_noise}")
        field = DEFAULT_FIELD[self.num_axes] if field is None else field
        if not (math.isfinite(field) and field > 0):
            raise ValueError(f"field must be a positive number of pixels, got {field}")
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a real floating-point type, got {dtype}")
        self.padding_mode: PaddingMode = padding_mode
        self.variant: Variant = variant
        self.field, self.mode_dropout, self.input_noise = float(field), mode_dropout, input_noise
        self.order, self.mode_chunk, self.recompute = order, mode_chunk, recompute
        make_plan(  # refuses a wrong order or chunk here rather than at the first call
            1, 1, 1, self.num_modes, (2,) * self.num_axes, (2,) * self.num_axes, order=order, mode_chunk=mode_chunk
        )
        self.reference_spacing: tuple[float, ...] = tuple(as_spacing(spacing, self.num_axes)[0].tolist())
        self.input_stride: tuple[float, ...] = (1.0,) * self.num_axes
        self._spacing: tuple[float, ...] | Tensor = self.reference_spacing
        self._cache = ResponseCache()

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        modes, axes = self.num_modes, self.num_axes
        self.mix_in = parameter(modes, 2, in_channels)  # Re B, Im B
        self.mix_out = parameter(out_channels, modes, 2)  # Re C, -Im C
        self.raw_direction = parameter(modes, axes)
        self.raw_scale = parameter(modes)
        self.raw_damping = parameter(modes)
        self.raw_oscillation = parameter(modes)
        self.raw_transverse = parameter(modes)
        self.oscillation_limit = parameter()  # rho
        self.bias = parameter(out_channels) if bias else None
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all parameters anew; see :mod:`torchsonic.nn.init`."""
        if self.mix_in.is_meta:
            return
        direction = initial_directions(
            self.num_modes, self.num_axes, half_circle=self.variant == "paper", generator=generator
        )
        response = initial_responses(self.num_modes, self.field, generator=generator)
        mix_in, mix_out = initial_mixing(self.in_channels, self.out_channels, self.num_modes, generator=generator)
        # Lengths are drawn in pixels along the mode; on anisotropic grids a pixel depends on the direction.
        steps = torch.tensor(self.reference_spacing, dtype=torch.float64)
        along = (direction.double() * steps).norm(dim=-1)
        across = along if self.num_axes == 1 else (steps.prod() / along) ** (1 / (self.num_axes - 1))
        unit = self._reference_length
        limit = 1.25 * max(1.0, float(response["oscillation"].abs().max()))
        values = {
            "mix_in": mix_in,
            "mix_out": mix_out,
            "raw_direction": direction,
            "raw_scale": _inverse_softplus(response["scale"] * along / unit - SMALLEST),
            "raw_damping": _inverse_softplus(response["damping"] - SMALLEST),
            "raw_oscillation": torch.atanh(response["oscillation"] / limit),
            "raw_transverse": _inverse_softplus(response["transverse"] * (across / unit).square()),
            "oscillation_limit": torch.tensor(limit),
        }
        with torch.no_grad():
            for name, value in values.items():
                getattr(self, name).copy_(value)
            if self.bias is not None:
                self.bias.zero_()

    @property
    def _reference_length(self) -> float:
        """The unit of the dimensionless parameters: the geometric mean of the reference spacing."""
        return math.exp(sum(math.log(step) for step in self.reference_spacing) / self.num_axes)

    @property
    def spacing(self) -> tuple[float, ...] | Tensor:
        """Spacing of the layer's input when ``forward`` is not told one; change it with :meth:`set_spacing`."""
        return self._spacing

    def set_spacing(self, spacing: Spacing) -> None:
        """Set the spacing of this layer's input: a number, one per axis, or ``(batch, D)``."""
        steps = as_spacing(
            spacing, self.num_axes, batch=len(spacing) if isinstance(spacing, Tensor) and spacing.dim() == 2 else None
        )
        self._spacing = tuple(steps[0].tolist()) if steps.shape[0] == 1 else steps

    def output_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Samples of the output for an input of the given size: ``ceil(size / stride)``."""
        return tuple(-(-int(n) // s) for n, s in zip(size, self.stride, strict=True))

    def output_spacing(self, size: Sequence[int], spacing: Spacing | None = None) -> Tensor:
        """Spacing of the output, ``(1, D)`` or ``(B, D)``; input and output cover the same extent."""
        given = self._spacing if spacing is None else spacing
        rows = len(given) if isinstance(given, Tensor) and given.dim() == 2 else None
        steps = as_spacing(given, self.num_axes, batch=rows)
        ratio = [n / m for n, m in zip(size, self.output_size(size), strict=True)]
        return steps * torch.tensor(ratio, dtype=steps.dtype, device=steps.device)

    def mode_parameters(self) -> list[Tensor]:
        """Parameters of the responses, as stored; give them a small learning rate."""
        return [
            self.raw_direction,
            self.raw_scale,
            self.raw_damping,
            self.raw_oscillation,
            self.raw_transverse,
            self.oscillation_limit,
        ]

    def _physical(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Direction, scale, damping, oscillation, transverse: the constraints of the reparameterisation."""
        raw = [p.to(dtype) for p in self.mode_parameters()]
        unit = self._reference_length
        return (
            F.normalize(raw[0], dim=-1, eps=1e-12),
            (F.softplus(raw[1]) + SMALLEST) * unit,
            F.softplus(raw[2]) + SMALLEST,
            raw[5] * torch.tanh(raw[3]),
            F.softplus(raw[4]) * unit**2,
        )

    def _shape(self, size: tuple[int, ...], out_size: tuple[int, ...], spacing: Tensor, dtype: torch.dtype) -> ModeShape:
        """Parameters of the responses for a grid. Only the paper's variant looks at the grid."""
        direction, scale, damping, oscillation, transverse = self._physical(dtype)
        pole = torch.complex(-damping, oscillation)
        if self.variant == "exact":
            directions = direction[None]
            gain = reference_gain(direction, scale, pole, transverse, self.reference_spacing)[None]
        else:
            directions = spacing_frame(direction, spacing)
            grid = padded_sizes(size, out_size, self.padding_mode).size_in
            gain = torch.stack(
                [
                    grid_gain(
                        frequency_grid(grid, step, half=True, dtype=dtype, device=direction.device),
                        frame,
                        scale,
                        pole,
                        transverse,
                    )
                    for step, frame in zip(spacing, directions, strict=True)
                ]
            )
        return ModeShape(directions, scale[None], damping[None], oscillation[None], transverse[None], gain)

    def modes(self, size: Sequence[int] | None = None, spacing: Spacing | None = None) -> Modes:
        """The current physical parameters, from which anyone can rebuild the operator.

        Parameters
        ----------
        size, spacing
            Only for ``variant="paper"``, whose gain and directions depend on the grid; by default the reference field
            at the layer's spacing.
        """
        grid = _per_axis(tuple(size) if size is not None else round(self.field), self.num_axes, "size")
        steps = as_spacing(self._spacing if spacing is None else spacing, self.num_axes, device=self.mix_in.device)
        dtype = torch.promote_types(self.mix_in.dtype, torch.float32)
        shape = ModeShape(*[t[0] for t in self._shape(grid, grid, steps, dtype)])
        return Modes(
            direction=shape.direction,
            scale=shape.scale,
            pole=torch.complex(-shape.damping, shape.oscillation),
            transverse=shape.transverse,
            gain=shape.gain,
            mix_in=torch.complex(self.mix_in[:, 0].to(dtype), self.mix_in[:, 1].to(dtype)),
            mix_out=torch.complex(self.mix_out[..., 0].to(dtype), -self.mix_out[..., 1].to(dtype)),
        )

    def response(self, omega: Tensor) -> Tensor:
        """The symbol of the operator at any frequencies: ``(..., D)`` to ``(..., K, C)``, complex.

        For ``variant="paper"`` this is the symbol it uses on the half spectrum, with the gain of the reference field.
        """
        if omega.shape[-1:] != (self.num_axes,):
            raise ValueError(f"omega must have {self.num_axes} components last, got shape {tuple(omega.shape)}")
        modes = self.modes()
        omega = omega.to(modes.scale)
        if self.variant == "exact":
            return response_matrix(omega, modes)
        return response_matrix(omega, modes, hermitian=False)

    def kernel(
        self, size: int | Sequence[int], spacing: Spacing | None = None, *, centred: bool = False
    ) -> Tensor:
        """The spatial kernel on a periodic grid, ``(K, C, *size)``: the output for a unit impulse at the origin.

        Parameters
        ----------
        size
            Samples on each axis.
        spacing
            Physical step; by default the layer's.
        centred
            Put the origin at index ``size // 2`` instead of 0.
        """
        grid = _per_axis(size, self.num_axes, "size")
        steps = as_spacing(self._spacing if spacing is None else spacing, self.num_axes, device=self.mix_in.device)
        dtype = torch.promote_types(self.mix_in.dtype, torch.float32)
        impulses = torch.zeros(self.in_channels, self.in_channels, *grid, dtype=dtype, device=self.mix_in.device)
        channel = torch.arange(self.in_channels)
        impulses[(channel, channel, *[0] * self.num_axes)] = 1.0
        kernel = spectral_conv(
            impulses,
            self.mix_in.to(dtype),
            self.mix_out.to(dtype),
            self._shape(grid, grid, steps, dtype),
            spacing=steps,
            symmetry=self._symmetry,
        ).transpose(0, 1)
        if centred:
            kernel = torch.roll(kernel, [n // 2 for n in grid], dims=list(range(2, 2 + self.num_axes)))
        return kernel

    @property
    def _symmetry(self) -> Literal["real", "half"]:
        return "real" if self.variant == "exact" else "half"

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
            Samples of the output on the same extent, instead of ``ceil(size / stride)``.

        Returns
        -------
        Tensor
            ``(B, K, *output_size)`` or ``(K, *output_size)``, dtype of ``x``.
        """
        self._check_input(x)
        if x.dim() == self.num_axes + 1:
            return self.forward(x[None], spacing, output_size)[0]
        size = tuple(x.shape[2:])
        if output_size is None:
            out_size = self.output_size(size)
        else:
            out_size = _per_axis(output_size, self.num_axes, "output_size")
        given = self._spacing if spacing is None else spacing
        steps = as_spacing(given, self.num_axes, batch=x.shape[0], device=x.device)
        dtype = torch.promote_types(torch.promote_types(x.dtype, self.mix_in.dtype), torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            y = self._convolve(x.to(dtype), size, out_size, given, steps)
        return y.to(x.dtype)

    def _convolve(
        self, x: Tensor, size: tuple[int, ...], out_size: tuple[int, ...], given: Spacing, steps: Tensor
    ) -> Tensor:
        dtype = x.dtype
        if self.variant == "paper":
            x = self._standardise(x)
        mix_in, mix_out = self.mix_in.to(dtype), self.mix_out.to(dtype)
        bias = None if self.bias is None else self.bias.to(dtype)
        if self._may_cache(given):
            return self._convolve_cached(x, size, out_size, given, steps)
        shape = self._shape(size, out_size, steps, dtype)
        if self.training and self.mode_dropout > 0:
            kept = torch.rand(self.num_modes, device=x.device) >= self.mode_dropout
            shape = shape._replace(gain=shape.gain * kept / (1 - self.mode_dropout))
        return spectral_conv(
            x,
            mix_in,
            mix_out,
            shape,
            bias,
            spacing=steps,
            output_size=out_size,
            padding_mode=self.padding_mode,
            order=self.order,
            mode_chunk=self.mode_chunk,
            recompute=self.recompute,
            symmetry=self._symmetry,
        )

    def _may_cache(self, given: Spacing) -> bool:
        return not (
            self.training
            or torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or isinstance(given, Tensor)
            or any(p.is_inference() for p in self.mode_parameters())
        )

    def _convolve_cached(
        self, x: Tensor, size: tuple[int, ...], out_size: tuple[int, ...], given: Spacing, steps: Tensor
    ) -> Tensor:
        dtype = x.dtype
        plan = make_plan(
            x.shape[0],
            self.in_channels,
            self.out_channels,
            self.num_modes,
            size,
            out_size,
            padding=self.padding_mode,
            order=self.order,
            mode_chunk=self.mode_chunk,
            on_cpu=x.device.type == "cpu",
        )

        def evaluate() -> Responses:
            shape = self._shape(size, out_size, steps, dtype)
            omega = plan.band.omega(steps, dtype=dtype, both_signs=self._symmetry == "real")
            pair = respond_with(shape, omega, plan, self._symmetry)(slice(0, 1), slice(None))
            return Responses(pair.t1, pair.t2)

        key = (plan.band, tuple(steps[0].tolist()), dtype, x.device)
        responses = self._cache.get(key, self.mode_parameters(), evaluate)
        bias = None if self.bias is None else self.bias.to(dtype)
        return apply_responses(
            x, self.mix_in.to(dtype), self.mix_out.to(dtype), responses, bias, plan, self._symmetry
        )

    def _standardise(self, x: Tensor) -> Tensor:
        """The paper's note (i): each channel of each sample to mean 0 and variance 1, with a little noise in training."""
        axes = tuple(range(2, x.dim()))
        centred = x - x.mean(axes, keepdim=True)
        x = centred * (centred.square().mean(axes, keepdim=True) + STANDARDISE_EPS).rsqrt()
        if self.training and self.input_noise > 0:
            x = x + self.input_noise * torch.randn_like(x)
        return x

    def _check_input(self, x: Tensor) -> None:
        name = type(self).__name__
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} expects a tensor, got {type(x).__name__}")
        if not x.is_floating_point():
            raise TypeError(f"{name} expects real floating-point input, got {x.dtype}; convert it with x.float()")
        if x.dim() not in (self.num_axes + 1, self.num_axes + 2):
            raise ValueError(
                f"{name} expects (batch, channel, {self.num_axes} axes) or (channel, {self.num_axes} axes), "
                f"got shape {tuple(x.shape)}"
            )
        channels = x.shape[-self.num_axes - 1]
        if channels != self.in_channels:
            raise ValueError(f"{name} expects {self.in_channels} channels, got {channels} in shape {tuple(x.shape)}")
        if min(x.shape[-self.num_axes :]) < 1:
            raise ValueError(f"{name} got an empty axis: shape {tuple(x.shape)}")

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
        text = f"{self.in_channels}, {self.out_channels}, num_modes={self.num_modes}"
        defaults = {"stride": (1,) * self.num_axes, "padding_mode": "circular", "variant": "exact", "mode_dropout": 0.0}
        for name, default in defaults.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)!r}"
        if self.reference_spacing != (1.0,) * self.num_axes:
            text += f", spacing={self.reference_spacing}"
        return text if self.bias is not None else text + ", bias=False"


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
        Crops the spectrum before the inverse transform: alias-free, and cheaper than computing and discarding.
    spacing
        Reference spacing, in which the layer is initialised and which it assumes when not told another: a number or
        one per axis, in array-axis order.
    padding_mode
        ``"circular"`` wraps; ``"zeros"`` is the linear convolution; ``"reflect"`` mirrors without repeating the edge.
    variant
        ``"exact"`` keeps shifts, axes and resolution exactly; ``"paper"`` follows the paper's implementation notes.
    field
        Extent in pixels that the longest initial mode covers; by default 128, 64 and 32 in one, two and three
        dimensions.
    mode_dropout
        Probability of leaving a mode out, for the whole batch, in training.
    input_noise
        Standard deviation of the noise that the paper's variant adds to its standardised input in training.
    order, mode_chunk, recompute
        How the operator is evaluated, never what it is: see :mod:`torchsonic.functional.plan`. ``recompute=True``
        keeps only ``x`` for the backward pass.

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
