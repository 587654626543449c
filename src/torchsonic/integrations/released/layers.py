"""A released layer as one of ours: arguments of the constructor, weights, and what differs.

All generations use the half spectrum as it is, zero the imaginary part on the planes of frequency zero and Nyquist of
the last axis, and turn directions by the spacing: that is ``variant="paper"``. They differ in gain and limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from torchsonic.arguments import choice, positive
from torchsonic.integrations.released.generations import ConversionError, Generation, ReleasedLayer
from torchsonic.integrations.released.physical import Physical, physical
from torchsonic.nn.bank import largest_log_gain
from torchsonic.spectral.parameters import inverse_softplus, smallest

HARD_LIMIT, SOFT_LIMIT, BAND_ORDER = 5.0, 50.0, 4
# The released code keeps |denominator|^2 above 1e-8; ours needs no such floor.
DAMPING_FLOOR = 1e-4
SMALLEST_TRANSVERSE = 1e-30
OPTIONS: dict[str, dict[str, Any]] = {
    "rms": {"gain": "power"},
    "dc": {"gain": "dc", "limits": {"magnitude": HARD_LIMIT}},
    "free": {"gain": "free", "limits": {"magnitude": SOFT_LIMIT, "soft": True}},
}
# What a generation brings its input to mean 0 and variance 1 over, unless it was built with normalize_input=False.
USUAL_STANDARDISE = {"rms": "channel", "dc": "sample", "free": "sample"}


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the file does not say. With ``None``, layers for which it matters are refused, with a hint how to find out.

    Attributes
    ----------
    generation
        Generation of layers with ``vx, vy``.
    spacing
        Spacing that the layer was built with, one number or one per axis in array order: ``(dz, dy, dx)``.
    standardise
        How the input was normalised to mean 0 and variance 1: ``"none"`` for layers built with
        ``normalize_input=False``, like the released classifiers; otherwise ``"channel"`` for ``rms`` and ``"sample"``
        (over channels and space) for ``dc`` and ``free``. Always needed, since the weights do not show it.
    band_order
        Butterworth order of layers with ``log_bandwidth``.
        ``None`` means 4.
    missing_bandwidth
        Band limit of late layers without ``log_bandwidth``: none, or half the Nyquist frequency, as the released
        loader assumes.
    """

    generation: Generation | None = None
    spacing: tuple[float, ...] = (1.0,)
    standardise: Literal["channel", "sample", "none"] | None = None
    band_order: int | None = None
    missing_bandwidth: Literal["none", "half"] | None = None

    def __post_init__(self) -> None:
        for name, allowed in (
            ("generation", get_args(Generation)),
            ("standardise", ("channel", "sample", "none")),
            ("missing_bandwidth", ("none", "half")),
        ):
            choice(getattr(self, name), (None, *allowed), name)
        if not self.spacing or not all(0 < step < math.inf for step in self.spacing):
            raise ValueError(f"spacing must be positive and finite, got {self.spacing}")
        if self.band_order is not None:
            positive(self.band_order, "band_order")


@dataclass(frozen=True)
class ConvertedLayer:
    """Arguments of ``make_sonic``, weights, the generation, and remarks on differences."""

    arguments: dict[str, Any]
    state: dict[str, Tensor]
    generation: Generation
    remarks: list[str]


def convert_layer(layer: ReleasedLayer, choices: Choices) -> ConvertedLayer:
    """Express a released layer as one of ours, or refuse and name the key."""
    generation, meaning = _generation(layer, choices), physical(layer)
    if layer.family == "late" and meaning.cutoff is None:
        meaning = meaning._replace(cutoff=_missing_cutoff(layer, choices))
    steps = choices.spacing * layer.num_axes if len(choices.spacing) == 1 else choices.spacing
    if len(steps) != layer.num_axes:
        raise ConversionError(f"{layer.name or 'the layer'} has {layer.num_axes} axes, but spacing has {len(steps)}")
    dtype = torch.promote_types(layer.dtype, torch.float32)
    arguments: dict[str, Any] = {
        "in_channels": meaning.mix_in.shape[1],
        "out_channels": meaning.mix_out.shape[0],
        "num_modes": layer.num_modes,
        "spatial_dims": layer.num_axes,
        "bias": False,
        "spacing": list(steps),
        "variant": "paper",
        "standardise": _standardise(layer, generation, choices),
        **OPTIONS[generation],
    }
    if meaning.cutoff is not None:
        arguments["limits"] = {**arguments["limits"], "band_order": choices.band_order or BAND_ORDER}
    unit = float(torch.tensor(steps, dtype=torch.float64).log().mean().exp())
    state = {name: value.to(dtype) for name, value in _stored(layer, meaning, unit).items()}
    infinite = [name for name, value in state.items() if not value.isfinite().all()]
    if infinite:
        raise ConversionError(f"{layer.name or 'the layer'}: {', '.join(infinite)} would exceed the range of {dtype}")
    return ConvertedLayer(arguments, state, generation, _remarks(layer, meaning, unit))


def _generation(layer: ReleasedLayer, choices: Choices) -> Generation:
    given, key = choices.generation, layer.key("vx" if layer.family == "early" else "theta_v")
    if layer.family == "late":
        if given not in (None, "free"):
            raise ConversionError(f"{key} belongs to generation 'free', not to {given!r}")
        return "free"
    if given == "free":
        raise ConversionError(f"{key} belongs to generation 'rms' or 'dc', not to 'free'")
    if layer.num_axes == 3:
        if given == "rms":
            raise ConversionError(f"{layer.key('vz')}: generation 'rms' has no forward pass in 3-D; it is 'dc'")
        return "dc"
    if given is None:
        raise ConversionError(
            f"{key} is ambiguous: two generations have these names; set generation to 'rms' (response divided by its "
            "RMS over the grid) or 'dc' (|T(0)| = 1, magnitude clipped at 5)"
        )
    return given


def _standardise(layer: ReleasedLayer, generation: Generation, choices: Choices) -> str | Literal[False]:
    if choices.standardise is None:
        raise ConversionError(
            f"{layer.name or 'the layer'} does not show whether its input was standardised; look up how the network "
            "was built and set standardise to 'none' if its Sonic layers had normalize_input=False, as in the released "
            f"classifiers from commit 3525554 on, else to {USUAL_STANDARDISE[generation]!r}, the default of generation "
            f"{generation!r}"
        )
    return False if choices.standardise == "none" else choices.standardise


def _missing_cutoff(layer: ReleasedLayer, choices: Choices) -> Tensor | None:
    if choices.missing_bandwidth is None:
        raise ConversionError(
            f"{layer.key('log_bandwidth')} is missing, which is ambiguous: set missing_bandwidth to 'none' if the "
            "layer was trained without a band limit, or to 'half' for half the Nyquist frequency, as the released "
            "loader does"
        )
    half = torch.full((layer.num_modes,), 0.5, dtype=torch.float64)
    return half if choices.missing_bandwidth == "half" else None


def _without_overflow(direction: Tensor) -> Tensor:
    """Vectors whose squares are finite, of the same directions."""
    return direction / direction.abs().amax(-1, keepdim=True).clamp_min(1e-12)


def _stored(layer: ReleasedLayer, meaning: Physical, unit: float) -> dict[str, Tensor]:
    """Our parameters, in float64; ``unit`` is our reference length."""
    early = layer.family == "early"
    names = "scale_raw" if early else "log_scale", _damping_name(layer)
    _refuse(layer, "vx" if early else "theta_v", meaning.direction.norm(dim=-1) < 1e-12, "no direction")
    _refuse(layer, names[0], meaning.scale / unit <= 2 * smallest(), f"s <= {2 * smallest()} of the spacing")
    _refuse(layer, names[1], meaning.damping <= 2 * smallest(), f"|Re a| <= {2 * smallest()}")
    sizes = {
        names[0]: meaning.scale / unit,
        names[1]: meaning.damping,
        "tau_raw" if early else "log_tau": meaning.transverse / unit**2,
        "beta_raw" if early else "beta": 1.25 * meaning.oscillation,  # with the room that it gets below
    }
    for name, value in sizes.items():
        _refuse(layer, name, ~value.to(torch.float32).isfinite(), "a value beyond float32")
    if early:
        limit, turned = layer.tensors["rho"].reshape(()), layer.tensors["beta_raw"]
    else:  # ours is bounded: leave room to learn
        limit = (1.25 * meaning.oscillation.abs().max()).clamp_min(1.0)
        turned = torch.atanh(meaning.oscillation / limit)
    stored = {
        "mix_in": torch.stack([meaning.mix_in.real, meaning.mix_in.imag], dim=1),
        "mix_out": torch.stack([meaning.mix_out.real, -meaning.mix_out.imag], dim=2),
        "raw_direction": torch.nn.functional.normalize(_without_overflow(meaning.direction), dim=-1, eps=1e-30),
        "raw_scale": inverse_softplus(meaning.scale / unit - smallest()),
        "raw_damping": inverse_softplus(meaning.damping - smallest()),
        "raw_oscillation": turned,
        "raw_transverse": inverse_softplus((meaning.transverse / unit**2).clamp_min(SMALLEST_TRANSVERSE)),
        "oscillation_limit": limit,
    }
    if meaning.gain is not None:
        largest = math.exp(largest_log_gain())
        name = "log_alpha" if "log_alpha" in layer.tensors else "log_dc_gain"
        _refuse(layer, name, ~(meaning.gain <= largest), f"a gain above {largest:.1e}")
        stored["log_gain"] = meaning.gain.log()
    if meaning.cutoff is not None:
        _refuse(layer, "log_bandwidth", meaning.cutoff <= 2 * smallest(), f"a cutoff <= {2 * smallest()} of Nyquist")
        stored["raw_cutoff"] = torch.logit(meaning.cutoff - smallest())
    return stored


def _damping_name(layer: ReleasedLayer) -> str:
    return next(name for name in ("alpha", "alpha_raw", "log_alpha") if name in layer.tensors)


def _refuse(layer: ReleasedLayer, leaf: str, wrong: Tensor, what: str) -> None:
    if wrong.any():
        modes = wrong.nonzero().flatten().tolist()
        shown = ", ".join(map(str, modes[:5])) + (", .." if len(modes) > 5 else "")
        raise ConversionError(f"{layer.key(leaf)} gives {what} for mode {shown}, which our layer cannot express")


def _remarks(layer: ReleasedLayer, meaning: Physical, unit: float) -> list[str]:
    remarks = []
    if "Bmask" in layer.tensors:
        remarks.append(f"{layer.key('Bmask')} was multiplied into B; further training does not keep its zeros")
    weak = int((meaning.damping < DAMPING_FLOOR).sum())
    if weak:
        remarks.append(
            f"{layer.key(_damping_name(layer))}: {weak} modes are damped less than {DAMPING_FLOOR}; the released code "
            "limits their resonance by keeping the squared denominator above 1e-8, ours does not"
        )
    flat = int((meaning.transverse / unit**2 < SMALLEST_TRANSVERSE).sum())
    if flat:
        key = layer.key("tau_raw" if layer.family == "early" else "log_tau")
        remarks.append(f"{key}: {flat} modes had tau below {SMALLEST_TRANSVERSE}, which was raised to that")
    return remarks
