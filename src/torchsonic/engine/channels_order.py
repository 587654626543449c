"""The order that transforms channels: transform, mix, couple, mix, transform back; and backward the five adjoints.

This is the paper's order, and the cheaper one if there are more modes than channels. The two real signals ``P, Q`` of a
mode have a half spectrum each. :mod:`torchsonic.engine.modes_order` is the other order and describes the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from torchsonic.engine.call import Kept, Mixing
from torchsonic.engine.couplings import CouplingOf
from torchsonic.engine.plan import Plan, split
from torchsonic.engine.products import add_spectrum, correlate_spectra, mix_modes
from torchsonic.engine.transform import analyse, analyse_adjoint, synthesise, synthesise_adjoint

__all__ = ["backward", "forward"]

# The inverse transform copies its input, so it takes a few channels of at most this size at a time.
INVERSE_BYTES = 64 << 20


def forward(mixing: Mixing, coupling_of: CouplingOf, plan: Plan, *, keep: bool = False) -> tuple[Tensor, list[Kept]]:
    """Apply the operator."""
    x, mix_in, mix_out, bias = mixing
    x, band = x.contiguous(), plan.band
    y = x.new_empty(x.shape[0], mix_out.shape[0], *plan.out_size)
    kept: list[Kept] = []
    for samples in plan.sample_chunks(x.shape[0]):
        spectrum, parts, total = analyse(x[samples], band, plan.boundary), [], None
        for modes in plan.mode_chunks(mix_in.shape[0]):
            z = mix_modes(mix_in[modes].flatten(0, 1), spectrum)
            w = coupling_of(samples, modes).forward(z)
            total = add_spectrum(total, mix_out[:, modes].flatten(1), w.flatten(1, 2))
            if keep:
                parts.append(Kept(z, spectrum))
        assert total is not None
        if bias is not None:
            total[(..., *[0] * band.num_axes)] += bias
        _put(y[samples], total, lambda part: synthesise(part, band, plan.out_size))
        kept += [Kept.of_all_modes(parts)] if keep else []
    return y, kept


def backward(
    mixing: Mixing, grad_y: Tensor, coupling_of: CouplingOf, plan: Plan, kept: Sequence[Kept], *, need_x: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Gradients of ``x`` (if needed), ``mix_in`` and ``mix_out``; the couplings collect those of the responses."""
    x, mix_in, mix_out, band = mixing.x.contiguous(), mixing.mix_in, mixing.mix_out, plan.band
    grad_in, grad_out = mix_in.new_zeros(mix_in.shape), mix_out.new_zeros(mix_out.shape)
    grad_x = x.new_empty(x.shape) if need_x else None
    for index, samples in enumerate(plan.sample_chunks(x.shape[0])):
        there, total = kept[index] if kept else None, None
        spectrum = there.other if there else analyse(x[samples], band, plan.boundary)
        grad_spectrum = synthesise_adjoint(grad_y[samples], band)
        for modes in plan.mode_chunks(mix_in.shape[0]):
            coupling, w_in = coupling_of(samples, modes), mix_in[modes].flatten(0, 1)
            z = there.coefficients[:, modes] if there else mix_modes(w_in, spectrum)
            found = correlate_spectra(grad_spectrum, coupling.forward(z).flatten(1, 2), band)
            grad_out[:, modes].add_(found.unflatten(1, (-1, 2)))
            g = coupling.backward(mix_modes(mix_out[:, modes].flatten(1).mT, grad_spectrum), z).flatten(1, 2)
            grad_in[modes].add_(correlate_spectra(g, spectrum, band).unflatten(0, (-1, 2)))
            if grad_x is not None:
                total = add_spectrum(total, w_in.mT, g)
        if grad_x is not None and total is not None:
            _put(grad_x[samples], total, lambda part: analyse_adjoint(part, band, plan.size, plan.boundary))
    return grad_x, grad_in.mul_(math.prod(band.size_in)), grad_out


def _put(y: Tensor, spectrum: Tensor, transform: Callable[[Tensor], Tensor]) -> None:
    """Transform the channels of a spectrum back into ``y``, a few at a time."""
    of_one = spectrum[:, :1].numel() * spectrum.element_size()
    for part in split(spectrum.shape[1], max(1, INVERSE_BYTES // max(of_one, 1))):
        y[:, part].copy_(transform(spectrum[:, part]))
