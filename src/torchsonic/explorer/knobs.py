"""The five parameters of a mode: their names, slider ranges and accepted values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


class RefusedError(ValueError):
    """A request that cannot be answered; the message says why and what to do, the status is that of HTTP."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Knob:
    """One slider. ``low`` to ``high`` is what it reaches; a checkpoint may hold values outside, up to the limits."""

    name: str
    label: str
    symbol: str
    unit: str
    low: float
    high: float
    default: float
    limits: tuple[float, float]
    logarithmic: bool = False


KNOBS = (
    Knob("orientation", "Orientation", "θ", "°", -180.0, 180.0, 30.0, (-360.0, 360.0)),
    Knob("scale", "Scale", "s", "mm", 0.5, 64.0, 8.0, (1e-6, 1e4), logarithmic=True),
    Knob("damping", "Decay", "-Re a", "", 0.02, 4.0, 0.5, (1e-7, 1e3), logarithmic=True),
    Knob("oscillation", "Frequency", "Im a", "", -8.0, 8.0, 3.0, (-1e3, 1e3)),
    Knob("transverse", "Transverse penalty", "τ", "mm²", 0.1, 1000.0, 10.0, (0.0, 1e7), logarithmic=True),
)


def read_number(value: Any, name: str, low: float, high: float) -> float:
    """A finite number within limits, or a refusal that names it."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:  # JSON's integers have as many digits as one likes
        number = math.inf
    if not math.isfinite(number):
        raise RefusedError(f"{name} must be a finite number, got {repr(value)[:40]}")
    if not low <= number <= high:
        raise RefusedError(f"{name} must be from {low:g} to {high:g}, got {number:g}")
    return number


def read_count(value: Any, name: str, low: int, high: int) -> int:
    """A whole number within limits, or a refusal that names it."""
    number = read_number(value, name, low, high)
    if not number.is_integer():
        raise RefusedError(f"{name} must be a whole number from {low} to {high}, got {number:g}")
    return int(number)


@dataclass(frozen=True)
class ModeValues:
    """The physical parameters of one two-dimensional mode.

    ``orientation`` is in degrees, 0 to the right and 90 up; ``scale`` in mm; ``damping`` is ``-Re a`` and
    ``oscillation`` is ``Im a``, both without unit; ``transverse`` is in mm squared.
    """

    orientation: float = KNOBS[0].default
    scale: float = KNOBS[1].default
    damping: float = KNOBS[2].default
    oscillation: float = KNOBS[3].default
    transverse: float = KNOBS[4].default

    @classmethod
    def read(cls, given: Any) -> ModeValues:
        """From what a page sent."""
        if not isinstance(given, Mapping):
            raise RefusedError("values must be an object with the five numbers of a mode")
        unknown = set(given) - {f.name for f in fields(cls)}
        if unknown:
            raise RefusedError(f"a mode has no value {min(unknown)!r}")
        return cls(**{knob.name: read_number(given.get(knob.name), knob.label, *knob.limits) for knob in KNOBS})

    @property
    def direction(self) -> tuple[float, float]:
        """Unit vector, down and right."""
        angle = math.radians(self.orientation)
        return -math.sin(angle), math.cos(angle)

    def describe(self) -> dict[str, float | None]:
        """What the numbers mean in space, all in mm: how far the mode reaches, how fast it oscillates, how wide it is.

        Along its direction a mode decays as ``exp(-r |Re a| / s)`` and oscillates as ``exp(i r Im a / s)``; across, its
        variance grows as ``2 tau r / s``.
        """
        slow = abs(self.oscillation) < 1e-6
        return {
            "decay_length": self.scale / self.damping,
            "angular_frequency": self.oscillation / self.scale,
            "wavelength": None if slow else 2 * math.pi * self.scale / abs(self.oscillation),
            "width": math.sqrt(2 * self.transverse / self.damping),
        }
