"""Laws of equivariant layers and networks, for any group of rotations and reflections.

Rotated by an element g, a field ``x_{c,s}(p)`` over the group becomes ``x_{c, g^-1 s}(g^-1 p)``, an ordinary image
``x_c(p)`` becomes ``x_c(g^-1 p)``, and numbers such as the logits of a classifier do not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from torchsonic.arguments import choice
from torchsonic.functional import Group, make_group
from torchsonic.nn.orbit import SonicOrbitConvNd
from torchsonic.nn.orbit_fields import count_fields
from torchsonic.spectral.spacing import spacing_values
from torchsonic.testing.laws import TOLERANCE, _require_close, _require_effect, _tolerance

LEAST_SIZE = 24
"""Samples per axis: smooth fields have to fit in, and kernels to decay."""

Turned = Literal["fields", "image", "numbers"]
Model = Callable[..., Tensor]


def _permute_channels(x: Tensor, group: Group, element: int, kind: Turned) -> Tensor:
    """``x_{c, g^-1 s}`` for fields over the group."""
    if kind != "fields":
        return x
    places = group.products[group.inverses[element]]
    return x.unflatten(1, (-1, len(group)))[:, :, places].flatten(1, 2)


def _check_given(given: Turned, result: Turned, group: Group, channels: int) -> None:
    choice(given, ("fields", "image"), "given")
    choice(result, get_args(Turned), "result")
    if given == "fields":
        count_fields(channels, group, "channels of given='fields'")


def _check_result(y: Tensor, result: Turned, num_axes: int, group: Group | None = None) -> None:
    if result == "numbers":
        return
    if y.dim() != num_axes + 2:
        raise ValueError(
            f"result={result!r} needs a model that returns (B, K, {num_axes} axes), got shape {tuple(y.shape)}; use "
            "result='numbers' for results without axes"
        )
    if group is not None and result == "fields":
        count_fields(y.shape[1], group, "channels of result='fields'")


def _check_size(size: Sequence[int]) -> None:
    if min(size) < LEAST_SIZE:
        raise ValueError(
            f"size must be at least {LEAST_SIZE} samples per axis, since the field does not fit into less, got "
            f"{tuple(size)}"
        )


def assert_symbol_turns(layer: SonicOrbitConvNd, *, tolerance: float | None = None) -> None:
    """``H(g w) = P_g H(w) P_g^-1`` at random frequencies, for all elements g."""
    if not isinstance(layer, SonicOrbitConvNd):
        raise TypeError(
            f"layer must be an orbit layer such as SonicOrbitConv2d, got {type(layer).__name__}; test other models "
            "with assert_turns_with_array or assert_turns_in_space"
        )
    group, bound = layer.group, _tolerance(layer, tolerance)
    omega = torch.randn(5, group.num_axes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = layer.response(omega)
    _require_effect(plain, torch.zeros_like(plain), bound)
    for element, matrix in enumerate(group.matrices):
        turned = layer.response(omega @ matrix.mT)
        # Row g r and column g s of the turned symbol are row r and column s of the other.
        back = group.inverses[element].item()
        moved = _permute_channels(turned, group, int(back), "fields")
        if not layer.lift:
            moved = _permute_channels(moved.mT, group, int(back), "fields").mT
        _require_close(f"symbol turned by element {element}", moved, plain, bound)


def _turn_array(x: Tensor, matrix: Tensor) -> Tensor:
    """``x(g^-1 p)`` about the middle of the array, for a matrix that permutes and flips axes."""
    order = matrix.abs().argmax(1).tolist()
    signs = matrix.sum(1)
    turned = x.permute(0, 1, *[2 + axis for axis in order])
    return turned.flip([2 + axis for axis in range(len(order)) if signs[axis] < 0])


def assert_turns_with_array(
    model: Model,
    group: str | Group,
    x: Tensor,
    *,
    spacing: float | Sequence[float] = 1.0,
    given: Turned = "image",
    result: Turned = "image",
    tolerance: float | None = None,
) -> None:
    """Rotating the array about its centre rotates the result, for all elements that permute and flip axes.

    Parameters
    ----------
    model
        Called as ``model(x, spacing=...)``.
    group
        Its name, or a :class:`torchsonic.Group`.
    x
        ``(B, C, *size)``; any size.
    given, result
        What ``x`` and the result are: ``"fields"`` over the group, an ``"image"``, or, for the result, ``"numbers"``.
    tolerance
        By default that of the dtype of ``x``, ``torchsonic.testing.TOLERANCE``.
    """
    group = make_group(group, x.dim() - 2)
    _check_given(given, result, group, x.shape[1])
    steps = spacing_values(spacing, group.num_axes)
    bound = TOLERANCE[x.dtype] if tolerance is None else tolerance
    exact = {i: m.round() for i, m in enumerate(group.matrices) if torch.allclose(m, m.round(), atol=1e-9)}
    if len(exact) == 1:
        raise ValueError(
            f"of {group}, only the identity permutes and flips axes, and any model obeys that; use "
            "assert_turns_in_space, or another group such as C4"
        )
    plain = model(x, spacing=steps)
    _check_result(plain, result, group.num_axes, group)
    _require_effect(plain, model(torch.zeros_like(x), spacing=steps), bound)
    for element, matrix in exact.items():
        turned_steps = (matrix.abs() @ torch.tensor(steps, dtype=torch.float64)).tolist()
        turned = model(_permute_channels(_turn_array(x, matrix), group, element, given), spacing=turned_steps)
        expected = (
            plain if result == "numbers" else _permute_channels(_turn_array(plain, matrix), group, element, result)
        )
        _require_close(f"array turned by element {element}", turned, expected, bound)


def assert_turns_in_space(
    model: Model,
    group: str | Group,
    size: Sequence[int],
    channels: int,
    *,
    spacing: float | Sequence[float] = 1.0,
    given: Turned = "image",
    result: Turned = "image",
    width: float = 2.5,
    dtype: torch.dtype = torch.float64,
    tolerance: float = 1e-6,
) -> None:
    """Rotating a field by any element, not only by 90 degrees, before sampling it rotates the result.

    The field is smooth and confined to the middle of the grid, and the model's kernels must decay within it.

    Parameters
    ----------
    group
        Its name, or a :class:`torchsonic.Group`.
    size, channels
        Size (at least 24 samples per axis) and channels of the input.
    spacing
        Spacing of the grid on which both fields are sampled.
    width
        Width of the field's bumps, in units of the coarsest spacing.
    """
    group = make_group(group, len(size))
    _check_given(given, result, group, channels)
    _check_size(size)
    told = spacing_values(spacing, group.num_axes)
    steps = torch.tensor(told, dtype=torch.float64)
    sample, points = _smooth_field(size, steps, channels, width=width, dtype=dtype)
    x = sample(torch.eye(group.num_axes, dtype=torch.float64))
    plain = model(x, spacing=told).double()
    _check_result(plain, result, group.num_axes, group)
    _require_effect(plain, model(torch.zeros_like(x), spacing=told), tolerance)
    for element, matrix in enumerate(group.matrices):
        turned = model(_permute_channels(sample(matrix), group, element, given), spacing=told).double()
        if result == "numbers":
            _require_close(f"field turned by element {element}", turned, plain, tolerance)
            continue
        expected = _permute_channels(_interpolate(plain, points @ matrix, steps), group, element, result)
        _require_close(f"field turned by element {element}", _interpolate(turned, points, steps), expected, tolerance)


def _smooth_field(
    size: Sequence[int], steps: Tensor, channels: int, *, width: float, dtype: torch.dtype
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """A field of bumps about the middle of a grid, turned by a matrix and sampled, and points ``(P, D)`` near them."""
    num_axes, generator = len(steps), torch.Generator().manual_seed(0)
    unit = float(steps.max()) * width
    centres = torch.randn(channels, 4, num_axes, generator=generator, dtype=torch.float64) * unit / 2
    weights = torch.randn(channels, 4, generator=generator, dtype=torch.float64)
    axes = [(torch.arange(n, dtype=torch.float64) - n // 2) * step for n, step in zip(size, steps, strict=True)]
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)

    def sample(matrix: Tensor) -> Tensor:
        """``x(g^-1 p)`` on the grid, ``(1, C, *size)``."""
        away = (places @ matrix)[None, None] - centres[(..., *[None] * num_axes, slice(None))]
        bumps = torch.exp(-0.5 * (away / unit).square().sum(-1))
        return torch.einsum("ck,ck...->c...", weights, bumps)[None].to(dtype)

    return sample, torch.randn(40, num_axes, generator=generator, dtype=torch.float64) * unit


def _interpolate(y: Tensor, points: Tensor, steps: Tensor) -> Tensor:
    """A band-limited field ``(B, K, *size)`` at points ``(P, D)`` about the middle of its grid: ``(B, K, P)``."""
    values = torch.fft.fftn(y, dim=list(range(2, y.dim())), norm="forward")
    waves = torch.ones(len(points), 1, dtype=values.dtype)
    for axis, n in enumerate(y.shape[2:]):
        index = torch.fft.fftfreq(n, dtype=torch.float64)
        place = points[:, axis] / steps[axis] + n // 2
        wave = torch.exp(2j * math.pi * torch.outer(place, index))
        waves = (waves[:, :, None] * wave[:, None]).flatten(1)
    return (values.flatten(2) @ waves.T).real
