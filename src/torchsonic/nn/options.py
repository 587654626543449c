"""Rarely used options of a Sonic layer, in groups, and the old keywords that they replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torchsonic.arguments import choice, positive
from torchsonic.engine.plan import known_order
from torchsonic.nn.warn_once import warn_once
from torchsonic.spectral.limits import ResponseLimits

__all__ = ["Execution", "group_fields", "group_old", "refuse_third", "show_option", "take_groups"]


class Execution(NamedTuple):
    """How a layer is evaluated, which does not change its result.

    Attributes
    ----------
    order
        What to transform: ``"modes"``, ``"channels"``, or ``"auto"`` for the cheaper of both. The paper's variant
        always transforms channels.
    mode_chunk
        Number of modes to compute at once, to save memory; ``None`` for all.
    recompute
        Whether to keep only ``x`` for the backward pass and compute the rest again; ``None`` for yes if there is a
        ``mode_chunk``.
    """

    order: str = "auto"
    mode_chunk: int | None = None
    recompute: bool | None = None

    def check(self) -> Execution:
        """Refuse bad values; return a copy with the current name of the order."""
        if self.mode_chunk is not None:
            positive(self.mode_chunk, "execution.mode_chunk")
        choice(self.recompute, (None, False, True), "execution.recompute")
        return self._replace(order=known_order(self.order))


_REPLACED = {
    "band_limit": ("limits", "band_order"),
    "magnitude_limit": ("limits", "magnitude"),
    "soft_limit": ("limits", "soft"),
    **{name: ("execution", name) for name in Execution._fields},
}

_OF_CONVOLUTIONS = {
    "kernel_size": ", since its kernel spans the whole image; leave it out",
    "dilation": ", since its kernel spans the whole image; leave it out",
    "groups": ", since each mode mixes all channels; leave it out",
}


def _as_group(kind: Any, given: Any, name: str) -> Any:
    """Make a group of options from a group, a mapping of its fields, or ``None`` for the defaults."""
    if given is None or isinstance(given, kind):
        return kind() if given is None else given
    fields = ", ".join(kind._fields)
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a {kind.__name__} or a mapping with any of {fields}, got {given!r}")
    for field in given:
        if field not in kind._fields:
            raise ValueError(f"{name} must have only {fields}, got {field!r}")
    return kind(**{field: value for field, value in given.items() if value is not None})


def group_fields(group: Any) -> dict[str, Any]:
    """The fields of a group that differ from their defaults."""
    return {name: value for name, value in group._asdict().items() if value != group._field_defaults[name]}


def show_option(value: Any) -> str:
    """An option as users would write it."""
    return repr(group_fields(value) if isinstance(value, (Execution, ResponseLimits)) else value)


def group_old(arguments: Mapping[str, Any], *, warn: bool) -> dict[str, Any]:
    """Arguments of a layer, with old keywords moved into the groups that replaced them."""
    kept, groups = dict(arguments), {}
    for old, (group, field) in _REPLACED.items():
        if old not in kept:
            continue
        value = kept.pop(old)
        if warn:
            remedy = "leave it out" if value is None else f"pass {group}={{{field!r}: {value!r}}} instead"
            warn_once(old, f"{old}= is deprecated; {remedy}", stacklevel=5)
        if kept.get(group) is not None:
            raise TypeError(
                f"{old}={value!r} is part of {group} now; pass it there, as {group}={{{field!r}: {value!r}}}"
            )
        groups.setdefault(group, {}).update({} if value is None else {field: value})
    return {**kept, **groups}


def take_groups(owner: object, limits: Any, execution: Any, old: Mapping[str, Any]) -> tuple[ResponseLimits, Execution]:
    """The two groups of options from a constructor's arguments, old keywords included; refuse unknown ones."""
    groups = group_old({"limits": limits, "execution": execution, **old}, warn=True)
    limits = _as_group(ResponseLimits, groups.pop("limits"), "limits")
    execution = _as_group(Execution, groups.pop("execution"), "execution")
    if groups:
        name = next(iter(groups))
        raise TypeError(f"{type(owner).__name__} has no option {name!r}{_OF_CONVOLUTIONS.get(name, '')}")
    return limits, execution.check()


def refuse_third(owner: object, surplus: tuple) -> None:
    """Refuse a third positional argument, which is the kernel size in ordinary convolutions."""
    if surplus:
        raise TypeError(
            f"{type(owner).__name__} takes no kernel size, since its kernel spans the whole image, but got a third "
            f"argument, {surplus[0]!r}; pass num_modes={surplus[0]!r} if you mean the number of modes"
        )
