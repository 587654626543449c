"""The Sonic operator from real operations that every runtime knows.

The same three steps as in :mod:`kernels` (coefficients, coupling, samples), without complex numbers, chunks or writing
in place. Coefficients are real arrays with an axis of two parts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchsonic.engine.call import Mixing
from torchsonic.engine.lowering import is_symbolic
from torchsonic.engine.transform import analyse, synthesise
from torchsonic.export.lowering.dense import dense_analyse, dense_synthesise, last_multiplicity
from torchsonic.export.lowering.radix import analyse_in_two, factorise, synthesise_in_two
from torchsonic.export.lowering.real_response import Parts, RealResponses, couple_real
from torchsonic.export.lowering.symbolic import SettledBand
from torchsonic.spectral.band import Band
from torchsonic.spectral.boundary import Boundary, extend

if TYPE_CHECKING:
    from torchsonic.export.lowering.exporting import Exporting


class _MatrixTransform:
    """Products with cosines and sines, between samples ``(B, S, *size)`` and coefficients ``(B, S, 2, *band)``.

    The axis of two holds real and imaginary parts; transforms that follow have it elsewhere.
    """

    def __init__(self, exporting: Exporting, band: Band, out_size: tuple[int, ...], boundary: Boundary) -> None:
        self._exporting, self._band, self._out_size = exporting, band, out_size
        self._boundary = boundary

    def analyse(self, x: Tensor) -> Tensor:
        x = extend(x, self._band, self._boundary)
        matrices = self._exporting.matrices("analysis", self._band, tuple(x.shape[2:]), x)
        return dense_analyse(x, matrices, self._band)

    def synthesise(self, z: Tensor) -> Tensor:
        matrices = self._exporting.matrices("synthesis", self._band, self._out_size, z)
        return dense_synthesise(z, matrices, self._band, self._out_size)

    def split(self, z: Tensor) -> tuple[Parts, Parts]:
        """The two signals of each mode, parts of ``(B, M, *band)``, from coefficients of 2 M signals."""
        p_real, p_imaginary, q_real, q_imaginary = z.reshape(z.shape[0], z.shape[1] // 2, 4, *z.shape[3:]).unbind(2)
        return (p_real, p_imaginary), (q_real, q_imaginary)

    def join(self, p: Parts, q: Parts) -> Tensor:
        """The same back."""
        z = torch.stack([*p, *q], dim=2)
        return z.reshape(z.shape[0], 2 * z.shape[1], 2, *z.shape[3:])

    def arrange(self, response: Tensor) -> Tensor:
        """Responses ``(G, M, *band)`` in the order of coefficients."""
        return response


class _TwoStepTransform(_MatrixTransform):
    """The same with the first axis in two steps: coefficients ``(B, S, p, 2, q, *band[1:])``."""

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        factors = factorise(self._band.size_in[0])
        assert factors is not None
        self._num_q, self._num_p = factors

    @staticmethod
    def fits(band: Band, boundary: Boundary) -> bool:
        """Not if the first axis is resampled, has zeros at its end, or an unknown size."""
        if band.num_axes == 1 or boundary.mode == "zeros" or _symbolic(band) or band.resampled[0]:
            return False
        return factorise(band.size_in[0]) is not None

    def analyse(self, x: Tensor) -> Tensor:
        x = extend(x, self._band, self._boundary)
        matrices = self._exporting.matrices("analysis", self._band, tuple(x.shape[2:]), x)
        z = dense_analyse(x, matrices, self._band, first=1)
        first, second = self._exporting.steps(self._band.size_in[0], x)
        z = analyse_in_two(z.flatten(3), (first / self._band.size_in[0], second))
        return z.reshape(*z.shape[:2], self._num_p, 2, self._num_q, *self._band.shape[1:])

    def synthesise(self, z: Tensor) -> Tensor:
        rows = z.reshape(*z.shape[:2], self._num_p, 2 * self._num_q, math.prod(self._band.shape[1:]))
        rows = synthesise_in_two(rows, self._exporting.steps(self._band.size_in[0], z))
        matrices = self._exporting.matrices("synthesis", self._band, self._out_size, z)
        return dense_synthesise(rows[:, :, : 2 * self._out_size[0]], matrices, self._band, self._out_size, first=1)

    def split(self, z: Tensor) -> tuple[Parts, Parts]:
        real, imaginary = z.unflatten(1, (-1, 2)).unbind(4)
        return (real[:, :, 0], imaginary[:, :, 0]), (real[:, :, 1], imaginary[:, :, 1])

    def join(self, p: Parts, q: Parts) -> Tensor:
        return torch.stack([torch.stack(p, dim=3), torch.stack(q, dim=3)], dim=2).flatten(1, 2)

    def arrange(self, response: Tensor) -> Tensor:
        return response.unflatten(2, (self._num_q, self._num_p)).transpose(2, 3)


class _FourierTransform(_MatrixTransform):
    """PyTorch's transforms: coefficients ``(B, S, *band, 2)``."""

    def analyse(self, x: Tensor) -> Tensor:
        return torch.view_as_real(analyse(x, self._band, self._boundary))

    def synthesise(self, z: Tensor) -> Tensor:
        return synthesise(torch.view_as_complex(z.contiguous()), self._band, self._out_size)

    def split(self, z: Tensor) -> tuple[Parts, Parts]:
        real, imaginary = z.unflatten(1, (-1, 2)).unbind(-1)
        return (real[:, :, 0], imaginary[:, :, 0]), (real[:, :, 1], imaginary[:, :, 1])

    def join(self, p: Parts, q: Parts) -> Tensor:
        return torch.stack([torch.stack(p, dim=-1), torch.stack(q, dim=-1)], dim=2).flatten(1, 2)


def portable_band(size: tuple[int, ...], out_size: tuple[int, ...], boundary: Boundary) -> Band:
    """As :meth:`Boundary.band`, refusing what no expression in symbols gives."""
    rounded = boundary.mode == "zeros" or (boundary.mode == "reflect" and boundary.margin)
    if rounded and is_symbolic((*size, *out_size)):
        margin = f" with padding={boundary.margin}" if boundary.margin else ""
        raise ValueError(
            f"padding_mode={boundary.mode!r}{margin} pads to a fast size, which is not a formula of the image's size; "
            "export with fixed sizes, or use padding_mode='circular', or 'reflect' without padding"
        )
    band = boundary.band(size, out_size)
    return SettledBand(band.size_in, band.size_out)


def _symbolic(band: Band) -> bool:
    return is_symbolic((*band.size_in, *band.size_out))


def _choose_transform(exporting: Exporting, *where: Any) -> _MatrixTransform:
    band, _, boundary = where
    # Resampled spectra are cut and laid out by whether sizes are even, which symbols do not tell.
    if exporting.transforms == "fft" and not (_symbolic(band) and any(band.resampled)):
        return _FourierTransform(exporting, *where)
    return (_TwoStepTransform if _TwoStepTransform.fits(band, boundary) else _MatrixTransform)(exporting, *where)


def portable_conv(
    mixing: Mixing,
    responses: RealResponses,
    exporting: Exporting,
    band: Band,
    *,
    out_size: tuple[int, ...],
    boundary: Boundary,
    order: str,
) -> Tensor:
    """Apply the operator: ``(B, K, *out_size)``; the responses are on ``band``, that of :func:`portable_band`."""
    x, mix_in, mix_out, bias = mixing
    transform = _choose_transform(exporting, band, out_size, boundary)

    def fewer_modes(channels: int) -> bool:
        """Whether to mix before a transform: a product with a matrix costs so much that fewer signals always win."""
        return 2 * mix_in.shape[0] <= channels if order == "auto" else order == "modes"

    w_in, w_out = mix_in.flatten(0, 1), mix_out.flatten(1) * responses.scale
    z = transform.analyse(_mix(w_in, x)) if fewer_modes(x.shape[1]) else _mix(w_in, transform.analyse(x))
    w = transform.join(*_couple(transform.split(z), responses.each(transform.arrange), band))
    mixed_last = fewer_modes(mix_out.shape[0])
    y = _mix(w_out, transform.synthesise(w)) if mixed_last else transform.synthesise(_mix(w_out, w))
    return y if bias is None else y + bias.reshape(-1, *[1] * band.num_axes)


def _mix(matrix: Tensor, signals: Tensor) -> Tensor:
    """``(r, c)`` times ``(b, c, ..)``."""
    return (matrix @ signals.flatten(2)).reshape(signals.shape[0], matrix.shape[0], *signals.shape[2:])


def _couple(signals: tuple[Parts, Parts], responses: RealResponses, band: Band) -> tuple[Parts, Parts]:
    """Both signals of each mode behind its response."""
    coupled = couple_real(*signals, responses)
    if responses.abar is not None:
        return coupled
    # The paper's way to a real output: no imaginary part on the self-conjugate planes of the last axis.
    like = coupled[0][1]
    mask = last_multiplicity(band, like.dtype, like.device) - 1
    (p_real, p_imaginary), (q_real, q_imaginary) = coupled
    return (p_real, p_imaginary * mask), (q_real, q_imaginary * mask)
