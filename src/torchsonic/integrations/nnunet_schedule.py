"""nnU-Net's optimiser and schedule for networks whose modes have their own learning rate."""

from __future__ import annotations

import torch
from nnunetv2.training.lr_scheduler.polylr import PolyLRScheduler
from torch import nn

from torchsonic.integrations.nnunet_settings import Settings
from torchsonic.nn.parameters import parameter_groups

MOMENTUM = 0.99  # nnU-Net's


class GroupedPolyLR(PolyLRScheduler):
    """nnU-Net's schedule, scaled by each parameter group's own factor."""

    def __init__(self, optimizer: torch.optim.Optimizer, initial_lr: float, max_steps: int) -> None:
        self.shares = [group["lr"] / initial_lr for group in optimizer.param_groups]
        super().__init__(optimizer, initial_lr, max_steps)

    def step(self, current_step: int | None = None) -> None:
        super().step(current_step)
        for group, share in zip(self.optimizer.param_groups, self.shares, strict=True):
            group["lr"] *= share
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


def make_optimiser(network: nn.Module, settings: Settings, epochs: int) -> tuple[torch.optim.Optimizer, GroupedPolyLR]:
    """The optimiser of the settings, and the schedule over all epochs."""
    rate, scale = settings.learning_rate, settings.mode_lr_scale
    groups = parameter_groups(network, rate, weight_decay=settings.weight_decay, mode_lr_scale=scale)
    if settings.optimiser == "sgd":
        optimiser = torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=True)
    else:
        optimiser = torch.optim.AdamW(groups)
    return optimiser, GroupedPolyLR(optimiser, rate, epochs)
