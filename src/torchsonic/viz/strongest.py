"""Which modes of a layer matter most, and their sizes in words."""

from __future__ import annotations

from torch import Tensor

from torchsonic.nn import SonicConvNd
from torchsonic.viz.energy import SMALLEST, decay_lengths, mode_energies, wavelengths
from torchsonic.viz.style import short

__all__ = ["MOST", "mode_words", "strongest_modes"]

MOST = {1: 12, 2: 24, 3: 6}
"""How many are shown unless told otherwise, by the number of axes."""
DECAY = "\N{SCRIPT SMALL L}"


def strongest_modes(layer: SonicConvNd, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Numbers of the modes with most energy, in order, and their parts of the whole layer's; each ``(count,)``."""
    if count is not None and count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    energy = mode_energies(layer)
    order = energy.argsort(descending=True)[:count]
    return order, energy[order] / energy.sum().clamp_min(SMALLEST)


def mode_words(layer: SonicConvNd, index: Tensor, unit: str) -> list[str]:
    """Decay length and wavelength of modes, as short words; a wave of 100 decay lengths is no wave that is seen."""
    lengths, waves = decay_lengths(layer)[index], wavelengths(layer)[index]
    return [
        f"{DECAY} {short(length)}, λ {'∞' if wave > 1e2 * length else short(wave)} {unit}"
        for length, wave in zip(lengths.tolist(), waves.tolist(), strict=True)
    ]
