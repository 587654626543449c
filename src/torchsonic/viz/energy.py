r"""How much each mode and each layer lets through, and where in frequency.

.. math:: E_m = g_m^2\,\langle |T_m|^2\rangle\,\|B_m\|^2\,\|C_m\|^2, \qquad
   E(\omega) = \sum_{kc} |\hat H_{kc}(\omega)|^2

The mean runs over the Nyquist cell of the reference spacing, in closed form: samples would miss sharp resonances.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchsonic.functional.transfer import reference_gain
from torchsonic.nn import SonicConvNd
from torchsonic.viz.lattice import Lattice, mode_spectra, physical_modes

__all__ = [
    "decay_lengths",
    "mode_energies",
    "pair_energies",
    "peak_gains",
    "radial_profile",
    "spectral_energy",
    "wavelengths",
]


def mode_energies(layer: SonicConvNd) -> Tensor:
    """Power of white noise that passes each mode alone, ``(M,)``.

    Examples
    --------
    >>> layer = torchsonic.SonicConv2d(2, 3, num_modes=5)
    >>> torchsonic.viz.mode_energies(layer).shape
    torch.Size([5])
    """
    modes = physical_modes(layer)
    unit = reference_gain(modes.direction, modes.scale, modes.pole, modes.transverse, layer.reference_spacing)
    return (modes.gain / unit).square() * _norms(modes.mix_in, modes.mix_out).square()


def peak_gains(layer: SonicConvNd) -> Tensor:
    r"""The most that each mode amplifies any wave, :math:`g_m \|B_m\| \|C_m\| / |\mathrm{Re}\,a_m|`, ``(M,)``."""
    modes = physical_modes(layer)
    return modes.gain / modes.pole.real.abs() * _norms(modes.mix_in, modes.mix_out)


def _norms(mix_in: Tensor, mix_out: Tensor) -> Tensor:
    return mix_in.abs().square().sum(1).sqrt() * mix_out.abs().square().sum(0).sqrt()


def decay_lengths(layer: SonicConvNd) -> Tensor:
    """Distance along each mode over which it falls by a factor of e, ``(M,)``."""
    modes = physical_modes(layer)
    return modes.scale / modes.pole.real.abs()


def wavelengths(layer: SonicConvNd) -> Tensor:
    """Length of each mode's oscillation, infinite for one that does not oscillate, ``(M,)``."""
    modes = physical_modes(layer)
    return 2 * math.pi * modes.scale / modes.pole.imag.abs()


def spectral_energy(layer: SonicConvNd, lattice: Lattice) -> Tensor:
    r"""Energy of the whole layer over frequency, :math:`\sum_{kc} |\hat H_{kc}(\omega)|^2`: ``(*size)``.

    It needs two M x M matrices, not the K x C matrix of each frequency.
    """
    modes = physical_modes(layer)
    b, c = modes.mix_in, modes.mix_out
    same = (c.mH @ c) * (b @ b.mH).mT
    forth = mode_spectra(modes, lattice).flatten(1)
    energy = _form(forth, same, forth)
    if layer.variant == "exact":  # the Hermitian part: half the symbol and half its mirror image, conjugated
        mirrored = (c.mH @ c.conj()) * (b.conj() @ b.mH).mT
        back = forth.flip(1)
        energy = 0.25 * (energy + energy.flip(0) + 2 * _form(forth, mirrored, back.conj()))
    return energy.clamp_min(0).reshape(lattice.size)


def _form(left: Tensor, matrix: Tensor, right: Tensor) -> Tensor:
    """Real part of ``left^H matrix right`` for each column."""
    return (left.conj() * (matrix @ right)).sum(0).real


def radial_profile(values: Tensor, lattice: Lattice, bins: int = 24) -> tuple[Tensor, Tensor]:
    """Mean of values ``(*size)`` over shells of equal frequency, up to the lowest Nyquist frequency of all axes.

    Returns
    -------
    tuple
        Middles of the shells in radians per length and means, each ``(bins,)``; shells without a sample are left out.
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
    with torch.no_grad():
        omega = lattice.omega.flatten(0, -2)
        total = torch.zeros(layer.out_channels, layer.in_channels, dtype=torch.float64)
        most = max(1, 2**22 // (layer.out_channels * layer.in_channels))
        for part in omega.split(most):
            total += layer.response(part.to(layer.mix_in.device)).abs().square().sum(0).cpu().double()
    return total / len(omega)
