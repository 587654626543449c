"""Fields over a group, one channel per element, and the layers that mix, pool and drop them at each position."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from torchsonic.arguments import choice, fraction, positive
from torchsonic.spectral.constants import constant
from torchsonic.spectral.groups import Group

__all__ = ["LIFT", "OrbitDropout", "OrbitMix", "OrbitPool", "check_channels", "count_fields", "spread"]

Pooling = Literal["max", "mean", "norm"]
LIFT = "; for ordinary channels, such as colours, pass lift=True"

torch.fx.wrap("check_channels")  # one node of a graph that torch.fx records


def count_fields(channels: int, group: Group, name: str, remedy: str = "") -> int:
    """The number of fields, each with one channel per element; refuse channel counts that do not divide."""
    if not isinstance(group, Group):  # a name has a length, too
        raise TypeError(f"group must be a torchsonic.Group, got {group!r}; pass the group of a layer, layer.group")
    if positive(channels, name) % len(group):
        raise ValueError(
            f"{name} must be a multiple of the {len(group)} elements of group {group.name or 'given'}, got {channels}"
            f"{remedy}"
        )
    return channels // len(group)


def check_channels(x: Tensor, channels: int, owner: str) -> Tensor:
    """Refuse another number of channels, which might divide into fields all the same."""
    if x.shape[1] != channels:
        raise ValueError(f"{owner} expects {channels} channels, got {x.shape[1]} in shape {tuple(x.shape)}")
    return x


def spread(values: Tensor, group: Group, dim: int) -> Tensor:
    """Values of ``t^-1 s`` along one axis, for all t and s: ``(.., |G|, ..)`` to ``(.., |G|, |G|, ..)``."""
    places = constant(group.relative, values.device, torch.long)
    return values.index_select(dim, places).unflatten(dim, (len(group), len(group)))


class OrbitMix(nn.Module):
    r"""A 1x1 convolution between fields, :math:`y_{k,r} = \sum_{c,s} W_{kc, r^{-1} s}\, x_{c,s}`.

    ``(B, C |G|, *size)`` to ``(B, K |G|, *size)``; lifting from ``(B, C, *size)`` with ``W_{kc}``.
    """

    def __init__(self, in_channels: int, out_channels: int, group: Group, *, lift: bool = False) -> None:
        super().__init__()
        fields = count_fields(out_channels, group, "out_channels")
        if not lift:
            count_fields(in_channels, group, "in_channels", LIFT)
        self.in_channels, self.group, self.lift = positive(in_channels, "in_channels"), group, lift
        self.weight = nn.Parameter(torch.randn(fields, in_channels) * in_channels**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        x, order = check_channels(x, self.in_channels, "OrbitMix"), len(self.group)
        if self.lift:
            weight = self.weight[:, None].expand(-1, order, -1)
        else:  # (k, c, r, s) to (k, r, c, s)
            weight = spread(self.weight.unflatten(1, (-1, order)), self.group, 2).movedim(2, 1).flatten(2)
        return torch.einsum("kc,bc...->bk...", weight.flatten(0, 1), x)


class OrbitPool(nn.Module):
    """One rotation-invariant channel per field: the maximum, the mean or the norm over the group.

    ``(B, K |G|, *size)`` to ``(B, K, *size)``.
    """

    def __init__(self, group: Group, kind: Pooling = "max") -> None:
        super().__init__()
        self.group = group
        self.kind: Pooling = choice(kind, get_args(Pooling), "kind")

    def forward(self, x: Tensor) -> Tensor:
        fields = x.unflatten(1, (count_fields(x.shape[1], self.group, "channels"), len(self.group)))
        if self.kind == "max":
            return fields.amax(2)
        return fields.mean(2) if self.kind == "mean" else torch.linalg.vector_norm(fields, dim=2)

    def extra_repr(self) -> str:
        return f"{self.group}, kind={self.kind!r}"


class OrbitDropout(nn.Module):
    """Drop whole fields during training, each with all its channels; ``(B, K |G|, *size)`` to the same."""

    def __init__(self, group: Group, p: float = 0.5) -> None:
        super().__init__()
        self.group, self.p = group, fraction(p, "p")

    def forward(self, x: Tensor) -> Tensor:
        fields = x.unflatten(1, (count_fields(x.shape[1], self.group, "channels"), -1))
        return torch.feature_dropout(fields, self.p, self.training).flatten(1, 2)

    def extra_repr(self) -> str:
        return f"{self.group}, p={self.p}"
