r"""Rotation-equivariant convolutions: every mode acts in all directions of a group of rotations.

Features have one channel for each element of the group, which is the fastest index: ``(B, C |G|, *size)``. All |G|
copies of a mode share its parameters,

    y_{k,r} = Re sum_{t,m,c,s}  C_{km, r^-1 t}  T_m(t^-1 w)  B_{mc, t^-1 s}  x_{c,s}

so that an image rotated by an element g gives features that are rotated in space and permuted, ``y_{k, g^-1 r}``.
Written out over ``t``, this is a Sonic layer with |G| M modes of directions ``t v_m``. Whatever holds for Sonic layers
(spacing, strides, borders, memory, export) holds here too. A lifting layer takes ordinary channels, ``B_{mc} x_c``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Never

import torch
from torch import Tensor

from torchsonic.arguments import choice, is_number
from torchsonic.functional.resample import resample
from torchsonic.nn.block import ResidualBlock
from torchsonic.nn.conv import SonicConvNd
from torchsonic.nn.norm import Activation
from torchsonic.nn.options import refuse_third
from torchsonic.nn.orbit_fields import LIFT, OrbitDropout, OrbitMix, OrbitPool, count_fields, spread
from torchsonic.nn.orbit_norm import OrbitBatchNorm, OrbitNorm
from torchsonic.nn.physical_layer import scale_spacing
from torchsonic.spectral.boundary import even_margin
from torchsonic.spectral.constants import constant
from torchsonic.spectral.groups import Group, known_name, make_group
from torchsonic.spectral.response import ModeShape
from torchsonic.spectral.spacing import Spacing, spacing_values

__all__ = [
    "OrbitBatchNorm",
    "OrbitBlock",
    "OrbitDropout",
    "OrbitMix",
    "OrbitNorm",
    "OrbitPool",
    "SonicOrbitConv2d",
    "SonicOrbitConv3d",
    "SonicOrbitConvNd",
]


class SonicOrbitConvNd(SonicConvNd):
    """Common part of both layers; see :class:`SonicOrbitConv2d`."""

    centred: ClassVar[bool] = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *surplus: Never,
        num_modes: int | None = None,
        group: str | Group = "C8",
        axis: int = 0,
        lift: bool = False,
        **options: Any,
    ) -> None:
        refuse_third(self, surplus)
        if options.get("variant", "exact") != "exact":
            raise ValueError(
                f"variant must be 'exact', since the paper's variant prefers some axes, got {options['variant']!r}"
            )
        self.group, self.axis, self.lift = make_group(group, self.num_axes, axis=axis), axis, lift
        self.orbit_size = len(self.group)
        fields = count_fields(out_channels, self.group, "out_channels")
        if not lift:
            fields = max(fields, count_fields(in_channels, self.group, "in_channels", LIFT))
        num_modes = max(4, fields // 2) if num_modes is None else num_modes
        if is_number(options.get("padding")):  # a margin that differs between axes would not turn with the image
            options["padding"] = even_margin(
                options["padding"], spacing_values(options.get("spacing", 1.0), self.num_axes)
            )
        super().__init__(in_channels, out_channels, num_modes=num_modes, **options)

    def definition(self) -> dict[str, Any]:
        own = {"elements": self.orbit_size, "fingerprint": self.group.fingerprint}  # two groups may have one count
        name = known_name(self.group, axis=self.axis)
        return {**super().definition(), "group": name or own, "axis": self.axis, "lift": self.lift}

    def reset_parameters(self, generator: torch.Generator | None = None, **bank: float) -> None:
        super().reset_parameters(generator, **bank)
        with torch.no_grad():
            self.mix_out.mul_(self.orbit_size**-0.5)  # so many more modes add up

    def mixing(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
        mix_in, mix_out, bias = super().mixing(dtype)
        order = self.orbit_size
        if self.lift:
            mix_in = mix_in[:, None].expand(-1, order, -1, -1)
        else:  # (m, 2, c, t, s) to (m, t, 2, c, s)
            mix_in = spread(mix_in.unflatten(2, (-1, order)), self.group, 3).movedim(3, 1).flatten(3)
        mix_out = spread(mix_out.unflatten(0, (-1, order)), self.group, 1).movedim(2, 3)  # (k, r, m, t, 2)
        if bias is not None:
            bias = bias[:, None].expand(-1, order).flatten()
        return mix_in.flatten(0, 1), mix_out.flatten(2, 3).flatten(0, 1), bias

    def cutoff(self, spacing: Spacing | None = None) -> Tensor | None:
        found = super().cutoff(spacing)
        return None if found is None else found.repeat_interleave(self.orbit_size)

    def _convolved(self, x: Tensor, given: Spacing, out_size: tuple[int, ...]) -> Tensor:
        size = tuple(x.shape[2:])
        if out_size == size:
            return super()._convolved(x, given, out_size)
        # Centred grids turn onto themselves, unlike those of other layers, which begin at the first sample.
        coarse = tuple(map(min, size, out_size))
        steps = scale_spacing(given, [n / m for n, m in zip(size, coarse, strict=True)])
        assert steps is not None
        y = super()._convolved(resample(x, coarse, centred=True), steps, coarse)
        return resample(y, out_size, centred=True)

    def _shape(
        self, grid: tuple[int, ...], spacing: Tensor, dtype: torch.dtype, orientation: Tensor | None = None
    ) -> ModeShape:
        shape = super()._shape(grid, spacing, dtype)
        matrices = constant(self.group.rows, shape.scale.device, dtype)
        turned = torch.einsum("tij,gmj->gmti", matrices.unflatten(1, (self.num_axes, -1)), shape.direction)
        repeated = shape.each(lambda t: t.repeat_interleave(self.orbit_size, dim=1))
        return repeated._replace(direction=turned.flatten(1, 2)).turned(orientation)

    def extra_repr(self) -> str:
        lift = ", lift=True" if self.lift else ""
        return f"{super().extra_repr()}, group={self.group.name or self.group}{lift}"


class SonicOrbitConv2d(SonicOrbitConvNd):
    r"""Global convolution of images that commutes with the rotations of a group.

    .. math:: y_{k,r} = \operatorname{Re} \sum_{t,m,c,s} C_{km,r^{-1}t}\, T_m(t^{-1}\omega)\, B_{mc,t^{-1}s}\, x_{c,s}

    Shapes: ``x (B, C |G|, H, W)``, or ``(B, C, H, W)`` if it lifts, to ``y (B, K |G|, H', W')``; channel
    ``k |G| + r`` belongs to field k and element r. The group acts in physical space, even on anisotropic grids. With a
    stride, the output grid has the centre of the input's, so that both rotate alike.

    Parameters
    ----------
    in_channels, out_channels
        Channels of input and output, multiples of ``|G|``; ``in_channels`` may be any number if the layer lifts.
    num_modes
        M; each mode acts in |G| directions. By default half the number of fields, at least 4.
    group
        ``"C{n}"`` for rotations by multiples of ``360 / n`` degrees, ``"D{n}"`` with reflections, or a
        :class:`torchsonic.Group`. For groups in 3-D see :func:`torchsonic.make_group`.
    axis
        In 3-D, the array axis about which ``C`` and ``D`` rotate.
    lift
        Whether the input has ordinary channels, such as the colours of an image.
    options
        Options of :class:`torchsonic.SonicConv2d`: ``stride``, ``spacing``, ``padding``, ``field``, ``bank`` and so on.
        One number as ``padding`` counts pixels of the finest axis; the margin is equally wide along all axes.

    Examples
    --------
    >>> lift = torchsonic.SonicOrbitConv2d(3, 32, num_modes=4, group="C8", lift=True)
    >>> layer = torchsonic.SonicOrbitConv2d(32, 64, num_modes=4, group="C8", stride=2)
    >>> layer(lift(torch.randn(2, 3, 24, 20)), spacing=0.5).shape
    torch.Size([2, 64, 12, 10])
    """

    num_axes = 2


class SonicOrbitConv3d(SonicOrbitConvNd):
    """The same for volumes ``(B, C |G|, D, H, W)``; see :class:`SonicOrbitConv2d`."""

    num_axes = 3


_LAYERS: dict[int, type[SonicOrbitConvNd]] = {2: SonicOrbitConv2d, 3: SonicOrbitConv3d}


class OrbitBlock(ResidualBlock):
    """The residual block of :class:`torchsonic.nn.SonicBlock` for fields over a group.

    ``(B, C |G|, *size)`` to ``(B, K |G|, *ceil(size / stride))``; ``norm`` is ``"group"`` or ``"batch"``.

    Examples
    --------
    >>> block = torchsonic.nn.OrbitBlock(16, 32, num_modes=4, group="C8", stride=2)
    >>> block(torch.randn(1, 16, 12, 10)).shape
    torch.Size([1, 32, 6, 5])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_modes: int | None = None,
        spatial_dims: int = 2,
        group: str | Group = "C8",
        axis: int = 0,
        lift: bool = False,
        stride: int | Sequence[int] = 1,
        norm: Literal["group", "batch"] = "group",
        activation: Activation | None = None,
        drop_path: float = 0.0,
        **options: Any,
    ) -> None:
        choice(spatial_dims, tuple(_LAYERS), "spatial_dims")
        choice(norm, ("group", "batch"), "norm")
        known = make_group(group, spatial_dims, axis=axis)

        def operator(c: int, k: int, /, *, stride: Any) -> SonicOrbitConvNd:
            own = {"num_modes": num_modes, "group": known, "axis": axis, "lift": lift, "bias": False, **options}
            return _LAYERS[spatial_dims](c, k, stride=stride, **own)

        super().__init__(
            operator, in_channels, out_channels, spatial_dims=spatial_dims, stride=stride, norm="none",
            activation=activation, drop_path=drop_path,
        )  # fmt: skip
        self.norm = (OrbitNorm if norm == "group" else OrbitBatchNorm)(out_channels, known)
        if in_channels != out_channels or lift:
            self.shortcut.project = OrbitMix(in_channels, out_channels, known, lift=lift)
