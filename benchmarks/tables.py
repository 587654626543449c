"""Words for numbers in the tables of benchmarks."""

from __future__ import annotations

from torchsonic.lab.report import Cell, Table

__all__ = ["Table", "alarm", "milliseconds", "verdict", "written"]


def written(value: float | None, form: str = ".2f", suffix: str = "") -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else f"{value:{form}}{suffix}"


def milliseconds(seconds: float | None) -> str:
    return written(None if seconds is None else 1e3 * seconds, ".3g" if seconds and seconds < 0.1 else ".0f")


def alarm(text: str, *, when: bool = True) -> Cell:
    """A cell that stands out."""
    return Cell(text, mark="alarm" if when else "")


def verdict(met: bool | None) -> Cell:
    return {True: Cell("met"), False: alarm("not met"), None: Cell("-")}[met]
