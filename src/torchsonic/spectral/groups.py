"""Finite groups of rotations and reflections by name, for the modes of orbit layers.

A group is a list of orthogonal matrices that contains all their products. In 2-D, ``C{n}`` are the rotations by
multiples of ``360 / n`` degrees, and ``D{n}`` adds reflections. In 3-D, groups have the names that chemists use:
``C{n}``, ``C{n}v``, ``C{n}h``, ``D{n}``, ``D{n}h`` about one axis, and ``T``, ``Td``, ``Th``, ``O``, ``Oh``, ``I``,
``Ih``; those with a lower-case letter contain reflections.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchsonic.spectral.group import MOST_ELEMENTS, Group

__all__ = ["Group", "known_name", "make_group"]

GOLDEN = (1 + math.sqrt(5)) / 2


def make_group(name: str | Group | Mapping[str, Any], spatial_dims: int, *, axis: int = 0) -> Group:
    """Get a group by name; a :class:`Group` of the right dimension is returned unchanged.

    A dictionary of the arguments of :class:`Group`, which saved networks hold, gives that group.

    Parameters
    ----------
    name
        For example ``"C8"`` or ``"D4"`` in 2-D, ``"C4v"`` or ``"O"`` in 3-D; see :mod:`torchsonic.spectral.groups`. A
        group may have at most 1000 elements.
    axis
        In 3-D, the array axis about which ``C`` and ``D`` rotate; slices are usually stacked along the first.
    """
    axes = (0, 1, 2) if spatial_dims == 3 else (0,)  # in the plane there is no axis to choose
    if not hasattr(axis, "__index__") or axis not in axes:
        raise ValueError(f"axis must be one of {axes}, got {axis!r}")
    if isinstance(name, Mapping):
        name = Group(**name)
    if isinstance(name, Group):
        if name.num_axes != spatial_dims:
            raise ValueError(f"group={name} acts on {name.num_axes} axes, but there are {spatial_dims}")
        return name
    if not isinstance(name, str):
        raise TypeError(f"group must be a name such as 'C8', got {name!r}")
    with torch.device("cpu"):  # not PyTorch's default device, which is "meta" while a saved model is looked at
        return _named(name, spatial_dims, axis)


def known_name(group: Group, *, axis: int = 0) -> str | None:
    """The name by which :func:`make_group` makes this very group; ``None`` for others, whatever they are called."""
    try:
        same = make_group(group.name, group.num_axes, axis=axis)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return group.name if torch.equal(same.matrices, group.matrices) else None


@lru_cache
def _named(name: str, spatial_dims: int, axis: int) -> Group:
    around = re.fullmatch(r"([CD])([1-9]\d*)([vh]?)", name)
    if spatial_dims == 2 and around and not around[3]:
        generators = [_turn(360 / int(around[2])), *([[[1.0, 0.0], [0.0, -1.0]]] if around[1] == "D" else [])]
    elif spatial_dims == 3 and around and (around[1], around[3]) != ("D", "v"):
        generators = [g.roll((axis, axis), (0, 1)) for g in _about_first_axis(*around.groups())]
    elif spatial_dims == 3 and name in _SOLIDS:
        generators = _SOLIDS[name]
    else:
        known = {2: "C{n} and D{n}", 3: f"C{{n}}, C{{n}}v, C{{n}}h, D{{n}}, D{{n}}h, {', '.join(_SOLIDS)}"}
        if spatial_dims not in known:
            raise ValueError(f"groups act on two or three axes, got spatial_dims={spatial_dims}")
        raise ValueError(f"group must be one of {known[spatial_dims]} with {spatial_dims} axes, got {name!r}")
    if around and int(around[2]) * (1 + (around[1] == "D")) * (1 + bool(around[3])) > MOST_ELEMENTS:
        raise ValueError(f"group {name!r} has more than {MOST_ELEMENTS} elements, the most there can be")
    return Group.generate(generators, name=name)


def _turn(degrees: float) -> Tensor:
    angle = math.radians(degrees)
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def _about_first_axis(kind: str, order: str, mirrors: str) -> list[Tensor]:
    def signs(*values: float) -> Tensor:
        return torch.diag(torch.tensor(values, dtype=torch.float64))

    generators = [torch.block_diag(torch.ones(1, 1, dtype=torch.float64), _turn(360 / int(order)))]
    generators += [signs(-1, 1, -1)] if kind == "D" else []
    return generators + {"": [], "v": [signs(1, 1, -1)], "h": [signs(-1, 1, 1)]}[mirrors]


_THIRD = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]  # about a diagonal of the cube
_HALF = [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]]
_QUARTER = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
_DIAGONAL = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
_INVERSION = [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]]
_FIFTH = [
    [0.5, -GOLDEN / 2, 0.5 / GOLDEN],
    [GOLDEN / 2, 0.5 / GOLDEN, -0.5],
    [0.5 / GOLDEN, 0.5, GOLDEN / 2],
]
_SOLIDS = {
    "T": [_THIRD, _HALF],
    "Td": [_THIRD, _HALF, _DIAGONAL],
    "Th": [_THIRD, _HALF, _INVERSION],
    "O": [_THIRD, _QUARTER],
    "Oh": [_THIRD, _QUARTER, _INVERSION],
    "I": [_THIRD, _HALF, _FIFTH],
    "Ih": [_THIRD, _HALF, _FIFTH, _INVERSION],
}
