"""Norms of fields over a group: all channels of a field share statistics, scale and shift."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchsonic.arguments import positive
from torchsonic.nn.orbit_fields import check_channels, count_fields
from torchsonic.spectral.groups import Group

__all__ = ["OrbitBatchNorm", "OrbitNorm"]

torch.fx.wrap("check_channels")  # one node of a graph that torch.fx records


class OrbitNorm(nn.Module):
    """GroupNorm in which all channels of a field share statistics, scale and shift.

    ``(B, K |G|, *size)`` to the same. ``num_groups`` is the number of groups of fields and must divide K.
    """

    def __init__(self, channels: int, group: Group, *, num_groups: int = 1, eps: float = 1e-5) -> None:
        super().__init__()
        fields = count_fields(channels, group, "channels")
        if fields % positive(num_groups, "num_groups"):
            raise ValueError(f"num_groups must divide the {fields} fields, got {num_groups}")
        self.channels, self.order, self.num_groups, self.eps = channels, len(group), num_groups, eps
        self.weight = nn.Parameter(torch.ones(fields))
        self.bias = nn.Parameter(torch.zeros(fields))

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = (t[:, None].expand(-1, self.order).flatten() for t in (self.weight, self.bias))
        x = check_channels(x, self.channels, "OrbitNorm")
        return F.group_norm(x, self.num_groups, weight, bias, self.eps)


class OrbitBatchNorm(nn.BatchNorm1d):
    """BatchNorm in which all channels of a field share statistics and scale; ``(B, K |G|, *size)`` to the same."""

    def __init__(self, channels: int, group: Group) -> None:
        super().__init__(count_fields(channels, group, "channels"))
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        x = check_channels(x, self.channels, "OrbitBatchNorm")
        return super().forward(x.reshape(x.shape[0], self.num_features, -1)).reshape(x.shape)
