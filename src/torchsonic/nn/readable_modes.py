"""What a layer has learned: physical parameters, the symbol of the operator, kernels in space."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.arguments import per_axis
from torchsonic.functional.conv import spectral_conv
from torchsonic.nn.bank import ModeBank
from torchsonic.spectral.operator import ModeOperator
from torchsonic.spectral.response import Modes
from torchsonic.spectral.spacing import Spacing, as_spacing, orientation_of


class ReadableModes(ModeBank):
    """Methods that describe the modes of a layer; none is needed to apply it."""

    def modes(
        self, size: Sequence[int] | None = None, spacing: Spacing | None = None, *, without_limits: bool = False
    ) -> Modes:
        """The current physical parameters, from which the operator can be rebuilt.

        Parameters
        ----------
        size, spacing
            Only for ``variant="paper"``, whose gain and directions depend on the grid; by default the reference field
            at the reference spacing.
        without_limits
            Required if the layer limits its responses. :class:`Modes` does not contain limits; :meth:`cutoff` and
            :attr:`limits` do.
        """
        if self.limits.active and not without_limits:
            raise ValueError(
                f"modes() does not include the limits of this layer ({self.limits}); "
                "pass without_limits=True, and use cutoff() and limits as well"
            )
        if self.variant == "exact" and not (size is None and spacing is None):
            raise ValueError("size and spacing do not change the modes of variant='exact'; leave them out")
        grid = per_axis(tuple(size) if size is not None else round(self.field), self.num_axes, "size")
        steps = as_spacing(self.reference_spacing if spacing is None else spacing, self.num_axes, device=self._device)
        dtype = torch.promote_types(self.mix_in.dtype, torch.float32)
        shape = self._shape(grid, steps, dtype).each(lambda t: t[0])
        mix_in, mix_out, _ = self.mixing(dtype)
        return Modes(
            direction=shape.direction,
            scale=shape.scale,
            pole=torch.complex(-shape.damping, shape.oscillation),
            transverse=shape.transverse,
            gain=shape.gain,
            mix_in=torch.complex(mix_in[:, 0], mix_in[:, 1]),
            mix_out=torch.complex(mix_out[..., 0], -mix_out[..., 1]),
        )

    def cutoff(self, spacing: Spacing | None = None) -> Tensor | None:
        """Cutoff frequencies of the band limit, ``(M,)`` in radians per length, or ``None`` if there is none.

        Parameters
        ----------
        spacing
            Only for ``variant="paper"``, whose cutoffs follow the grid; by default the reference spacing.
        """
        if self.variant == "exact" and spacing is not None:
            raise ValueError("spacing does not change the cutoffs of variant='exact'; leave it out")
        steps = as_spacing(self.reference_spacing if spacing is None else spacing, self.num_axes, device=self._device)
        found = self._cutoff(steps, torch.promote_types(self.mix_in.dtype, torch.float32))
        return None if found is None else found[0]

    def reference_operator(self) -> ModeOperator:
        """The operator at the reference spacing (modes, limits and symmetry), without bias and standardisation.

        For ``variant="paper"``, whose gain depends on the grid, the gain is that of the reference field.
        """
        return ModeOperator(self.modes(without_limits=True), self.cutoff(), self.limits, self._symmetry)

    def response(self, omega: Tensor) -> Tensor:
        """The symbol of the operator at the given frequencies: ``(..., D)`` to ``(..., K, C)``, complex.

        For ``variant="paper"`` this is the symbol it uses on the half spectrum, with the gain of the reference field.
        """
        if omega.shape[-1:] != (self.num_axes,):
            raise ValueError(f"the last axis of omega must have size {self.num_axes}, got shape {tuple(omega.shape)}")
        operator = self.reference_operator()._replace(symmetry="real")
        omega = omega.to(operator.modes.scale)
        return operator.symbol(omega) if self.variant == "exact" else operator.complex_symbol(omega)

    def kernel(self, size: int | Sequence[int], spacing: Spacing | None = None, *, centred: bool = False) -> Tensor:
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
        kernel = self._impulse_response(size, spacing, *self.mixing(self.mix_in.dtype)[:2]).transpose(0, 1)
        if centred:
            kernel = torch.roll(kernel, [n // 2 for n in kernel.shape[2:]], dims=list(range(2, 2 + self.num_axes)))
        return kernel

    def mode_kernels(self, size: int | Sequence[int], spacing: Spacing | None = None) -> Tensor:
        r"""The two real kernels of each mode on a periodic grid, ``(M, 2, *size)``, origin first.

        .. math:: y = \operatorname{Re}(C)\,(k_1 * P - k_2 * Q) - \operatorname{Im}(C)\,(k_1 * Q + k_2 * P),
           \qquad P + iQ = B x

        They are the real and imaginary parts of an oscillating beam along the mode's direction.
        """
        # B = 1 gives Re w = k_1 and Im w = k_2; C passes them on one by one.
        modes = self.num_modes * self.orbit_size
        mix_in = torch.eye(2, device=self._device)[:1].mT.expand(modes, 2, 1)
        mix_out = torch.eye(2 * modes, device=self._device).unflatten(1, (modes, 2))
        return self._impulse_response(size, spacing, mix_in, mix_out)[0].unflatten(0, (modes, 2))

    def _impulse_response(
        self, size: int | Sequence[int], spacing: Spacing | None, mix_in: Tensor, mix_out: Tensor
    ) -> Tensor:
        """Output ``(C, K, *size)`` for a unit impulse at the origin of each channel, with the given mixing matrices."""
        grid = per_axis(size, self.num_axes, "size")
        given = self.told(spacing)
        steps = as_spacing(given, self.num_axes, device=self._device)
        dtype = torch.promote_types(self.mix_in.dtype, torch.float32)
        channels = mix_in.shape[-1]
        impulses = torch.zeros(channels, channels, *grid, dtype=dtype, device=self._device)
        channel = torch.arange(channels, device=self._device)
        impulses[(channel, channel, *[0] * self.num_axes)] = 1.0
        return spectral_conv(
            impulses,
            mix_in.to(dtype),
            mix_out.to(dtype),
            self._shape(grid, steps, dtype, orientation_of(given)),
            spacing=steps,
            symmetry=self._symmetry,
            limits=self.limits,
        )
