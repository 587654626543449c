"""Finite groups of rotations and reflections, for the modes of orbit layers.

A group is a list of orthogonal matrices that contains all their products. In 2-D, ``C{n}`` are the rotations by
multiples of ``360 / n`` degrees, and ``D{n}`` adds reflections. In 3-D, groups have the names that chemists use:
``C{n}``, ``C{n}v``, ``C{n}h``, ``D{n}``, ``D{n}h`` about one axis, and ``T``, ``Td``, ``Th``, ``O``, ``Oh``, ``I``,
``Ih``; those with a lower-case letter contain reflections.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["Group", "make_group"]

GOLDEN = (1 + math.sqrt(5)) / 2
MOST_ELEMENTS = 1000


class Group:
    """A finite group of orthogonal matrices.

    Parameters
    ----------
    matrices
        All elements, ``(|G|, D, D)``, the identity first; :meth:`generate` finds them from a few.
    name
        The name that :func:`make_group` knows it by; ``None`` for a group of your own.

    Attributes
    ----------
    matrices
        ``(|G|, D, D)``, float64. Rows and columns are array axes in their order.
    products, inverses
        Tables of indices: ``matrices[products[s, t]]`` is ``matrices[s] @ matrices[t]``, ``(|G|, |G|)`` and ``(|G|,)``.

    Examples
    --------
    >>> group = torchsonic.make_group("C4", 2)
    >>> len(group), group.inverses.tolist()
    (4, [0, 3, 2, 1])
    """

    def __init__(self, matrices: Tensor | Sequence, *, name: str | None = None) -> None:
        elements = torch.as_tensor(matrices, dtype=torch.float64, device="cpu")
        if elements.dim() != 3 or elements.shape[1] != elements.shape[2] or not 1 <= elements.shape[1] <= 3:
            raise ValueError(f"matrices must have shape (n, D, D) with D = 1, 2 or 3, got {tuple(elements.shape)}")
        one = torch.eye(elements.shape[1], dtype=torch.float64, device="cpu")
        if not torch.allclose(elements @ elements.mT, one.expand_as(elements), atol=1e-9):
            raise ValueError("matrices must be orthogonal, since a group consists of rotations and reflections")
        if not torch.allclose(elements[0], one, atol=1e-9):
            raise ValueError("the first matrix must be the identity")
        # The sum of products of entries is D for equal matrices and less for others.
        products = torch.einsum("sij,tjk->stik", elements, elements)
        alike = torch.einsum("stik,uik->stu", products, elements) > len(one) - 1e-6
        if not (alike.sum(-1) == 1).all():
            raise ValueError(
                f"the {len(elements)} matrices are not a group: a product of two is missing, or one occurs twice; "
                "Group.generate completes a list of generators"
            )
        self.matrices, self.name = elements, name
        self.products = alike.long().argmax(-1)
        self.inverses = (self.products == 0).long().argmax(-1)
        # As numbers, which compilers take for constants: rows of the matrices, and indices of t^-1 s, t slowest.
        self.rows = tuple(map(tuple, elements.flatten(1).tolist()))
        self.relative = tuple(self.products[self.inverses].flatten().tolist())

    @classmethod
    def generate(cls, generators: Sequence, *, name: str | None = None) -> Group:
        """The smallest group that contains the given matrices."""
        given = [torch.as_tensor(g, dtype=torch.float64, device="cpu") for g in generators]
        found = torch.eye(given[0].shape[-1], dtype=torch.float64, device="cpu")[None]
        index = 0
        while index < len(found):
            for product in (found[index] @ generator for generator in given):
                if (product - found).abs().amax((1, 2)).min() > 1e-6:
                    found = torch.cat([found, product[None]])
            index += 1
            if len(found) > MOST_ELEMENTS:
                raise ValueError(f"the generators give an infinite group, or one of more than {MOST_ELEMENTS} elements")
        return cls(found, name=name)

    @property
    def num_axes(self) -> int:
        """D, the dimension of the space it acts on."""
        return self.matrices.shape[-1]

    def __len__(self) -> int:
        return len(self.matrices)

    def __repr__(self) -> str:
        return f"Group({f'{self.name}: ' if self.name else ''}{len(self)} elements, {self.num_axes}-D)"


def make_group(name: str | Group, spatial_dims: int, *, axis: int = 0) -> Group:
    """Get a group by name; a :class:`Group` of the right dimension is returned unchanged.

    Parameters
    ----------
    name
        For example ``"C8"`` or ``"D4"`` in 2-D, ``"C4v"`` or ``"O"`` in 3-D; see :mod:`torchsonic.spectral.groups`.
    axis
        In 3-D, the array axis about which ``C`` and ``D`` rotate; slices are usually stacked along the first.
    """
    if isinstance(name, Group):
        if name.num_axes != spatial_dims:
            raise ValueError(f"group={name} acts on {name.num_axes} axes, but there are {spatial_dims}")
        return name
    if axis not in range(spatial_dims):
        raise ValueError(f"axis must be one of {tuple(range(spatial_dims))}, got {axis!r}")
    with torch.device("cpu"):  # not PyTorch's default device, which is "meta" while a saved model is looked at
        return _named(str(name), spatial_dims, axis if spatial_dims == 3 else 0)


@lru_cache
def _named(name: str, spatial_dims: int, axis: int) -> Group:
    around = re.fullmatch(r"([CD])([1-9]\d{0,2})([vh]?)", name)
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
