"""The order that transforms modes: mix, transform, couple, transform back, mix; and backward the five adjoints.

The two real signals ``P, Q`` of a mode are transformed as one complex signal with a full spectrum. The plan cuts the
batch into chunks that suit caches and allocator, and the modes into chunks that bound the memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from torchsonic.engine.call import Kept, Mixing
from torchsonic.engine.couplings import CouplingOf
from torchsonic.engine.plan import Plan
from torchsonic.engine.products import add_product, correlate, mix
from torchsonic.engine.transform import (
    analyse_modes,
    analyse_modes_adjoint,
    synthesise_modes,
    synthesise_modes_adjoint,
)
from torchsonic.spectral.constants import constant

__all__ = ["backward", "forward"]


def forward(mixing: Mixing, coupling_of: CouplingOf, plan: Plan, *, keep: bool = False) -> tuple[Tensor, list[Kept]]:
    """Apply the operator.

    Parameters
    ----------
    coupling_of
        Returns the coupling of some samples and modes.
    keep
        Also return intermediate results for the backward pass, which computes them again otherwise.

    Returns
    -------
    tuple
        ``y (B, K, *out_size)``, and what is kept of each chunk of samples.
    """
    x, mix_in, mix_out, bias = mixing
    x, band = x.contiguous(), plan.band
    y = x.new_empty(x.shape[0], mix_out.shape[0], *plan.out_size)
    kept: list[Kept] = []
    for samples in plan.sample_chunks(x.shape[0]):
        parts = []
        for modes in plan.mode_chunks(mix_in.shape[0]):
            z = analyse_modes(mix(mix_in[modes].flatten(0, 1), x[samples]), band, plan.boundary)
            signals = synthesise_modes(coupling_of(samples, modes).forward(z), band, plan.out_size)
            add_product(y[samples], mix_out[:, modes].flatten(1), signals, first=modes.start == 0, bias=bias)
            if keep:
                parts.append(Kept(z, signals))
        kept += [Kept.of_all_modes(parts)] if keep else []
    return y, kept


def backward(
    mixing: Mixing, grad_y: Tensor, coupling_of: CouplingOf, plan: Plan, kept: Sequence[Kept], *, need_x: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Gradients of ``x`` (if needed), ``mix_in`` and ``mix_out``; the couplings collect those of the responses.

    Without ``kept``, intermediate results are computed again from ``x``.
    """
    x, mix_in, mix_out, band = mixing.x.contiguous(), mixing.mix_in, mixing.mix_out, plan.band
    back_in, back_out, signs = mix_in, mix_out, None
    if not band.half:  # adjoints work on conjugates (see `transform`), so the sign of every Q changes
        signs = constant((1.0, -1.0), x.device, x.dtype)
        back_in, back_out = mix_in * signs[:, None], mix_out * signs
    # Contiguous whatever the layout of the operands, as the compiled operator declares.
    grad_in, grad_out = mix_in.new_zeros(mix_in.shape), mix_out.new_zeros(mix_out.shape)
    grad_x = x.new_empty(x.shape) if need_x else None
    for index, samples in enumerate(plan.sample_chunks(x.shape[0])):
        xs, gs, there = x[samples], grad_y[samples], kept[index] if kept else None
        for modes in plan.mode_chunks(mix_in.shape[0]):
            coupling = coupling_of(samples, modes)
            if there:
                z, signals = there.coefficients[:, modes], there.other[:, 2 * modes.start : 2 * modes.stop]
            else:
                z = analyse_modes(mix(mix_in[modes].flatten(0, 1), xs), band, plan.boundary)
                signals = synthesise_modes(coupling.forward(z), band, plan.out_size)
            grad_out[:, modes].add_(correlate(gs, signals).unflatten(1, (-1, 2)))
            del signals  # their memory serves the adjoints
            g = synthesise_modes_adjoint(mix(back_out[:, modes].flatten(1).mT, gs), band)
            u = analyse_modes_adjoint(coupling.backward(g, z), band, plan.size, plan.boundary)
            grad_in[modes].add_(correlate(u, xs).unflatten(0, (-1, 2)))
            if grad_x is not None:
                add_product(grad_x[samples], back_in[modes].flatten(0, 1).mT, u, first=modes.start == 0)
    return grad_x, grad_in if signs is None else grad_in.mul_(signs[:, None]), grad_out
