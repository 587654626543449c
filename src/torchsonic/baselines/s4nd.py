"""S4ND: state spaces on each axis, whose outer product is the kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchsonic.arguments import per_axis, positive
from torchsonic.baselines.depthwise import Depthwise
from torchsonic.baselines.state_space import convolve_axis, held_input_gain, two_sided_kernel
from torchsonic.engine.call import without_autocast
from torchsonic.nn.physical_layer import SpacedLayer
from torchsonic.spectral.spacing import Spacing, as_spacing

__all__ = ["S4ND"]

SHORTEST_STEP, LONGEST_STEP = 1e-3, 1e-1
INITIAL_DECAY = 0.5
# Lags on either side over which the initial kernel has unit energy on average: a field of 64 samples.
INITIAL_REACH = 32


class S4ND(Depthwise, SpacedLayer):
    r"""Depthwise convolution with the outer product of one-dimensional state-space kernels, both ways on each axis.

    .. math:: y = K_1 \otimes \dots \otimes K_D * x + d\,x, \qquad
       K[l] = 2 \operatorname{Re} \sum_m C_m \frac{e^{h A_m} - 1}{A_m} B_m e^{h A_m l}

    with poles :math:`A_m = -e^{a_m} + i f_m`, another ``C`` for negative lags, and a step ``h`` for each channel and
    axis, which is multiplied by ``spacing / reference``. Zeros surround the input. The kernel is separable, so the
    axes are convolved one after the other. Shapes: ``x (B, C, N_1 .. N_D)`` to ``y (B, K, ceil(N_1 / stride) ..)``.
    Learnable reals: ``C (D (8 M + 1) + 1)``, and ``C K`` for the 1x1 convolution; the default 40 states give the 643
    of a channel that the original spends in two dimensions on 32 states and a low-rank term.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    stride
        Averages cells of this size after the convolution.
    spatial_dims
        D: 1, 2 or 3.
    num_states
        M, conjugate pairs for each channel and axis.
    spacing
        Reference spacing, at which steps are what is stored: a number or one per axis.
    bandlimit
        Silence states that oscillate faster than this part of the Nyquist frequency, of the reference spacing or of
        the one in use, whichever is the coarser. The paper's remedy for states that alias when the resolution
        changes; with 1 only those do.
    pointwise
        Follow by a 1x1 convolution even where C = K.

    Examples
    --------
    >>> layer = torchsonic.baselines.S4ND(8, 8)
    >>> layer(torch.randn(2, 8, 31, 48)).shape
    torch.Size([2, 8, 31, 48])
    >>> layer(torch.randn(2, 8, 62, 96), spacing=0.5).shape  # the same field, sampled twice as fine
    torch.Size([2, 8, 62, 96])

    References
    ----------
    Nguyen, Goel, Gu, Downs, Shah, Dao, Baccus, Re: S4ND: modeling images and videos as multidimensional signals
    using state spaces. NeurIPS, 2022. Gu, Gupta, Goel, Re: On the parameterization and initialization of diagonal
    state space models (S4D). NeurIPS, 2022.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int | Sequence[int] = 1,
        *,
        spatial_dims: int = 2,
        num_states: int = 40,
        spacing: float | Sequence[float] = 1.0,
        bandlimit: float | None = None,
        pointwise: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, stride, spatial_dims=spatial_dims, pointwise=pointwise)
        self.num_states = positive(num_states, "num_states")
        if bandlimit is not None and not bandlimit > 0:
            raise ValueError(f"bandlimit must be None or a positive part of the Nyquist frequency, got {bandlimit}")
        self.bandlimit = bandlimit
        self._assume_spacing(spacing)
        states = (spatial_dims, in_channels, num_states)
        self.log_decay = nn.Parameter(torch.empty(states))
        self.frequency = nn.Parameter(torch.empty(states))
        self.drive = nn.Parameter(torch.empty(*states, 2))  # Re B, Im B
        self.readout = nn.Parameter(torch.empty(spatial_dims, 2, in_channels, num_states, 2))  # C, forward and backward
        self.log_step = nn.Parameter(torch.empty(spatial_dims, in_channels))
        self.skip = nn.Parameter(torch.empty(in_channels))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the parameters anew: poles of S4D-Lin, ``-1/2 + i pi m``, and steps log-uniform from 1e-3 to 1e-1.

        Readouts are complex normal. Their scale cancels the expected energy of the kernel over 32 lags on either side,
        ``4 sum_m |(exp(h A) - 1) / A|^2 sum_l exp(-h l)``: without it that energy runs over two decades with the step,
        and over four in two dimensions, and channels of small steps would start silent. Unit white noise so leaves the
        kernel with a standard deviation of about 1 at any number of states, and the same again comes from the skip.
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

    def coarsening(self, size: Sequence[int]) -> tuple[float, ...]:
        """Means of whole cells lie exactly ``stride`` samples apart, whatever the size."""
        return tuple(float(s) for s in self.stride)

    def axis_kernels(
        self, size: int | Sequence[int], spacing: Spacing | None = None, *, dtype: torch.dtype = torch.float32
    ) -> list[Tensor]:
        """The factors of the kernel, without the skip: D tensors ``(C, 2 N_d - 1)``, lags from ``1 - N_d`` on."""
        sizes = per_axis(tuple(size) if isinstance(size, Sequence) else size, self.num_axes, "size")
        given = self._spacing if spacing is None else spacing
        steps = as_spacing(given, self.num_axes, device=self.log_step.device)
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

    def forward(self, x: Tensor, spacing: Spacing | None = None) -> Tensor:
        """Apply the layer.

        Parameters
        ----------
        x
            ``(B, C, N_1 .. N_D)``, real.
        spacing
            Physical step of ``x``: a number, one per axis, or ``(B, D)``, for which samples with the same spacing are
            treated together; by default the layer's.

        Returns
        -------
        Tensor
            ``(B, K, ceil(N_1 / stride) ..)``, dtype of ``x``.
        """
        self._check(x)
        given = self._spacing if spacing is None else spacing
        steps = as_spacing(given, self.num_axes, batch=x.shape[0], device=x.device)
        with without_autocast(x.device):
            work = x.to(self._work_dtype(x))
            y = self._pool(self._convolve(work, steps) if steps.shape[0] == 1 else self._convolve_groups(work, steps))
        return self._mix(y, x.dtype)

    def _convolve(self, x: Tensor, steps: Tensor) -> Tensor:
        y = x
        for axis in range(self.num_axes):
            kernel = self._axis_kernel(axis, x.shape[2 + axis], steps[0, axis], x.dtype)
            y = convolve_axis(y, kernel, 2 + axis)
        return torch.addcmul(y, self._per_channel(self.skip.to(x.dtype)), x)

    def _convolve_groups(self, x: Tensor, steps: Tensor) -> Tensor:
        """Samples of each distinct spacing at once, put back in their order."""
        spacings, group = torch.unique(steps, dim=0, return_inverse=True)
        members = [torch.nonzero(group == i)[:, 0] for i in range(spacings.shape[0])]
        parts = [self._convolve(x[index], spacings[i : i + 1]) for i, index in enumerate(members)]
        return torch.cat(parts)[torch.argsort(torch.cat(members))]

    def extra_repr(self) -> str:
        text = f"{super().extra_repr()}, num_states={self.num_states}"
        if self.reference_spacing != (1.0,) * self.num_axes:
            text += f", spacing={self.reference_spacing}"
        return text if self.bandlimit is None else f"{text}, bandlimit={self.bandlimit}"
