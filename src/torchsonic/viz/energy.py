r"""How much each mode and each layer passes, and at which frequencies.

.. math:: E_m = g_m^2\,\langle |T_m|^2\rangle\,\|B_m\|^2\,\|C_m\|^2, \qquad
   E(\omega) = \sum_{kc} |\hat H_{kc}(\omega)|^2

The mean is over the Nyquist cell of the reference spacing, in closed form if there is one, since samples would miss
sharp resonances. Limits of the responses and the half spectrum of the paper's variant are included as the layer
applies them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchsonic.nn import SonicConvNd
from torchsonic.spectral.operator import frequency_parts
from torchsonic.spectral.response import Modes
from torchsonic.viz.lattice import Lattice, physical_modes, physical_operator, reference_lattice

SMALLEST = torch.finfo(torch.float64).tiny
"""In place of zero where a layer that lets nothing through is divided by its energy."""


def mode_energies(layer: SonicConvNd) -> Tensor:
    """Power of white noise that each mode passes on its own, ``(M,)``.

    Examples
    --------
    >>> layer = torchsonic.SonicConv2d(2, 3, num_modes=5)
    >>> torchsonic.viz.mode_energies(layer).shape
    torch.Size([5])
    """
    operator = physical_operator(layer)
    return operator.mean_powers(layer.reference_spacing) * _norms(operator.modes).square()


def peak_gains(layer: SonicConvNd) -> Tensor:
    r"""Largest amplification of a wave by each mode, :math:`g_m \|B_m\| \|C_m\| / |\mathrm{Re}\,a_m|`, ``(M,)``.

    It occurs at the resonance, :math:`\omega = v_m\,\mathrm{Im}\,a_m / s_m`. If limits or the half spectrum of the
    paper's variant may have cut that off, the largest value on :func:`reference_lattice` is used if it is higher.
    """
    operator = physical_operator(layer)
    modes = operator.modes
    resonance = modes.direction * (modes.pole.imag / modes.scale)[:, None]
    highest = torch.stack([operator.select([m]).responses(w)[0].abs() for m, w in enumerate(resonance)])
    if not operator.plain:
        for part in frequency_parts(reference_lattice(layer).omega.flatten(0, -2), len(highest)):
            highest = torch.maximum(highest, operator.responses(part).abs().amax(1))
    return highest * _norms(modes)


def _norms(modes: Modes) -> Tensor:
    return modes.mix_in.abs().square().sum(1).sqrt() * modes.mix_out.abs().square().sum(0).sqrt()


def decay_lengths(layer: SonicConvNd) -> Tensor:
    """Distance over which each mode falls by a factor of e, ``(M,)``."""
    modes = physical_modes(layer)
    return modes.scale / modes.pole.real.abs()


def wavelengths(layer: SonicConvNd) -> Tensor:
    """Wavelength of each mode's oscillation, infinite if it does not oscillate, ``(M,)``."""
    modes = physical_modes(layer)
    return 2 * math.pi * modes.scale / modes.pole.imag.abs()


def spectral_energy(layer: SonicConvNd, lattice: Lattice) -> Tensor:
    r"""Energy of the whole layer over frequency, :math:`\sum_{kc} |\hat H_{kc}(\omega)|^2`: ``(*size)``.

    It needs two M x M matrices, not the K x C matrix of each frequency.
    """
    operator = physical_operator(layer)
    b, c = operator.modes.mix_in, operator.modes.mix_out
    same = (c.mH @ c) * (b @ b.mH).mT
    mirrored = (c.mH @ c.conj()) * (b.conj() @ b.mH).mT
    parts = []
    for omega in frequency_parts(lattice.omega.flatten(0, -2), layer.num_modes):
        # The Hermitian part: half the responses and half their mirror image, conjugated.
        forth, back = operator.responses(omega), operator.responses(-omega)
        both = _form(forth, same, forth) + _form(back, same, back) + 2 * _form(forth, mirrored, back.conj())
        parts.append(0.25 * both)
    return torch.cat(parts).clamp_min(0).reshape(lattice.size)


def _form(left: Tensor, matrix: Tensor, right: Tensor) -> Tensor:
    """Real part of ``left^H matrix right`` for each column."""
    return (left.conj() * (matrix @ right)).sum(0).real


def radial_profile(values: Tensor, lattice: Lattice, bins: int = 24) -> tuple[Tensor, Tensor]:
    """Mean of values ``(*size)`` over shells of equal frequency, up to the lowest Nyquist frequency of all axes.

    Returns
    -------
    tuple
        Centres of the shells in radians per length, and means, each ``(bins,)``; empty shells are omitted.
    """
    radius = lattice.omega.norm(dim=-1).flatten()
    edge = math.pi / max(lattice.spacing)
    shell = (radius / edge * bins).floor().long()
    inside = shell < bins
    count = torch.bincount(shell[inside], minlength=bins)
    total = torch.bincount(shell[inside], weights=values.double().flatten()[inside], minlength=bins)
    middles = (torch.arange(bins, dtype=torch.float64) + 0.5) * edge / bins
    return middles[count > 0], (total / count.clamp_min(1))[count > 0]


def pair_energies(layer: SonicConvNd, lattice: Lattice) -> Tensor:
    """Mean energy of each pair of output and input channel, ``(K, C)``."""
    operator = physical_operator(layer)
    omega = lattice.omega.flatten(0, -2)
    total = torch.zeros(layer.out_channels, layer.in_channels, dtype=torch.float64)
    for part in frequency_parts(omega, layer.out_channels * max(layer.in_channels, layer.num_modes)):
        total += operator.symbol(part).abs().square().sum(0)
    return total / len(omega)


def shares_of_highest(values: Tensor, of: Tensor | None = None) -> Tensor:
    """Values over the highest (of others, if given), far below all that is shown where they are zero."""
    return (values / (values if of is None else of).max().clamp_min(SMALLEST)).clamp_min(1e-12)
