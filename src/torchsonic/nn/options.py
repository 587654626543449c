"""Rarely used options of a Sonic layer, and options of ordinary convolutions that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchsonic.functional.options import Execution, as_group, group_fields, group_old, refuse_unknown
from torchsonic.spectral.limits import ResponseLimits

_OF_CONVOLUTIONS = {
    "kernel_size": ", since its kernel spans the whole image; leave it out",
    "dilation": ", since its kernel spans the whole image; leave it out",
    "groups": ", since each mode mixes all channels; leave it out",
}


def show_option(value: Any) -> str:
    """An option as a user would write it."""
    return repr(group_fields(value) if isinstance(value, (Execution, ResponseLimits)) else value)


def take_groups(owner: object, limits: Any, execution: Any, old: Mapping[str, Any]) -> tuple[ResponseLimits, Execution]:
    """The two groups of options from a constructor's arguments, old keywords included; refuse unknown ones."""
    groups = group_old({"limits": limits, "execution": execution, **old}, warn=True)
    limits, execution = groups.pop("limits"), groups.pop("execution")
    refuse_unknown(type(owner).__name__, groups, _OF_CONVOLUTIONS)
    return as_group(ResponseLimits, limits, "limits"), Execution.of(execution)


def refuse_third(owner: object, surplus: tuple) -> None:
    """Refuse a third positional argument, which is the kernel size in ordinary convolutions."""
    if surplus:
        raise TypeError(
            f"{type(owner).__name__} takes no kernel size, since its kernel spans the whole image, but got a third "
            f"argument, {surplus[0]!r}; if you meant the number of modes, pass num_modes={surplus[0]!r}"
        )
