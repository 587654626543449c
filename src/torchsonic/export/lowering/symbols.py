"""Bands whose sizes are no numbers yet: the symbols of an exporter."""

from __future__ import annotations

from functools import cached_property

from torchsonic.spectral.band import Band

__all__ = ["SettledBand"]


class SettledBand(Band):
    """A band that compares its sizes once: an exporter has to think about each comparison of symbols."""

    @cached_property
    def resampled(self) -> tuple[bool, ...]:  # type: ignore[override]
        return super().resampled

    @cached_property
    def reach(self) -> tuple[int, ...]:  # type: ignore[override]
        return super().reach

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return super().shape
