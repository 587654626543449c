"""The Sonic operator.

    y = Re{ C F^-1[ g_m T_m(w) F[B x]_m ] } + bias

Arguments are checked here; :func:`torchsonic.engine.autograd.convolve` applies the operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

from torchsonic.arguments import check_samples
from torchsonic.engine.autograd import convolve
from torchsonic.engine.call import Operands, Options
from torchsonic.functional.options import Execution, as_group, group_old, refuse_unknown, warn_once
from torchsonic.spectral.boundary import PaddingMode
from torchsonic.spectral.limits import ResponseLimits
from torchsonic.spectral.operator import ModeOperator
from torchsonic.spectral.response import Modes, ModeShape, Symmetry
from torchsonic.spectral.spacing import Spacing, as_spacing


def sonic_conv(
    x: Tensor,
    modes: Modes | ModeOperator,
    bias: Tensor | None = None,
    *,
    spacing: Spacing = 1.0,
    output_size: Sequence[int] | None = None,
    padding_mode: PaddingMode = "circular",
    padding: int | Sequence[int] | None = None,
    execution: Execution | Mapping[str, Any] | None = None,
    **old: Any,
) -> Tensor:
    r"""Convolve with the global kernel that a few oriented modes define.

    .. math:: y = \operatorname{Re}\{ C\,\mathcal F^{-1}[\, g_m T_m(\omega)\,\mathcal F[B x]_m ]\} + \text{bias}

    Parameters
    ----------
    x
        Real samples, ``(B, C, N_1 .. N_D)``.
    modes
        Physical parameters, for example ``layer.modes()``; or a :class:`ModeOperator`, which also has limits and a
        symmetry, for example ``layer.reference_operator()``.
    bias
        ``(K,)`` or ``None``.
    spacing
        Physical step of ``x``: a number, one per axis, or ``(B, D)``.
    output_size
        Number of output samples over the same extent. Defaults to the size of ``x``.
    padding_mode
        ``"circular"``, ``"zeros"`` or ``"reflect"``.
    padding
        Width of the margin of zeros, or of the mirror image, in samples: a number, or one per axis. By default the
        margin is as wide as the image, and only modes longer than the image wrap around.
    execution
        How it is computed; this does not change the result. A :class:`torchsonic.nn.Execution` or a mapping of its
        fields.

    Returns
    -------
    Tensor
        ``(B, K, *output_size)``.

    Examples
    --------
    >>> layer = torchsonic.SonicConv2d(3, 5, num_modes=4)
    >>> x = torch.randn(2, 3, 16, 20)
    >>> torch.allclose(sonic_conv(x, layer.modes(), layer.bias), layer(x), atol=1e-5)
    True
    """
    (modes, cutoff, limits, symmetry), execution = _take_old(modes, execution, old)
    num_axes = modes.direction.shape[-1]
    check_samples(x, num_axes, modes.mix_in.shape[-1], "sonic_conv")
    shape = ModeShape(
        modes.direction[None],
        modes.scale[None],
        -modes.pole.real[None],
        modes.pole.imag[None],
        modes.transverse[None],
        modes.gain[None],
        None if cutoff is None else cutoff[None],
    )
    return spectral_conv(
        x,
        torch.stack([modes.mix_in.real, modes.mix_in.imag], dim=1),
        torch.stack([modes.mix_out.real, -modes.mix_out.imag], dim=2),
        shape,
        bias,
        spacing=as_spacing(spacing, num_axes, batch=x.shape[0], device=x.device),
        output_size=output_size,
        padding_mode=padding_mode,
        padding=padding,
        limits=limits,
        symmetry=symmetry,
        execution=execution,
    )


def _take_old(modes: Modes | ModeOperator, execution: Any, old: Mapping[str, Any]) -> tuple[ModeOperator, Any]:
    """The operator and the execution from arguments of :func:`sonic_conv`, old keywords included."""
    operator = modes if isinstance(modes, ModeOperator) else ModeOperator(modes)
    if not old:
        return operator, execution
    groups = group_old({"execution": execution, **old}, warn=True)
    execution = groups.pop("execution")
    refuse_unknown("sonic_conv", [name for name in groups if name not in ModeOperator._fields[1:]])
    if groups:
        given = ", ".join(f"{name}=" for name in groups)
        remedy = "pass torchsonic.functional.ModeOperator(modes, cutoff, limits, symmetry) in place of modes"
        warn_once("sonic_conv", f"{given} of sonic_conv is deprecated; {remedy}", stacklevel=4)
    return operator._replace(**groups), execution


class SpectralOptions(TypedDict, total=False):
    """Further options of :func:`spectral_conv`, described there."""

    output_size: Sequence[int] | None
    padding_mode: PaddingMode
    padding: int | Sequence[int] | None
    limits: ResponseLimits | Mapping[str, Any] | None
    symmetry: Symmetry
    execution: Execution | Mapping[str, Any] | None


def spectral_conv(
    x: Tensor,
    mix_in: Tensor,
    mix_out: Tensor,
    shape: ModeShape,
    bias: Tensor | None = None,
    *,
    spacing: Tensor,
    **options: Unpack[SpectralOptions],
) -> Tensor:
    r"""The operator on real parameters, as layers store them.

    .. math:: y = \operatorname{Re}(C)\, \mathcal F^{-1}[T_1 P - T_2 Q] - \operatorname{Im}(C)\,
              \mathcal F^{-1}[T_1 Q + T_2 P] + \text{bias}, \qquad P + iQ = \mathcal F[B x]

    Parameters
    ----------
    x
        ``(B, C, *size)``, float32 or float64 like all tensors here.
    mix_in, mix_out
        ``(M, 2, C)`` with ``Re B, Im B`` and ``(K, M, 2)`` with ``Re C, -Im C``.
    shape
        Parameters of the responses, shared (G = 1) or one set per sample.
    bias
        ``(K,)`` or ``None``.
    spacing
        ``(1, D)`` or ``(B, D)``.
    options
        ``output_size``, ``padding_mode``, ``padding`` and ``execution`` as in :func:`sonic_conv`; ``limits`` of the
        responses, by default none (a band limit needs ``shape.cutoff``); and ``symmetry``, ``"real"`` for the exact
        operator or ``"half"`` for the paper's use of the half spectrum.

    Returns
    -------
    Tensor
        ``(B, K, *output_size)``.

    Examples
    --------
    >>> mix_in, mix_out, ones = torch.randn(4, 2, 3), torch.randn(5, 4, 2), torch.ones(1, 4)
    >>> direction = torch.tensor([1.0, 0.0]).expand(1, 4, 2)
    >>> shape = torchsonic.functional.ModeShape(direction, ones, ones, ones, ones, ones)
    >>> spectral_conv(torch.randn(2, 3, 8, 9), mix_in, mix_out, shape, spacing=torch.ones(1, 2)).shape
    torch.Size([2, 5, 8, 9])
    """
    check_samples(x, shape.direction.shape[-1], mix_in.shape[-1], "spectral_conv")
    if x.dtype not in (torch.float32, torch.float64) or mix_in.dtype != x.dtype:
        raise TypeError(f"x and mix_in must both be float32 or float64, got {x.dtype} and {mix_in.dtype}")
    operands = Operands(x, mix_in, mix_out, *shape, bias, spacing)
    _check_sizes(operands)
    given = group_old(options, warn=True)
    refuse_unknown("spectral_conv", [name for name in given if name not in SpectralOptions.__annotations__])
    execution = Execution.of(given.pop("execution", None))
    limits = as_group(ResponseLimits, given.pop("limits", None), "limits")
    limits.check(shape.cutoff)
    order, mode_chunk, recompute = execution
    size = tuple(x.shape[2:])
    checked = Options.checked(size, **given, order=order, mode_chunk=mode_chunk, limits=limits)
    return convolve(operands, checked, recompute=recompute)


def _check_sizes(operands: Operands) -> None:
    """Refuse tensors whose sizes do not match; surplus modes and samples would be ignored silently."""
    num_modes, _, channels = operands.mix_in.shape
    num_axes, batch = operands.direction.shape[-1], operands.x.shape[0]
    out_channels = operands.mix_out.shape[0]
    whole = {"mix_in": (num_modes, 2, channels), "mix_out": (out_channels, num_modes, 2), "bias": (out_channels,)}
    own = {"direction": (num_modes, num_axes), "spacing": (num_axes,)}
    for name, value in operands._asdict().items():
        if name == "x" or value is None:
            continue
        given = tuple(value.shape)
        if name in whole:
            if _differ(given, whole[name]):
                raise ValueError(f"{name} must have shape {whole[name]} to fit mix_in and mix_out, got {given}")
            continue
        of_one = own.get(name, (num_modes,))
        if _differ(given, (1, *of_one)) and _differ(given, (batch, *of_one)):
            raise ValueError(
                f"{name} must have shape {(1, *of_one)}, or {(batch, *of_one)} with one row per sample, got {given}"
            )


def _differ(size: tuple[int, ...], other: tuple[int, ...]) -> bool:
    # Element by element, since compilers compare tuples of symbols by name.
    return len(size) != len(other) or any(a != b for a, b in zip(size, other, strict=True))
