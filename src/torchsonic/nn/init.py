"""Initial distributions of the modes.

All lengths are in pixels of the reference grid; layers convert them.

* Directions cover the whole circle or sphere, since a mode sees only one side, ``+v``.
* Decay lengths ``s / |Re a|`` are log-spaced from about a pixel to the reference field, in an order that pairs every
  length with all directions and all frequencies.
* Part of the bank oscillates, ``Im a / s`` from 0 to half the reference Nyquist frequency. Without oscillation, a layer
  sees little more of a distant shape than its area.
* ``B`` and ``C`` are scaled so that white noise of variance 1 gives output of variance 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torchsonic.arguments import is_number
from torchsonic.spectral.parameters import inverse_softplus, reference_length, smallest

SHORTEST_DECAY = 1.0
WIDTH_TO_LENGTH = 1 / 3
NARROWEST_WIDTH = 0.5
STILL_FRACTION = 0.25
HIGHEST_FREQUENCY = math.pi / 2
BANK_OPTIONS = ("highest_frequency", "shortest_decay", "width_to_length")
GOLDEN = (math.sqrt(5) - 1) / 2


def check_bank(bank: Mapping[str, float]) -> Mapping[str, float]:
    """Refuse unknown settings of :func:`initial_responses` and values out of range; return the bank."""
    if not isinstance(bank, Mapping):
        raise TypeError(f"bank must be 'released' or a mapping with any of {', '.join(BANK_OPTIONS)}, got {bank!r}")
    if "released" in bank:
        depth = bank["released"]
        if len(bank) > 1 or not is_number(depth) or not 0 <= depth <= 1:
            raise ValueError(f"bank['released'] must be a depth from 0 to 1 and the only setting, got {dict(bank)}")
        return bank
    for name, value in bank.items():
        if name not in BANK_OPTIONS:
            raise ValueError(f"bank may contain only {', '.join(BANK_OPTIONS)}, got {name!r}")
        still = name == "highest_frequency" and value == 0  # modes that do not oscillate
        if not is_number(value) or (value <= 0 and not still):
            kind = "finite number >= 0" if name == "highest_frequency" else "positive finite number"
            raise ValueError(f"bank[{name!r}] must be a {kind}, got {value!r}")
    return bank


def initial_directions(num_modes: int, num_axes: int, *, half_circle: bool = False, generator=None) -> Tensor:
    """Unit vectors spread over all directions, ``(M, D)``.

    1-D: alternating signs. 2-D: evenly spaced angles with jitter. 3-D: a randomly rotated Fibonacci sphere.

    Parameters
    ----------
    half_circle
        The paper's choice: the half of all directions whose last component is positive (2-D: angles uniform on
        ``(0, pi)``); meant for its half-spectrum variant.
    """
    if num_axes == 1:
        signs = torch.ones(num_modes, 1)
        signs[1::2] = 1.0 if half_circle else -1.0
        return signs
    if num_axes == 2:
        if half_circle:
            angles = math.pi * torch.rand(num_modes, generator=generator)
        else:
            jitter = 0.5 * (torch.rand(num_modes, generator=generator) - 0.5)
            offset = torch.rand(1, generator=generator)
            angles = 2 * math.pi * (torch.arange(num_modes) + jitter + offset) / num_modes
        return torch.stack([angles.cos(), angles.sin()], dim=-1)
    index = torch.arange(num_modes)
    height = 1 - (2 * index + 1) / num_modes
    angle = 2 * math.pi * GOLDEN * index
    ring = (1 - height.square()).sqrt()
    points = torch.stack([height, ring * angle.cos(), ring * angle.sin()], dim=-1)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator))
    points = points @ turn
    if half_circle:
        points[:, -1] = points[:, -1].abs()
    return torch.nn.functional.normalize(points, dim=-1)


def _spread(num_modes: int, step: float, generator) -> Tensor:
    """A randomly shifted low-discrepancy sequence in [0, 1): M values that cover it evenly, in scattered order."""
    return (torch.rand(1, generator=generator) + step * torch.arange(num_modes)) % 1.0


def initial_responses(
    num_modes: int,
    field: float,
    *,
    shortest_decay: float = SHORTEST_DECAY,
    highest_frequency: float = HIGHEST_FREQUENCY,
    width_to_length: float = WIDTH_TO_LENGTH,
    generator=None,
) -> dict[str, Tensor]:
    """Scale, damping, oscillation and transverse penalty in pixels, each ``(M,)``.

    The scale starts at one pixel for all modes and the damping sets the length. Every parameter is then of order one,
    and a step in ``Im a`` changes the phase at a given distance equally for short and long modes.

    Parameters
    ----------
    field
        Extent of the reference field in pixels, which is the longest decay length.
    shortest_decay, highest_frequency, width_to_length
        Shortest decay length in pixels, highest ``Im a / s`` in radians per pixel, and width across a mode relative to
        its length.
    """
    # Different irrational steps keep length, frequency and direction independent of each other.
    position = _spread(num_modes, GOLDEN, generator)
    decay = shortest_decay * (max(field, 2 * shortest_decay) / shortest_decay) ** position
    frequency_position = _spread(num_modes, math.sqrt(2) - 1, generator)
    frequency = highest_frequency * ((frequency_position - STILL_FRACTION) / (1 - STILL_FRACTION)).clamp_min(0)
    frequency = frequency * torch.where(torch.arange(num_modes) % 4 < 2, 1.0, -1.0)
    damping = decay.reciprocal()
    transverse = damping * (width_to_length * decay).square().clamp_min(NARROWEST_WIDTH**2)
    return {"scale": torch.ones(num_modes), "damping": damping, "oscillation": frequency, "transverse": transverse}


def initial_mixing(in_channels: int, out_channels: int, num_modes: int, *, generator=None) -> tuple[Tensor, Tensor]:
    """``mix_in (M, 2, C)`` and ``mix_out (K, M, 2)`` that keep the variance of white noise.

    A mode of unit mean power gives two signals whose variances add to ``sum_c |B_mc|^2``; an output channel adds 2M
    such signals with weights of variance ``1 / M``.
    """
    mix_in = torch.randn(num_modes, 2, in_channels, generator=generator) / math.sqrt(2 * in_channels)
    mix_out = torch.randn(out_channels, num_modes, 2, generator=generator) / math.sqrt(num_modes)
    return mix_in, mix_out


def initial_parameters(
    in_channels: int,
    out_channels: int,
    num_modes: int,
    spacing: Sequence[float],
    field: float,
    *,
    half_circle: bool = False,
    generator: torch.Generator | None = None,
    **bank: float,
) -> dict[str, Tensor]:
    """All parameters of a layer with the given reference spacing, as they are stored, by name.

    Parameters
    ----------
    half_circle
        See :func:`initial_directions`.
    field, bank
        See :func:`initial_responses`.
    """
    # Drawn on the CPU (or the generator's device), so that a seed means the same everywhere.
    with torch.device("cpu" if generator is None else generator.device):
        direction = initial_directions(num_modes, len(spacing), half_circle=half_circle, generator=generator)
        response = initial_responses(num_modes, field, generator=generator, **bank)
        mix_in, mix_out = initial_mixing(in_channels, out_channels, num_modes, generator=generator)
    direction, response = direction.cpu(), {name: value.cpu() for name, value in response.items()}
    # Lengths are drawn in pixels along the mode; on anisotropic grids a pixel depends on the direction.
    steps, unit = torch.tensor(tuple(spacing), dtype=torch.float64, device="cpu"), reference_length(spacing)
    along = (direction.double() * steps).norm(dim=-1)
    across = along if len(spacing) == 1 else (steps.prod() / along) ** (1 / (len(spacing) - 1))
    # Leaves room to learn faster oscillations; tanh is still steep at the fastest initial one.
    limit = 1.25 * max(1.0, bank.get("highest_frequency", HIGHEST_FREQUENCY))
    return {
        "mix_in": mix_in,
        "mix_out": mix_out,
        "raw_direction": direction,
        "raw_scale": inverse_softplus(response["scale"] * along / unit - smallest()),
        "raw_damping": inverse_softplus(response["damping"] - smallest()),
        "raw_oscillation": torch.atanh(response["oscillation"] / limit),
        "raw_transverse": inverse_softplus(response["transverse"] * (across / unit).square()),
        "oscillation_limit": torch.tensor(limit, device="cpu"),
    }
