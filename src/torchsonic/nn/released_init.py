r"""Initial modes with the same distribution as in the authors' released layer (GijsMoens/Sonic, ``sonic/sonic.py``).

.. math:: s = \frac{\pi / 2}{\max d}, \qquad a = -0.2 \cdot 10^{t}, \qquad
   \tau = 0.9 \cdot 0.2 \cdot 0.05^{t} + \frac{0.1}{D \pi^2}

for all modes of a layer, where ``t`` is its depth: 0 for the first layer of a network, 1 for the last. Numbers under
softplus vary by 3 %. Directions are evenly spaced on the half circle ``v_y > 0`` or a Fibonacci hemisphere ``v_z > 0``,
with noise of 0.05; the rows of ``B`` and the columns of ``C`` have unit norm. No mode oscillates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from torchsonic.spectral.parameters import inverse_softplus, reference_length, smallest

if TYPE_CHECKING:
    from torchsonic.nn.conv import SonicConvNd

Bank = Mapping[str, float] | Literal["released"]
"""Settings of the initial modes, or the name of the released ones."""
DIRECTION_NOISE, JITTER = 0.05, 0.03


def expand_bank(bank: Any) -> Any:
    """Settings of a bank by name: ``"released"`` is ``{"released": 0.0}``, the bank of a first layer."""
    return {"released": 0.0} if isinstance(bank, str) and bank == "released" else {} if bank is None else bank


def spread_over_depth(layers: Iterable[tuple[str, SonicConvNd]]) -> None:
    """Redraw the released banks of a network's :func:`~torchsonic.nn.sonic_layers`, each for its layer's depth."""
    drawn = [layer for _, layer in layers if "released" in layer.bank]
    for place, layer in enumerate(drawn):
        layer.bank = {"released": place / max(1, len(drawn) - 1)}
        layer.reset_parameters()


def released_parameters(
    in_channels: int,
    out_channels: int,
    num_modes: int,
    spacing: Sequence[float],
    depth: float,
    generator: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """All parameters of a layer as they are stored, by name."""
    num_axes, unit = len(spacing), reference_length(spacing)

    def normal(*shape: int) -> Tensor:
        device = "cpu" if generator is None else generator.device
        return torch.randn(shape, generator=generator, device=device).to("cpu", torch.float64)

    def jittered(value: float) -> Tensor:
        raw = inverse_softplus(torch.tensor(value, dtype=torch.float64))
        return nn.functional.softplus(raw * (1 + JITTER * normal(num_modes)))

    direction = _even_directions(num_modes, num_axes) + DIRECTION_NOISE * normal(num_modes, num_axes)
    mix_in, mix_out = normal(num_modes, 2, in_channels), normal(out_channels, num_modes, 2)
    transverse = jittered(0.9 * 0.2 * 0.05**depth + 0.1 / (num_axes * math.pi**2))
    return {
        "mix_in": mix_in / mix_in.norm(dim=(1, 2), keepdim=True),
        "mix_out": mix_out / mix_out.norm(dim=(0, 2), keepdim=True),
        "raw_direction": nn.functional.normalize(direction, dim=-1),
        "raw_scale": inverse_softplus(jittered(math.pi / 2 / max(spacing)) / unit - smallest()),
        "raw_damping": inverse_softplus(jittered(0.2 * 10**depth) - smallest()),
        "raw_oscillation": torch.zeros(num_modes),
        "raw_transverse": inverse_softplus(transverse / unit**2),
        "oscillation_limit": torch.ones(()),
    }


def _even_directions(num_modes: int, num_axes: int) -> Tensor:
    """Unit vectors ``(M, D)`` in array order, so that ``y`` is the last but one and ``z`` the first of three."""
    if num_axes == 2:
        angle = math.pi * torch.arange(1, num_modes + 1, dtype=torch.float64) / (num_modes + 1)
        return torch.stack([angle.sin(), angle.cos()], dim=-1)
    index = torch.arange(num_modes, dtype=torch.float64)
    height = 1 - (index + 0.5) / num_modes
    ring, angle = (1 - height.square()).sqrt(), 2 * math.pi * index * (math.sqrt(5) - 1) / 2
    return torch.stack([height, ring * angle.sin(), ring * angle.cos()], dim=-1)
