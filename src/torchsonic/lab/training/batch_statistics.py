"""Batch norms whose statistics are those of the whole batch, on however many processes it lies.

PyTorch's own ``SyncBatchNorm`` refuses CPUs. Without shared statistics a run on two processes would be another run than
that on one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class _SharedStatistics:
    """Takes the place of a batch norm's forward pass while it trains on several processes."""

    def forward(self, input: Tensor) -> Tensor:
        assert isinstance(self, nn.modules.batchnorm._BatchNorm)
        world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        if world == 1 or not self.training:
            return super().forward(input)  # type: ignore[misc]
        from torch.distributed.nn.functional import all_reduce  # whose gradient is the sum over processes, too

        axes = [axis for axis in range(input.dim()) if axis != 1]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        x = input.float()
        # All processes have equally many samples, so that means of means are means.
        mean = all_reduce(x.mean(axes)) / world
        centred = x - mean.view(shape)
        variance = all_reduce(centred.square().mean(axes)) / world
        count = world * input.numel() // input.shape[1]
        self._remember(mean.detach(), variance.detach() * count / max(1, count - 1))
        y = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(input.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert isinstance(self, nn.modules.batchnorm._BatchNorm)
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        part = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), part)
        self.running_var.lerp_(variance.to(self.running_var.dtype), part)


NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
SHARED: dict[type, Any] = {norm: type(f"Shared{norm.__name__}", (_SharedStatistics, norm), {}) for norm in NORMS}


def share_batch_statistics(model: nn.Module) -> int:
    """Let the batch norms of a model share their statistics over processes; names and weights stay.

    Returns
    -------
    int
        How many there are.

    Examples
    --------
    >>> share_batch_statistics(torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.ReLU()))
    1
    """
    found = [module for module in model.modules() if type(module) in SHARED]
    for module in found:
        module.__class__ = SHARED[type(module)]
    return len(found)
