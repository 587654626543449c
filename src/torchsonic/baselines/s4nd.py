"""S4ND: state spaces on each axis, whose outer product is the kernel.

A system ``s' = A s + B u, y = Re(C s)`` with diagonal ``A`` has the impulse response ``Re(C exp(A t) B)``. States come
in conjugate pairs, of which one is stored; the factor 2 stands for the other. Holding the input over a step ``h`` gives
``K[l] = 2 Re(C (exp(h A) - 1) / A B exp(h A l))``: the integral of the response over the step, so halving the step
halves each sample of the kernel, and sums over twice as many samples agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchsonic.arguments import per_axis, positive
from torchsonic.baselines.operator import Depthwise, SpacedOperator
from torchsonic.spectral.boundary import fast_size
from torchsonic.spectral.spacing import Spacing, as_spacing

SHORTEST_STEP, LONGEST_STEP = 1e-3, 1e-1
INITIAL_DECAY = 0.5
# Lags on either side over which the initial kernel has unit energy on average: a field of 64 samples.
INITIAL_REACH = 32
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


class S4ND(Depthwise, SpacedOperator):
    r"""Depthwise convolution with the outer product of one-dimensional state-space kernels, both ways on each axis.

    .. math:: y = K_1 \otimes \dots \otimes K_D * x + d\,x, \qquad
       K[l] = 2 \operatorname{Re} \sum_m C_m \frac{e^{h A_m} - 1}{A_m} B_m e^{h A_m l}

    with poles :math:`A_m = -e^{a_m} + i f_m`, another ``C`` for negative lags, and a step ``h`` for each channel and
    axis, which is multiplied by ``spacing / reference``. Zeros surround the input. The kernel is separable, so the
    axes are convolved one after the other. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``.
    Learnable parameters: ``C (D (8 M + 1) + 1)``, plus ``C K`` for the 1x1 convolution. The default of 40 states gives
    643 per channel in 2-D, as many as the original has with 32 states and a low-rank term.

    Parameters
    ----------
    num_states
        M, the number of conjugate pairs for each channel and axis.
    bandlimit
        Mute states that oscillate faster than this fraction of the Nyquist frequency of the reference spacing or of
        the current one, whichever is coarser. This is the paper's remedy for states that alias when the resolution
        changes; 1 mutes only those that do.
    shape, options
        As in :class:`~torchsonic.baselines.operator.SpacedOperator`, at whose reference spacing the stored steps
        apply, and :class:`~torchsonic.baselines.operator.Depthwise`. ``stride`` averages cells of this size after the
        convolution.

    Examples
    --------
    >>> layer = torchsonic.baselines.S4ND(8, 8)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 8, 31, 48])
    >>> layer(torch.randn(2, 8, 62, 96), spacing=0.5).shape  # the same field, sampled twice as finely
    torch.Size([2, 8, 62, 96])

    References
    ----------
    Nguyen, Goel, Gu, Downs, Shah, Dao, Baccus, Re: S4ND: modeling images and videos as multidimensional signals
    using state spaces. NeurIPS, 2022. Gu, Gupta, Goel, Re: On the parameterization and initialization of diagonal
    state space models (S4D). NeurIPS, 2022.
    """

    shown: ClassVar = {"num_states": 0, "bandlimit": None}

    def __init__(self, *shape: Any, num_states: int = 40, bandlimit: float | None = None, **options: Any) -> None:
        super().__init__(*shape, **options)
        self.num_states = positive(num_states, "num_states")
        if bandlimit is not None and not bandlimit > 0:
            raise ValueError(f"bandlimit must be None or a positive fraction of the Nyquist frequency, got {bandlimit}")
        self.bandlimit = bandlimit
        in_channels = self.in_channels
        states = (self.num_axes, in_channels, num_states)
        self.log_decay = nn.Parameter(torch.empty(states))
        self.frequency = nn.Parameter(torch.empty(states))
        self.drive = nn.Parameter(torch.empty(*states, 2))  # Re B, Im B
        self.readout = nn.Parameter(
            torch.empty(self.num_axes, 2, in_channels, num_states, 2)
        )  # C, forward and backward
        self.log_step = nn.Parameter(torch.empty(self.num_axes, in_channels))
        self.skip = nn.Parameter(torch.empty(in_channels))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all parameters anew: poles of S4D-Lin, ``-1/2 + i pi m``, and steps log-uniform from 1e-3 to 1e-1.

        Readouts are complex normal. Their scale cancels the expected energy of the kernel over 32 lags on either side,
        ``4 sum_m |(exp(h A) - 1) / A|^2 sum_l exp(-h l)``. Otherwise that energy would vary with the step over two
        decades, and over four in 2-D, and channels with small steps would start silent. So unit white noise leaves the
        kernel with a standard deviation of about 1 for any number of states, and the skip adds as much.
        """
        nn.init.constant_(self.log_decay, math.log(INITIAL_DECAY))
        index = torch.arange(self.num_states, device=self.frequency.device, dtype=self.frequency.dtype)
        self.frequency.copy_((math.pi * index).expand_as(self.frequency))
        self.drive[..., 0], self.drive[..., 1] = 1.0, 0.0
        nn.init.uniform_(self.log_step, math.log(SHORTEST_STEP), math.log(LONGEST_STEP))
        nn.init.normal_(self.skip)
        step = self.log_step.exp()[..., None]
        gain = held_input_gain(self.log_decay.exp(), self.frequency, step)
        lags = torch.arange(INITIAL_REACH, device=step.device, dtype=step.dtype)
        energy = 4 * gain.abs().square().sum(-1) * torch.exp(-2 * INITIAL_DECAY * step * lags).sum(-1)
        nn.init.normal_(self.readout, std=math.sqrt(0.5))
        self.readout.mul_(energy.rsqrt()[:, None, :, None, None])

    def mode_parameters(self) -> list[nn.Parameter]:
        """Parameters of the states, which learn slowly and without weight decay, as is usual for state spaces."""
        return [self.log_decay, self.frequency, self.drive, self.log_step]

    def axis_kernels(
        self, size: int | Sequence[int], spacing: Spacing | None = None, *, dtype: torch.dtype = torch.float32
    ) -> list[Tensor]:
        """The factors of the kernel, without the skip: D tensors ``(C, 2 N_d - 1)``, lags from ``1 - N_d`` on."""
        sizes = per_axis(tuple(size) if isinstance(size, Sequence) else size, self.num_axes, "size")
        steps = as_spacing(self.told(spacing), self.num_axes, device=self.log_step.device)
        return [self._axis_kernel(axis, n, steps[0, axis], dtype) for axis, n in enumerate(sizes)]

    def _axis_kernel(self, axis: int, size: int, spacing: Tensor, dtype: torch.dtype) -> Tensor:
        decay, frequency = self.log_decay[axis].to(dtype).exp(), self.frequency[axis].to(dtype)
        reference_step = self.log_step[axis].to(dtype).exp()
        ratio = (spacing / self.reference_spacing[axis]).to(dtype)
        drive, readout = (torch.view_as_complex(p[axis].to(dtype)) for p in (self.drive, self.readout))
        weight = drive * readout
        if self.bandlimit is not None:
            # What the reference spacing silences was never trained, and must not speak up on a finer grid.
            coarsest = reference_step * ratio.clamp(min=1)
            weight = weight * (frequency.abs() * coarsest[:, None] <= self.bandlimit * math.pi)
        return two_sided_kernel(decay, frequency, weight, reference_step * ratio, size)

    def _filter(self, x: Tensor, steps: Tensor) -> Tensor:
        y = x
        for axis in range(self.num_axes):
            kernel = self._axis_kernel(axis, x.shape[2 + axis], steps[0, axis], x.dtype)
            y = convolve_axis(y, kernel, 2 + axis)
        return torch.addcmul(y, self.skip.to(x.dtype).reshape(-1, *[1] * self.num_axes), x)
