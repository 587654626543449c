"""nnU-Net's schedule for networks whose modes learn at a rate of their own."""

from __future__ import annotations

import torch
from nnunetv2.training.lr_scheduler.polylr import PolyLRScheduler

__all__ = ["GroupedPolyLR"]


class GroupedPolyLR(PolyLRScheduler):
    """nnU-Net's schedule, which gives every group one rate, with each group's own share of it."""

    def __init__(self, optimizer: torch.optim.Optimizer, initial_lr: float, max_steps: int) -> None:
        self.shares = [group["lr"] / initial_lr for group in optimizer.param_groups]
        super().__init__(optimizer, initial_lr, max_steps)

    def step(self, current_step: int | None = None) -> None:
        super().step(current_step)
        for group, share in zip(self.optimizer.param_groups, self.shares, strict=True):
            group["lr"] *= share
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]
