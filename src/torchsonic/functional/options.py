"""Rarely used options of the operator, in groups, and the old keywords they replace."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from torchsonic.arguments import choice, positive
from torchsonic.engine.plan import known_order

_seen: set[str] = set()


def warn_once(subject: str, message: str, *, stacklevel: int = 3) -> None:
    """Give a ``FutureWarning`` about a subject, once per process."""
    if subject not in _seen:
        _seen.add(subject)
        warnings.warn(message, FutureWarning, stacklevel=stacklevel)


class Execution(NamedTuple):
    """How the operator is computed; this does not change its result.

    Attributes
    ----------
    order
        What to transform: ``"modes"``, ``"channels"``, or ``"auto"`` for the cheaper of the two. The paper's variant
        always transforms channels.
    mode_chunk
        Number of modes to compute at once, to save memory; ``None`` for all.
    recompute
        Whether to keep only ``x`` for the backward pass and recompute the rest; ``None`` means yes if ``mode_chunk``
        is set.
    """

    order: str = "auto"
    mode_chunk: int | None = None
    recompute: bool | None = None

    @classmethod
    def of(cls, given: Execution | Mapping[str, Any] | None) -> Execution:
        """Checked, with the current name of the order."""
        group = as_group(cls, given, "execution")
        if group.mode_chunk is not None:
            positive(group.mode_chunk, "execution.mode_chunk")
        choice(group.recompute, (None, False, True), "execution.recompute")
        return group._replace(order=known_order(group.order))


_REPLACED = {
    "band_limit": ("limits", "band_order"),
    "magnitude_limit": ("limits", "magnitude"),
    "soft_limit": ("limits", "soft"),
    **{name: ("execution", name) for name in Execution._fields},
}


def as_group(kind: Any, given: Any, name: str) -> Any:
    """Make a group of options from a group, a mapping of its fields, or ``None`` for the defaults."""
    if given is None or isinstance(given, kind):
        return kind() if given is None else given
    fields = ", ".join(kind._fields)
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a {kind.__name__} or a mapping with any of {fields}, got {given!r}")
    for field in given:
        if field not in kind._fields:
            raise ValueError(f"{name} may contain only {fields}, got {field!r}")
    return kind(**{field: value for field, value in given.items() if value is not None})


def group_fields(group: Any) -> dict[str, Any]:
    """The fields of a group that differ from their defaults."""
    return {name: value for name, value in group._asdict().items() if value != group._field_defaults[name]}


def group_old(arguments: Mapping[str, Any], *, warn: bool) -> dict[str, Any]:
    """Arguments with old keywords moved into the groups that replaced them."""
    kept, groups = dict(arguments), {}
    for old, (group, field) in _REPLACED.items():
        if old not in kept:
            continue
        value = kept.pop(old)
        if warn:
            remedy = "leave it out" if value is None else f"pass {group}={{{field!r}: {value!r}}} instead"
            warn_once(old, f"{old}= is deprecated; {remedy}", stacklevel=5)
        if kept.get(group) is not None:
            raise TypeError(f"{old}={value!r} is now part of {group}; pass {group}={{{field!r}: {value!r}}}")
        groups.setdefault(group, {}).update({} if value is None else {field: value})
    return {**kept, **groups}


def refuse_unknown(owner: str, given: Iterable[str], reasons: Mapping[str, str] | None = None) -> None:
    """Refuse unknown keywords."""
    for name in given:
        raise TypeError(f"{owner} has no option {name!r}{(reasons or {}).get(name, '')}")
