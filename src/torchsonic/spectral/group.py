"""A finite group of rotations and reflections: its matrices, and its tables of products and inverses."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from torchsonic.spectral.orientation import _nearest_orthogonal

__all__ = ["MOST_ELEMENTS", "Group"]

MOST_ELEMENTS = 1000
TOLERANCE = 1e-5
"""Of entries: users may give matrices in single precision."""
EXACT = 1e-11
"""Errors up to here are those of double precision, and nothing is rounded."""


class Group:
    """A finite group of orthogonal matrices.

    Parameters
    ----------
    matrices
        All elements, ``(|G|, D, D)``, the identity first; :meth:`generate` finds them from a few. At most 1000. Numbers
        in single precision are rounded to the nearest exact group.
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
        elements = _as_orthogonal(matrices, "matrices")
        if len(elements) > MOST_ELEMENTS:
            raise ValueError(f"a group may have at most {MOST_ELEMENTS} elements, got {len(elements)}")
        one = torch.eye(elements.shape[1], dtype=torch.float64, device="cpu")
        if not torch.allclose(elements[0], one, atol=TOLERANCE):
            raise ValueError(f"the first matrix must be the identity, got {elements[0].tolist()}")
        self.products, error = _multiply(elements)
        self.inverses = (self.products == 0).long().argmax(-1)
        self.matrices = elements if error < EXACT else _rounded(elements, self.products)
        self.name = name
        # As numbers, which compilers take for constants: rows of the matrices, and indices of t^-1 s, t slowest.
        self.rows = tuple(map(tuple, self.matrices.flatten(1).tolist()))
        self.relative = tuple(self.products[self.inverses].flatten().tolist())

    @classmethod
    def generate(cls, generators: Tensor | Sequence, *, name: str | None = None) -> Group:
        """The smallest group that contains the given matrices."""
        given = _as_orthogonal(generators, "generators")
        found = torch.eye(given.shape[1], dtype=torch.float64, device="cpu")[None]
        index = 0
        while index < len(found):
            for product in (found[index] @ generator for generator in given):
                if (product - found).abs().amax((1, 2)).min() > TOLERANCE:
                    found = torch.cat([found, product[None]])
            index += 1
            if len(found) > MOST_ELEMENTS:
                raise ValueError(
                    f"the generators give an infinite group, or one of more than {MOST_ELEMENTS} elements; compute "
                    "them in float64 if it should have fewer"
                )
        return cls(found, name=name)

    @property
    def num_axes(self) -> int:
        """D, the dimension of the space it acts on."""
        return self.matrices.shape[-1]

    @property
    def fingerprint(self) -> str:
        """A few letters that differ between groups with other matrices, or with the same in another order."""
        return hashlib.sha256((self.matrices * 1e4).round().int().numpy().tobytes()).hexdigest()[:8]

    def __len__(self) -> int:
        return len(self.matrices)

    def __repr__(self) -> str:
        return f"Group({f'{self.name}: ' if self.name else ''}{len(self)} elements, {self.num_axes}-D)"


def _as_orthogonal(matrices: Tensor | Sequence, name: str) -> Tensor:
    """Matrices ``(n, D, D)``, orthogonal in double precision."""
    try:
        found = torch.stack([torch.as_tensor(m, dtype=torch.float64, device="cpu").detach() for m in matrices])
    except (TypeError, ValueError, RuntimeError):  # ragged, empty, or no numbers
        found = torch.empty(0, device="cpu")
    if found.dim() != 3 or found.shape[1] != found.shape[2] or not 1 <= found.shape[1] <= 3:
        given = tuple(matrices.shape) if isinstance(matrices, Tensor) else repr(matrices)
        raise ValueError(f"{name} must be a list of matrices (n, D, D) with n > 0 and D = 1, 2 or 3, got {given}")
    error = (found @ found.mT - torch.eye(found.shape[1], dtype=torch.float64, device="cpu")).abs().max().item()
    if not error <= TOLERANCE:  # also if it is not a number
        raise ValueError(
            f"{name} must be orthogonal, since a group consists of rotations and reflections, but a matrix times its "
            f"transpose differs from the identity by {error:.2g}"
        )
    return found if error < EXACT else _nearest_orthogonal(found)


def _multiply(elements: Tensor) -> tuple[Tensor, float]:
    """The table of products, and by how much entries of products differ from those of elements at most."""
    flat, rows, error = elements.flatten(1), [], 0.0
    for element in elements:  # row by row, since all products at once would take much memory
        products = (element @ elements).flatten(1)
        # The sum of products of entries is largest for equal matrices.
        rows.append((products @ flat.mT).argmax(1))
        error = max(error, (products - flat[rows[-1]]).abs().max().item())
    table = torch.stack(rows)
    every = torch.arange(len(elements), device="cpu").expand_as(table)
    if error > 10 * TOLERANCE or not torch.equal(table.sort(1).values, every):
        raise ValueError(
            f"the {len(elements)} matrices are not a group: a product of two is missing, or one occurs twice; "
            "Group.generate completes a list of generators"
        )
    return table, error


def _rounded(elements: Tensor, products: Tensor) -> Tensor:
    """The exact group next to one in single precision: element t is the mean of ``s^-1 (s t)`` over all s.

    Each pass squares the error.
    """
    for _ in range(2):
        back = [one.mT @ elements[row] for one, row in zip(elements, products, strict=True)]
        elements = _nearest_orthogonal(torch.stack(back).mean(0))
    return elements
