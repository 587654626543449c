"""The devices and processes of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import torch

from torchsonic.training.config import TrainingConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["make_fabric", "on_first"]

T = TypeVar("T")
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
PATIENCE = timedelta(days=1)


def make_fabric(config: TrainingConfig) -> Fabric:
    """Lightning Fabric for the configured devices, or for the processes that torchrun started."""
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.strategies import DDPStrategy
    except ImportError as error:
        raise ImportError('training needs lightning-fabric; run: pip install "torchsonic[train]"') from error
    has_accelerator = torch.cuda.is_available() or torch.backends.mps.is_available()
    if config.precision == "fp16" and (config.accelerator == "cpu" or not has_accelerator):
        raise ValueError("precision fp16 needs an accelerator; on a CPU use bf16 or fp32")
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", config.devices))
    nodes = int(os.environ["WORLD_SIZE"]) // devices if "LOCAL_WORLD_SIZE" in os.environ else config.nodes
    return Fabric(
        accelerator=config.accelerator,
        devices=devices,
        num_nodes=nodes,
        # The others wait while the first process tests, which may take longer than the usual half hour.
        strategy=DDPStrategy(timeout=PATIENCE) if devices * nodes > 1 else "auto",
        precision=PRECISIONS[config.precision],  # type: ignore[arg-type]
    )


def on_first(fabric: Fabric, act: Callable[[], T]) -> T:
    """Do something on the first process and tell the others what came out, be it an error.

    Were each process to look at the files by itself, a passing trouble of one would give it other data, unseen.
    """
    outcome: T | Exception | None = None
    if fabric.is_global_zero:
        try:
            outcome = act()
        except Exception as error:  # the others would wait for ever
            outcome = error
    outcome = fabric.broadcast(outcome)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome  # type: ignore[return-value]
