"""The modes of a layer: the stored parameters and the physical ones they stand for."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from torchsonic.arguments import is_number
from torchsonic.engine.parameters import physical_with_gain
from torchsonic.nn.init import check_bank, initial_parameters
from torchsonic.nn.padded_layer import PaddedLayer
from torchsonic.nn.released_init import Bank, expand_bank, released_parameters
from torchsonic.spectral.band import frequency_grid
from torchsonic.spectral.constants import fixed, pi
from torchsonic.spectral.gain import grid_gain, reference_gain
from torchsonic.spectral.limits import ResponseLimits
from torchsonic.spectral.parameters import physical, smallest
from torchsonic.spectral.response import ModeShape, Symmetry, spacing_frame, turn_directions
from torchsonic.spectral.spacing import widest_float

Variant = Literal["exact", "paper"]
Gain = Literal["power", "dc", "free"]

DEFAULT_FIELD = {1: 128.0, 2: 64.0, 3: 32.0}


@fixed
def largest_log_gain() -> float:
    """Bounds a free gain by 5e8, so that responses and their squares stay finite in float32."""
    return 20.0


class ModeBank(PaddedLayer):
    """Parameters of M modes between C and K channels, all real; see :class:`torchsonic.SonicConv2d`.

    Stored numbers are unconstrained; see :mod:`torchsonic.spectral.parameters`. A free gain is ``g = exp(.)``, and a
    cutoff ``w_c = sigmoid(.) pi / d_max`` is a fraction of the Nyquist frequency of the coarsest axis.
    """

    takes_orientation = True
    orbit_size: int = 1  # modes of the operator that share the parameters of one; see torchsonic.nn.orbit
    bias: nn.Parameter | None
    in_channels: int
    out_channels: int
    num_modes: int
    variant: Variant
    field: float
    bank: dict[str, float]
    gain: Gain
    limits: ResponseLimits

    def _choose_bank(self, bank: Bank | None, field: float | None) -> None:
        """Set ``bank`` and ``field``, which modes are drawn from."""
        self.bank = dict(check_bank(expand_bank(bank)))
        if "released" in self.bank and (self.num_axes == 1 or field is not None):
            given = "1-D" if self.num_axes == 1 else f"field={field}"
            raise ValueError(
                f"bank 'released' is for images and volumes and takes no field, got {given}; use another bank"
            )
        field = DEFAULT_FIELD[self.num_axes] if field is None else field
        if not is_number(field) or field <= 0:
            raise ValueError(f"field must be a positive number of pixels, got {field!r}")
        self.field = float(field)

    def _make_parameters(self, device, dtype) -> None:
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a real floating-point type, got {dtype}")

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        modes = self.num_modes
        self.mix_in = parameter(modes, 2, self.in_channels)  # Re B, Im B
        self.mix_out = parameter(self.out_channels, modes, 2)  # Re C, -Im C
        self.raw_direction = parameter(modes, self.num_axes)
        self.raw_scale = parameter(modes)
        self.raw_damping = parameter(modes)
        self.raw_oscillation = parameter(modes)
        self.raw_transverse = parameter(modes)
        self.oscillation_limit = parameter()  # rho
        self.log_gain = parameter(modes) if self.gain == "free" else None
        self.raw_cutoff = parameter(modes) if self.limits.band_order else None
        self.limits.check(self.raw_cutoff)

    def reset_parameters(self, generator: torch.Generator | None = None, **bank: float) -> None:
        """Draw all parameters anew; ``bank`` overrides settings of the layer's ``bank``."""
        if self.mix_in.is_meta:
            return
        bank = {**self.bank, **bank}
        check_bank(bank)
        sizes = self.in_channels, self.out_channels, self.num_modes
        if "released" in bank:  # where layers behind strides think in pixels of their own
            values = released_parameters(*sizes, self.network_spacing, bank["released"], generator)
        else:
            options = {"half_circle": self.variant == "paper", "generator": generator, **bank}
            values = initial_parameters(*sizes, self.reference_spacing, self.field, **options)
        with torch.no_grad():
            for name, value in values.items():
                stored = getattr(self, name)
                stored.copy_(value.to(stored.dtype))  # cast first: not every device has float64
            if self.log_gain is not None:  # starts as the gain that keeps the power of white noise
                direction, scale, damping, oscillation, transverse = self._physical(widest_float(self._device))
                pole = torch.complex(-damping, oscillation)
                self.log_gain.copy_(reference_gain(direction, scale, pole, transverse, self.reference_spacing).log())
            if self.raw_cutoff is not None:  # half the Nyquist frequency, as the released code starts
                self.raw_cutoff.zero_()

    @property
    def _device(self) -> torch.device:
        return self.mix_in.device

    def mode_parameters(self) -> list[Tensor]:
        """Stored parameters of the responses, which need a small learning rate."""
        always: list[Tensor] = [
            self.raw_direction,
            self.raw_scale,
            self.raw_damping,
            self.raw_oscillation,
            self.raw_transverse,
            self.oscillation_limit,
        ]
        return always + [p for p in (self.log_gain, self.raw_cutoff) if p is not None]

    def mixing(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
        """``mix_in (M, 2, C)``, ``mix_out (K, M, 2)`` and the bias ``(K,)`` of the operator, for all its modes."""
        return self.mix_in.to(dtype), self.mix_out.to(dtype), None if self.bias is None else self.bias.to(dtype)

    def _raw(self, dtype: torch.dtype) -> list[Tensor]:
        """Stored direction, scale, damping, oscillation and transverse, and the limit of oscillation."""
        return [p.to(dtype) for p in self.mode_parameters()[:6]]

    def _physical(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Direction, scale, damping, oscillation, transverse."""
        return physical(self._raw(dtype), self.reference_spacing)

    @property
    def band_limit(self) -> int | None:
        """Order of the band limit, ``limits.band_order``, or ``None``."""
        return self.limits.band_order or None

    @property
    def magnitude_limit(self) -> float | None:
        """Largest magnitude of the responses, ``limits.magnitude``, or ``None``."""
        return self.limits.magnitude or None

    @property
    def soft_limit(self) -> bool:
        """Whether the magnitude limit is smooth, ``limits.soft``."""
        return self.limits.soft

    def _cutoff(self, spacing: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Cutoffs ``(G, M)``: a fraction of the Nyquist frequency of the reference or, as in the paper, the grid."""
        if self.raw_cutoff is None:
            return None
        part = (torch.sigmoid(self.raw_cutoff.to(dtype)) + smallest())[None]
        if self.variant == "exact":
            return part * (pi() / max(self.reference_spacing))
        return part * (pi() / spacing.amax(-1, keepdim=True).to(dtype))

    def _shape(
        self, grid: tuple[int, ...], spacing: Tensor, dtype: torch.dtype, orientation: Tensor | None = None
    ) -> ModeShape:
        """Parameters of the responses on an array. Only the paper's variant uses its size and spacing ``(G, D)``."""
        if self.variant == "exact" and self.gain == "power":
            six = physical_with_gain(self._raw(dtype), self.reference_spacing)
            shape = ModeShape(*[t[None] for t in six], cutoff=self._cutoff(spacing, dtype))
            return shape.turned(orientation)
        direction, scale, damping, oscillation, transverse = self._physical(dtype)
        pole = torch.complex(-damping, oscillation)
        if self.variant == "exact":
            directions = turn_directions(direction[None], orientation)
        elif orientation is None:
            directions = spacing_frame(direction, spacing)
        else:
            raise ValueError(
                "variant='paper' cannot take an orientation, since its half spectrum is tied to the last array axis; "
                "use variant='exact', or rearrange the array"
            )
        if self.gain == "dc":
            gain = pole.abs()[None]
        elif self.log_gain is not None:
            gain = self.log_gain.to(dtype).clamp(-largest_log_gain(), largest_log_gain()).exp()[None]
        else:
            gains = []
            for step, frame in zip(spacing, directions, strict=True):
                omega = frequency_grid(grid, step, half=True, dtype=dtype, device=direction.device)
                gains.append(grid_gain(omega, frame, scale, pole, transverse))
            gain = torch.stack(gains) if gains else scale.new_empty(0, len(scale))
        scale, damping, oscillation, transverse = (t[None] for t in (scale, damping, oscillation, transverse))
        return ModeShape(directions, scale, damping, oscillation, transverse, gain, self._cutoff(spacing, dtype))

    @property
    def _symmetry(self) -> Symmetry:
        return "real" if self.variant == "exact" else "half"
