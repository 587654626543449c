"""A global convolution with a small local one next to it.

Like the global kernel, the local one is physical: its taps lie at multiples of the reference spacing. On a grid
with another spacing, a tap falls between samples and its weight is shared linearly among them. At integer refinements
every tap meets a sample, so a field sampled two or three times as finely gives exactly the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Never, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Proxy

from torchsonic.arguments import check_samples, choice, per_axis, positive
from torchsonic.engine.lowering import lowering, number
from torchsonic.nn.conv import SonicConvNd, make_sonic
from torchsonic.nn.options import refuse_third
from torchsonic.nn.physical_layer import NO_INPUT_OF_AN_EXPORT, SpacedLayer, leaf_call, sampling, split_batch
from torchsonic.spectral.boundary import PaddingMode
from torchsonic.spectral.orientation import Matrix, Storage, split_storage
from torchsonic.spectral.spacing import Spacing, as_spacing, differs_in_batch, orientation_of, spacing_values

SHORT = 16  # samples that a kernel may always reach, however small the image
_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class LocalConv(SpacedLayer):
    r"""A small convolution whose taps stay at the same physical distances on every grid.

    .. math:: y(r) = \sum_{j} w_j\, x(r + j\,d_{\mathrm{ref}}),\qquad j \in \{-k/2 .. k/2\}^D

    with ``x`` interpolated linearly between samples. Channels are grouped as finely as both counts allow (depthwise
    if they are equal). Shapes: ``(B, C, *size)`` to ``(B, K, *ceil(size / stride))``.

    Parameters
    ----------
    kernel_size
        Taps per axis, an odd number.
    spacing
        Reference spacing, the distance between taps.

    Examples
    --------
    >>> layer = torchsonic.nn.LocalConv(4, 4, spatial_dims=2)
    >>> x = torchsonic.functional.resample(torch.randn(1, 4, 8, 8), 16)  # a field, sampled finely
    >>> coarse, fine = layer(x[..., ::2, ::2]), layer(x, spacing=0.5)
    >>> torch.allclose(fine[..., 2:-2:2, 2:-2:2], coarse[..., 1:-1, 1:-1], atol=1e-5)
    True
    """

    takes_orientation = True
    _storages: Sequence[Storage] = ()

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        *,
        spatial_dims: int,
        stride: int | Sequence[int] = 1,
        spacing: float | Sequence[float] = 1.0,
        padding_mode: PaddingMode = "circular",
    ) -> None:
        super().__init__()
        self.num_axes = choice(spatial_dims, tuple(_CONV), "spatial_dims")
        self.in_channels = positive(in_channels, "in_channels")
        self.out_channels = positive(out_channels, "out_channels")
        if positive(kernel_size, "kernel_size") % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {kernel_size}")
        self.kernel_size = kernel_size
        self.stride = per_axis(stride, spatial_dims, "stride")
        self.padding_mode = choice(padding_mode, get_args(PaddingMode), "padding_mode")
        self.groups = math.gcd(in_channels, out_channels)
        self._assume_spacing(spacing)
        shape = (out_channels, in_channels // self.groups, *[kernel_size] * spatial_dims)
        self.weight = nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    def definition(self) -> dict[str, Any]:
        return {**super().definition(), "padding_mode": self.padding_mode}

    def reset_parameters(self) -> None:
        """Draw weights that turn white noise of variance 1 into variance 1/2, half the power of the global branch."""
        nn.init.normal_(self.weight, std=(2 * self.weight[0].numel()) ** -0.5)

    def coarsening(self, size: Sequence[int]) -> tuple[float, ...]:
        """A stride keeps every stride-th sample."""
        return tuple(float(s) for s in self.stride)

    def set_orientation(self, orientation: Matrix | None) -> None:
        """Set the orientation of this layer's input. The kernel follows the nearest permutation and flips of axes."""
        super().set_orientation(orientation)
        self._storages = [] if self._orientation is None else [split_storage(m)[0] for m in self._orientation.cpu()]

    def _on_array(self, given: Spacing) -> tuple[Tensor, Sequence[float]]:
        """Weights and distances of taps along the axes of an array, which may be stored in another order."""
        turn = orientation_of(given)
        if turn is None or (lowering() is not None and turn is not self._orientation):  # or an input of an export
            return self.weight, self.reference_spacing
        storage = self._storages[0] if turn is self._orientation else split_storage(turn[0].cpu())[0]
        reference = [self.reference_spacing[storage.order.index(axis)] for axis in range(self.num_axes)]
        return storage.undo(self.weight), reference

    def _taps(self, given: Spacing, size: Sequence[int]) -> Tensor:
        """Weights on the grid of the given spacing: each axis maps k taps to samples by linear shares."""
        weight, distances = self._on_array(given)
        steps = spacing_values(given, self.num_axes)
        for axis, (step, reference) in enumerate(zip(steps, distances, strict=True)):
            if step == reference:
                continue
            radius = self.kernel_size // 2
            reach = math.ceil(radius * reference / step - 1e-9)
            if reach > SHORT and reach > size[axis]:
                raise ValueError(
                    f"spacing {step:g} is too fine for a local kernel with taps {reference:g} apart: it would reach "
                    f"{reach} samples, beyond an image of {size[axis]}"
                )
            # In float64 and so on the CPU: not every device has it.
            taps = torch.arange(-radius, radius + 1, device="cpu", dtype=torch.float64) * (reference / step)
            samples = torch.arange(-reach, reach + 1, device="cpu", dtype=torch.float64)
            share = (1 - (samples[:, None] - taps).abs()).clamp_min(0).to(weight)
            weight = (weight.movedim(2 + axis, -1) @ share.mT).movedim(-1, 2 + axis)
        return weight

    def _padded(self, x: Tensor, reach: Sequence[int]) -> Tensor:
        """Continue ``x`` across its boundary, even by more than its own extent."""
        for axis, margin in enumerate(reach):
            dim, size = 2 + axis, x.shape[2 + axis]
            index = torch.arange(-margin, size + margin, device=x.device)
            period = number(size, torch.int64, x.device)
            if self.padding_mode == "circular":
                index = index % period
            elif self.padding_mode == "reflect" and size > 1:
                index = (index + size - 1) % (2 * period - 2) - (size - 1)
                index = index.abs()
            elif self.padding_mode == "reflect":
                index = torch.zeros_like(index)
            else:
                x = F.pad(x, [0, 0] * (x.dim() - 1 - dim) + [margin, margin])
                continue
            x = x.index_select(dim, index)
        return x

    def forward(self, x: Tensor, spacing: Spacing | None = None, *, orientation: Matrix | None = None) -> Tensor:
        """Apply the layer; ``spacing`` is a number, one per axis, or ``(B, D)``.

        If the array's axes are oblique in space, taps follow the nearest axes, approximately; Sonic layers are exact.
        """
        if isinstance(x, Proxy):
            return leaf_call(self, x, spacing, orientation=orientation)
        check_samples(x, self.num_axes, self.in_channels, type(self).__name__)
        given = self.told(sampling(x, spacing, orientation))
        if not differs_in_batch(given):
            return self._convolve(x, given)
        if lowering() is not None:
            raise ValueError(f"the number of taps of a local branch {NO_INPUT_OF_AN_EXPORT}")
        as_spacing(given, self.num_axes, batch=x.shape[0])  # as many as there are samples
        own = split_batch(given, self.num_axes) or [self.reference_spacing]  # of an empty batch
        if len(own) == 1 or (orientation_of(given) is None and len(set(own)) == 1):
            return self._convolve(x, own[0])
        return torch.cat([self._convolve(sample[None], one) for sample, one in zip(x, own, strict=True)])

    def _convolve(self, x: Tensor, given: Spacing) -> Tensor:
        weight = self._taps(given, x.shape[2:])
        padded = self._padded(x, [n // 2 for n in weight.shape[2:]])
        return _CONV[self.num_axes](padded, weight.to(x.dtype), stride=self.stride, groups=self.groups)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


class HybridConv(nn.Module):
    r"""A Sonic layer plus a small local convolution of the same input.

    .. math:: y = \mathrm{Sonic}(x) + \mathrm{Local}(x)

    The global branch provides context, the local one edges that would take many modes. Both are told the spacing.
    Shapes as in :class:`torchsonic.SonicConv2d`. With a stride, the branches align exactly if it divides the size.

    Parameters
    ----------
    kernel_size
        Taps per axis of the local branch.
    stride, spacing, padding_mode, options
        Arguments of the Sonic layer, for example ``num_modes``.

    Examples
    --------
    >>> layer = torchsonic.nn.HybridConv(3, 16, num_modes=8, spatial_dims=3)
    >>> layer(torch.randn(2, 3, 4, 12, 9), spacing=(5.0, 1.0, 1.0)).shape
    torch.Size([2, 16, 4, 12, 9])
    """

    takes_spacing: ClassVar[bool] = True
    keeps_extent: ClassVar[bool] = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *surplus: Never,
        spatial_dims: int = 2,
        kernel_size: int = 3,
        stride: int | Sequence[int] = 1,
        spacing: float | Sequence[float] = 1.0,
        padding_mode: PaddingMode = "circular",
        **options: Any,
    ) -> None:
        super().__init__()
        refuse_third(self, surplus)
        shared: dict[str, Any] = {"stride": stride, "spacing": spacing, "padding_mode": padding_mode}
        shared["spatial_dims"] = spatial_dims
        self.sonic: SonicConvNd = make_sonic(in_channels, out_channels, **shared, **options)
        self.local = LocalConv(in_channels, out_channels, kernel_size, **shared)
        self.stride = self.sonic.stride

    def coarsening(self, size: Sequence[int]) -> tuple[float, ...]:
        """Output spacing over input spacing."""
        return self.sonic.coarsening(size)

    def set_spacing(self, spacing: Spacing) -> None:
        """Set the spacing that both branches assume if ``forward`` is given none."""
        self.sonic.set_spacing(spacing)
        self.local.set_spacing(spacing)

    def forward(self, x: Tensor, spacing: Spacing | None = None, *, orientation: Matrix | None = None) -> Tensor:
        """Apply both branches and add them."""
        given = sampling(x, spacing, orientation)
        return self.sonic(x, given) + self.local(x, given)


def make_operator(
    in_channels: int, out_channels: int, *, local_kernel: int = 0, spatial_dims: int = 2, **options: Any
) -> nn.Module:
    """Build a Sonic layer, with a local branch of ``local_kernel`` taps per axis unless that is 0."""
    if local_kernel < 0:
        raise ValueError(f"local_kernel must be 0 or an odd number of taps, got {local_kernel}")
    if local_kernel:
        options["kernel_size"] = local_kernel
        return HybridConv(in_channels, out_channels, spatial_dims=spatial_dims, **options)
    return make_sonic(in_channels, out_channels, spatial_dims=spatial_dims, **options)
