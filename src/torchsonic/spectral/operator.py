r"""A whole operator as plain numbers: its modes, their limits, and how they act on real signals.

With the gained and limited response of a mode, the operator's symbol is the Hermitian part of ``C F B``,

    H(w) = 1/2 [ C F(w) B + conj(C F(-w) B) ],      F_m(w) = g_m T_m(w)                        symmetry "real"
                                                    F_m(w) = (1 + sign w_D) g_m T_m(w)         symmetry "half"

The paper's notes use the half spectrum ``w_D > 0`` as it is, and a real output has the conjugate in the other half.
This is the Hermitian part of a response that is doubled in the first half and zero in the other. On the plane ``w_D =
0`` they set the imaginary part of the output to zero. That is not a convolution and has no symbol; for an impulse at
the origin it amounts to ``F_m(w) = g_m [T_m(w) + T_m(-w)] / 2``, which is used here. In all cases ``F`` is the spectrum
of the complex beam ``k_1 + i k_2``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchsonic.spectral.band import frequency_grid
from torchsonic.spectral.gain import reference_gain
from torchsonic.spectral.limits import UNLIMITED, ResponseLimits, limit_response
from torchsonic.spectral.response import Modes, Symmetry, mode_response
from torchsonic.spectral.spacing import Spacing

__all__ = ["ModeOperator", "frequency_parts", "response_matrix"]

SAMPLES = {1: 257, 2: 65, 3: 33}
"""On each axis, for means that have no closed form; odd, so that no frequency lacks its opposite."""
MOST_NUMBERS = 2**20
"""Of one temporary array."""


class ModeOperator(NamedTuple):
    """Everything a layer does at one spacing, except for its bias; the module's docstring has the equations.

    Attributes
    ----------
    modes
        Physical parameters.
    cutoff, limits
        Cutoffs ``(M,)`` in radians per length if there is a band limit, and limits of the responses; see
        :mod:`torchsonic.spectral.limits`.
    symmetry
        ``"real"`` is the exact operator, ``"half"`` the paper's use of the half spectrum.

    Examples
    --------
    >>> operator = torchsonic.SonicConv2d(3, 5, num_modes=4, variant="paper").reference_operator()
    >>> operator.symbol(torch.randn(7, 2)).shape
    torch.Size([7, 5, 3])
    """

    modes: Modes
    cutoff: Tensor | None = None
    limits: ResponseLimits = UNLIMITED
    symmetry: Symmetry = "real"

    @property
    def plain(self) -> bool:
        """Whether the modes alone determine the responses, so that closed forms exist."""
        return self.symmetry == "real" and not self.limits.active

    def responses(self, omega: Tensor) -> Tensor:
        """``F_m(w)`` at frequencies ``(..., D)``: ``(M, ...)``, complex."""
        if self.symmetry == "real":
            return self._limited(omega)
        side, response = omega[..., -1].sign(), self._limited(omega)
        return torch.where(side == 0, 0.5 * (response + self._limited(-omega)), (1 + side) * response)

    def _limited(self, omega: Tensor) -> Tensor:
        gained = mode_response(omega, *self.modes[:4]) * self.modes.gain.reshape(-1, *[1] * (omega.dim() - 1))
        points = [w[None, None] for w in omega.unbind(-1)]
        return limit_response(gained[None], points, None if self.cutoff is None else self.cutoff[None], self.limits)[0]

    def complex_symbol(self, omega: Tensor) -> Tensor:
        """``C F(w) B`` at frequencies ``(..., D)``: ``(..., K, C)``, complex."""
        response = self.responses(omega).movedim(0, -1)
        return (self.modes.mix_out * response[..., None, :]) @ self.modes.mix_in

    def symbol(self, omega: Tensor) -> Tensor:
        """``H(w)``, the Hermitian part of :meth:`complex_symbol`."""
        return 0.5 * (self.complex_symbol(omega) + self.complex_symbol(-omega).conj())

    def mean_powers(self, spacing: Spacing) -> Tensor:
        """``<|F_m|^2>`` over the Nyquist cell of a spacing, ``(M,)``.

        Plain modes use a closed form, since samples would miss sharp resonances; others use a mean over samples.
        """
        modes = self.modes
        if self.plain:
            return (modes.gain / reference_gain(*modes[:4], spacing)).square()
        axes = modes.direction.shape[-1]
        omega = frequency_grid((SAMPLES[axes],) * axes, spacing, dtype=modes.scale.dtype).flatten(0, -2)
        total = torch.zeros_like(modes.scale)
        for part in frequency_parts(omega, len(total)):
            total += self.responses(part).abs().square().sum(1)
        return total / len(omega)

    def select(self, index: Tensor | Sequence[int]) -> ModeOperator:
        """Some of the modes, in the given order."""
        places = torch.as_tensor(index)
        first = {name: getattr(self.modes, name)[places] for name in Modes._fields if name != "mix_out"}
        cutoff = None if self.cutoff is None else self.cutoff[places]
        return self._replace(modes=Modes(**first, mix_out=self.modes.mix_out[:, places]), cutoff=cutoff)

    def between(self, inputs: Sequence[int], outputs: Sequence[int]) -> ModeOperator:
        """The operator between some input and some output channels, with all modes."""
        mix_in, mix_out = self.modes.mix_in[:, list(inputs)], self.modes.mix_out[list(outputs)]
        return self._replace(modes=self.modes._replace(mix_in=mix_in, mix_out=mix_out))

    def each(self, change: Callable[[Tensor], Tensor]) -> ModeOperator:
        """Apply a function to every tensor."""
        cutoff = None if self.cutoff is None else change(self.cutoff)
        return self._replace(modes=Modes(*map(change, self.modes)), cutoff=cutoff)

    def to(self, dtype: torch.dtype) -> ModeOperator:
        """A copy without gradients on the CPU, in a real dtype and its complex counterpart."""
        return self.each(lambda t: t.detach().cpu().to(dtype.to_complex() if t.is_complex() else dtype))

    def check_finite(self, name: str) -> ModeOperator:
        """Refuse NaN and infinity, as left by diverged training; ``name`` is the name of the layer."""
        wrong = [field for field in Modes._fields if not getattr(self.modes, field).isfinite().all()]
        if self.cutoff is not None and not self.cutoff.isfinite().all():
            wrong.append("cutoff")
        if wrong:
            raise ValueError(
                f"layer {name} has modes that are not finite ({', '.join(wrong)}): did its training diverge?"
            )
        return self


def response_matrix(
    omega: Tensor,
    modes: Modes,
    *,
    hermitian: bool = True,
    cutoff: Tensor | None = None,
    limits: ResponseLimits = UNLIMITED,
) -> Tensor:
    r"""The symbol of the real operator, one K x C matrix per frequency.

    .. math:: \hat H(\omega) = \tfrac12\Big[\sum_m C_{km} g_m T_m(\omega) B_{mc}
              + \overline{\sum_m C_{km} g_m T_m(-\omega) B_{mc}}\Big]

    Taking the real part of a convolution in space amounts to taking this Hermitian part of its symbol.

    Parameters
    ----------
    omega
        ``(..., D)``.
    hermitian
        ``False`` drops the second term, which gives the symbol of the complex operator.
    cutoff, limits
        Limits of ``g_m T_m``, if there are any; see :mod:`torchsonic.spectral.limits`.

    Returns
    -------
    Tensor
        ``(..., K, C)``, complex.
    """
    limits.check(cutoff)
    operator = ModeOperator(modes, cutoff, limits)
    return operator.symbol(omega) if hermitian else operator.complex_symbol(omega)


def frequency_parts(omega: Tensor, numbers: int) -> Iterator[Tensor]:
    """Split frequencies ``(N, D)`` so that an array of ``numbers`` per frequency stays small."""
    yield from omega.split(max(1, MOST_NUMBERS // numbers))
