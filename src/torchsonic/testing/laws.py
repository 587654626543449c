"""The operator's laws as public functions, for testing your own layers.

Each function takes a layer that behaves like :class:`torchsonic.SonicConv2d` and raises ``AssertionError`` naming the
law, the error and the tolerance if the layer breaks it. Errors are relative: ``max |a - b| / max |b|``.

Grids have their first sample at the origin and cover ``size * spacing``. Fields are drawn with a fixed seed, so a law
gives the same verdict every time.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchsonic.functional import ORDERS, Modes
from torchsonic.nn import SonicConvNd
from torchsonic.testing.reference import along_axes, band_limited_field, dense_conv, relative_error, waves

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def _require_close(law: str, actual: Tensor, expected: Tensor, tolerance: float) -> None:
    if actual.shape != expected.shape:
        raise AssertionError(f"{law}: shape {tuple(actual.shape)} instead of {tuple(expected.shape)}")
    error = relative_error(actual, expected)
    if not error <= tolerance:
        raise AssertionError(f"{law}: relative error {error:.2e} exceeds {tolerance:.0e}")


def _require_effect(answer: Tensor, without_input: Tensor, tolerance: float) -> None:
    """Refuse a model that ignores its input, or all but ignores it, since it would obey any law."""
    if relative_error(without_input, answer) <= tolerance:
        raise AssertionError(
            f"the result is the same for an input of zeros, to {tolerance:.0e}, so this law would hold whatever the "
            "model does; pass a model, and an input, for which the result is not constant"
        )


def _tolerance(layer: SonicConvNd, given: float | None) -> float:
    return TOLERANCE[layer.mix_in.dtype] if given is None else given


def _random_input(layer: SonicConvNd, size: Sequence[int], batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(sum(size))
    x = torch.randn(batch, layer.in_channels, *size, generator=generator, dtype=torch.float64)
    return x.to(layer.mix_in)


def _as_steps(spacing: float | Sequence[float], num_axes: int) -> tuple[float, ...]:
    return (float(spacing),) * num_axes if isinstance(spacing, (int, float)) else tuple(map(float, spacing))


def _dense(layer: SonicConvNd, x: Tensor, steps: Sequence[float]) -> Tensor:
    modes = layer.modes(without_limits=True)
    return dense_conv(x, modes, layer.bias, spacing=steps, cutoff=layer.cutoff(), limits=layer.limits)


def assert_matches_dense(
    layer: SonicConvNd, size: Sequence[int], spacing: float | Sequence[float] = 1.0, *, tolerance: float | None = None
) -> None:
    """Law 1: the layer equals the dense matrices of its definition."""
    x = _random_input(layer, size)
    steps = _as_steps(spacing, layer.num_axes)
    expected = _dense(layer, x, steps)
    _require_close("dense reference", layer(x, spacing=steps), expected, _tolerance(layer, tolerance))


def assert_shift_equivariant(
    layer: SonicConvNd, size: Sequence[int], spacing: float | Sequence[float] = 1.0, *, tolerance: float | None = None
) -> None:
    """Law 2: shifting the input shifts the output (circular boundary)."""
    x = _random_input(layer, size)
    dims = list(range(2, 2 + layer.num_axes))
    shifts = [1 + 2 * d for d in range(layer.num_axes)]
    shifted_first = layer(torch.roll(x, shifts, dims), spacing=spacing)
    shifted_last = torch.roll(layer(x, spacing=spacing), shifts, dims)
    _require_close("shift", shifted_first, shifted_last, _tolerance(layer, tolerance))


def _with_directions(layer: SonicConvNd, directions: Tensor) -> SonicConvNd:
    changed = copy.deepcopy(layer)
    with torch.no_grad():
        changed.raw_direction.copy_(directions)
    return changed


def assert_permutes_with_axes(
    layer: SonicConvNd, size: Sequence[int], spacing: float | Sequence[float] = 1.0, *, tolerance: float | None = None
) -> None:
    """Law 3: permuting the axes of image, directions and spacing permutes the output."""
    x = _random_input(layer, size)
    steps = _as_steps(spacing, layer.num_axes)
    expected = layer(x, spacing=steps)
    for order in itertools.permutations(range(layer.num_axes)):
        permuted = _with_directions(layer, layer.raw_direction[:, list(order)])
        permuted.reference_spacing = tuple(layer.reference_spacing[d] for d in order)
        dims = (0, 1, *[2 + d for d in order])
        y = permuted(x.permute(dims), spacing=[steps[d] for d in order])
        _require_close(f"axes {order}", y, expected.permute(dims), _tolerance(layer, tolerance))


def assert_turns_with_image(layer: SonicConvNd, size: int, *, tolerance: float | None = None) -> None:
    """Law 4: rotating directions and image by 90 degrees rotates the output (2-D, square grid)."""
    if layer.num_axes != 2:
        raise ValueError(f"the law of quarter turns is for two axes, but the layer has {layer.num_axes}")

    def turn(image: Tensor) -> Tensor:
        """About the sample at the origin, on the circular grid: ``(i, j) -> (-j, i)``."""
        return torch.roll(image.transpose(2, 3).flip(2), 1, 2)

    x = _random_input(layer, (size, size))
    turned = _with_directions(layer, torch.stack([-layer.raw_direction[:, 1], layer.raw_direction[:, 0]], dim=-1))
    _require_close("quarter turn", turned(turn(x)), turn(layer(x)), _tolerance(layer, tolerance))


def assert_resolution_invariant(
    layer: SonicConvNd,
    sizes: Sequence[Sequence[int]],
    *,
    max_wavenumber: int = 3,
    extent: float | Sequence[float] = 16.0,
    tolerance: float | None = None,
) -> None:
    """Law 5: a band-limited field, sampled on any grids of the same extent, gives the same output field.

    Parameters
    ----------
    sizes
        Grids, isotropic or not, each resolving ``max_wavenumber``.
    extent
        Physical extent of the field.
    """
    extents = _as_steps(extent, layer.num_axes)
    fields: list[Tensor] = []
    for size in sizes:
        if min(size) <= 2 * max_wavenumber:
            raise ValueError(f"size {tuple(size)} does not resolve wavenumber {max_wavenumber}")
        x = band_limited_field(size, max_wavenumber, layer.in_channels, dtype=layer.mix_in.dtype)
        steps = [length / n for length, n in zip(extents, size, strict=True)]
        y = layer(x.to(layer.mix_in.device), spacing=steps).detach().cpu().double()
        bases = [waves(n, max_wavenumber) for n in size]
        coefficients = along_axes(y.to(torch.complex128), [w.conj().T / len(w) for w in bases])
        name, bound = f"resolution {tuple(size)}", _tolerance(layer, tolerance)
        _require_close(f"{name}: frequencies that the input lacks", y, along_axes(coefficients, bases).real, bound)
        fields.append(coefficients)
        _require_close(name, coefficients, fields[0], bound)


def assert_unit_free(
    layer: SonicConvNd, size: Sequence[int], factor: float = 1e-3, *, tolerance: float | None = None
) -> None:
    """Law 6: measuring all lengths (spacing and reference spacing) in another unit changes nothing."""
    x = _random_input(layer, size)
    other = copy.deepcopy(layer)
    other.reference_spacing = tuple(factor * step for step in layer.reference_spacing)
    steps = [0.75 * step for step in layer.reference_spacing]
    y = other(x, spacing=[factor * step for step in steps])
    _require_close(f"unit {factor:g}", y, layer(x, spacing=steps), _tolerance(layer, tolerance))


def _axis_aligned(layer: SonicConvNd, axis: int, *, real_pole: bool) -> SonicConvNd:
    aligned = copy.deepcopy(layer)
    with torch.no_grad():
        aligned.raw_direction.zero_()
        aligned.raw_direction[:, axis] = 1.0
        aligned.raw_transverse.fill_(-1e4)  # softplus gives zero
        if real_pole:
            aligned.raw_oscillation.zero_()
    return aligned


def assert_state_space_limit(layer: SonicConvNd, *, tolerance: float | None = None) -> None:
    """Law 7: with directions along an axis and no transverse penalty, the layer is a diagonal state-space model.

    Its symbol equals ``C (i w I - A)^-1 B`` with ``A = diag(a / s)`` and ``B`` divided by ``s``, and with real poles
    its kernel approaches the sampled exponential as the spacing shrinks.
    """
    for axis in range(layer.num_axes):
        aligned = _axis_aligned(layer, axis, real_pole=False)
        modes = Modes(*[t.cpu() for t in aligned.modes()])
        omega = torch.zeros(9, layer.num_axes, dtype=torch.float64)
        omega[:, axis] = torch.linspace(-3, 3, 9, dtype=torch.float64) / layer.reference_spacing[axis]
        symbols = []
        for w in (omega[:, axis], -omega[:, axis]):
            state = torch.diag_embed(1j * w[:, None] - (modes.pole / modes.scale).to(torch.complex128))
            entry = (modes.gain / modes.scale)[:, None] * modes.mix_in
            symbols.append(modes.mix_out.to(torch.complex128) @ torch.linalg.solve(state, entry.to(torch.complex128)))
        expected = 0.5 * (symbols[0] + symbols[1].conj())
        _require_close(
            "state space", aligned.response(omega.to(aligned.mix_in)), expected, _tolerance(layer, tolerance)
        )
    _require_exponential_kernel(_axis_aligned(layer, layer.num_axes - 1, real_pole=True))


def _require_exponential_kernel(layer: SonicConvNd) -> None:
    """The kernel along the last axis against ``g/s step exp(Re a / s t)``, ``t >= 0``, wrapped to the period."""
    modes = Modes(*[t.cpu() for t in layer.modes()])
    rate = (-modes.pole.real / modes.scale).double()
    period = 20.0 / rate.min().item()
    errors = []
    for num_samples in (128, 512, 2048):
        step = period / num_samples
        size = (*[1] * (layer.num_axes - 1), num_samples)
        kernel = layer.kernel(size, spacing=[*layer.reference_spacing[:-1], step]).cpu().double()
        t = step * torch.arange(num_samples, dtype=torch.float64)
        decay = torch.exp(-rate[:, None] * t) / (1 - torch.exp(-rate[:, None] * period))
        weight = (modes.gain / modes.scale).double() * step
        mixing = torch.einsum("km,mc->kcm", modes.mix_out, modes.mix_in).real.double()
        expected = torch.einsum("kcm,mt->kct", mixing * weight, decay)
        flat = kernel.reshape(expected.shape)
        errors.append(((flat - expected).norm() / expected.norm()).item())
    if not errors[0] > errors[1] > errors[2]:
        raise AssertionError(f"state space: the kernel does not approach the exponential, errors {errors}")


def assert_gradients_match_dense(
    layer: SonicConvNd, size: Sequence[int], spacing: float | Sequence[float] = 1.0, *, tolerance: float | None = None
) -> None:
    """Law 8: gradients of the input and of every parameter equal those of the dense reference."""
    steps = _as_steps(spacing, layer.num_axes)
    reference = copy.deepcopy(layer).cpu().double()
    inputs = [_random_input(layer, size).requires_grad_(), _random_input(layer, size).cpu().double().requires_grad_()]
    y = layer(inputs[0], spacing=steps)
    expected = _dense(reference, inputs[1], steps)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    names = ["x", *[name for name, _ in layer.named_parameters()]]
    grads = torch.autograd.grad(y, [inputs[0], *layer.parameters()], weight.to(y))
    expected_grads = torch.autograd.grad(expected, [inputs[1], *reference.parameters()], weight)
    # Sums over the whole grid lose a digit or two to rounding where terms cancel.
    bound = 30 * _tolerance(layer, tolerance)
    typical = expected_grads[0].abs().max()
    for name, actual, wanted in zip(names, grads, expected_grads, strict=True):
        if wanted.abs().max() > 1e-9 * typical:
            _require_close(f"gradient of {name}", actual, wanted, bound)
        elif not actual.abs().max().double().cpu() <= 1e3 * bound * typical:  # zero but for rounding
            raise AssertionError(f"gradient of {name}: {actual.abs().max():.2e} instead of zero")


def assert_orders_agree(
    layer: SonicConvNd,
    size: Sequence[int],
    spacing: float | Sequence[float] = 1.0,
    *,
    chunks: Sequence[int | None] = (None, 1, 3),
    transform: Callable[[SonicConvNd], Callable[..., Tensor]] | None = None,
    tolerance: float | None = None,
) -> None:
    """Law 9: evaluation orders, chunk sizes, recomputation and compiled code agree, including gradients.

    Parameters
    ----------
    transform
        A function such as ``torch.compile``, applied to every variation.
    """
    x = _random_input(layer, size).requires_grad_()
    expected: list[Tensor] | None = None
    for order, chunk, recompute in itertools.product(ORDERS, chunks, (False, True)):
        varied = copy.deepcopy(layer)
        varied.order, varied.mode_chunk, varied.recompute = order, chunk, recompute
        call = varied if transform is None else transform(varied)
        y = call(x, spacing=spacing)
        weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(y)
        results = [y, *torch.autograd.grad(y, [x, *varied.parameters()], weight)]
        if expected is None:
            expected = results
        for name, actual, wanted in zip(["y", "x", *dict(layer.named_parameters())], results, expected, strict=True):
            bound = (1 if name == "y" else 30) * _tolerance(layer, tolerance)
            _require_close(f"order {order}, chunk {chunk}, recompute {recompute}: {name}", actual, wanted, bound)
