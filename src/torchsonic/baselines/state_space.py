"""Kernels of diagonal state-space systems, and convolution along one axis with kernels as long as the signal.

A system ``s' = A s + B u, y = Re(C s)`` with diagonal ``A`` has the impulse response ``Re(C exp(A t) B)``. States come
in conjugate pairs, of which one is stored; the factor 2 stands for the other. Holding the input over a step ``h`` gives
``K[l] = 2 Re(C (exp(h A) - 1) / A B exp(h A l))``: the integral of the response over the step, so halving the step
halves each sample of the kernel, and sums over twice as many samples agree.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchsonic.spectral.boundary import fast_size

__all__ = ["convolve_axis", "held_input_gain", "two_sided_kernel"]

# Up to here a dense matrix for each channel beats transforms of twice the length, on a CPU by a factor of 2 to 10.
LARGEST_MATRIX = 256


def held_input_gain(decay: Tensor, frequency: Tensor, step: Tensor) -> Tensor:
    """``(exp(h A) - 1) / A`` of states ``A = -decay + i frequency``, complex; ``step`` broadcasts against them."""
    rate, turn = -decay * step, frequency * step
    # exp(z) - 1 without cancellation for short steps.
    real = torch.expm1(rate) * torch.cos(turn) - 2 * torch.sin(turn / 2).square()
    imaginary = torch.exp(rate) * torch.sin(turn)
    return torch.complex(real, imaginary) / torch.complex(-decay, frequency)


def two_sided_kernel(decay: Tensor, frequency: Tensor, weight: Tensor, step: Tensor, size: int) -> Tensor:
    """Kernels at all lags that occur between ``size`` samples.

    Parameters
    ----------
    decay, frequency
        ``(C, M)``.
    weight
        Product of B and C of the forward and of the backward system, ``(2, C, M)``, complex.
    step
        ``(C,)``.

    Returns
    -------
    Tensor
        ``(C, 2 size - 1)``, lags from ``1 - size`` to ``size - 1``. The forward system fills lags 0, 1, ...; the
        backward one -1, -2, ...: what an input held over ``[n, n + 1)`` does to the output at the end of each step.
    """
    step = step[:, None]
    weight = 2 * weight * held_input_gain(decay, frequency, step)
    time = torch.arange(size, device=step.device, dtype=step.dtype) * step
    envelope = torch.exp(-decay[..., None] * time[:, None])
    phase = frequency[..., None] * time[:, None]
    # In real numbers: half the work of a complex product of which only the real part is wanted.
    basis = torch.cat([envelope * torch.cos(phase), envelope * torch.sin(phase)], dim=1)
    coefficients = torch.cat([weight.real, -weight.imag], dim=2).transpose(0, 1)
    forward, backward = (coefficients @ basis).unbind(1)
    return torch.cat([backward[:, : size - 1].flip(1), forward], dim=1)


def convolve_axis(x: Tensor, kernel: Tensor, axis: int) -> Tensor:
    """Convolve one axis of ``x (B, C, N_1 .. N_D)`` with ``kernel (C, 2 N_axis - 1)``, zeros around; ``axis >= 2``."""
    size = x.shape[axis]
    if size <= LARGEST_MATRIX:
        # Row i, column j holds lag i - j.
        matrix = kernel.unfold(1, size, 1).flip(2)
        names = "bcxyz"[: x.dim()]
        return torch.einsum(f"ci{names[axis]},{names}->{names.replace(names[axis], 'i')}", matrix, x)
    length = fast_size(2 * size - 1)
    gap = kernel.new_zeros(kernel.shape[0], length - kernel.shape[1])
    wrapped = torch.cat([kernel[:, size - 1 :], gap, kernel[:, : size - 1]], dim=1)
    response = torch.fft.rfft(wrapped)
    response = response.reshape(response.shape[0], *[-1 if d == axis else 1 for d in range(2, x.dim())])
    spectrum = torch.fft.rfft(x, length, dim=axis) * response
    return torch.fft.irfft(spectrum, length, dim=axis).narrow(axis, 0, size)
