"""The devices and processes of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from torchsonic.lab.training.checkpoint import CheckpointError
from torchsonic.lab.training.config import TrainingConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
PATIENCE = timedelta(days=7)


def make_fabric(config: TrainingConfig) -> Fabric:
    """Lightning Fabric for the configured devices, or for the processes that torchrun started."""
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise ImportError('training needs lightning-fabric; run: pip install "torchsonic[train]"') from error
    has_accelerator = torch.cuda.is_available() or torch.backends.mps.is_available()
    if config.accelerator in ("cuda", "gpu") and not has_accelerator:
        raise ValueError(f"accelerator={config.accelerator!r}: there is no CUDA device here; use cpu or auto")
    if config.precision == "fp16" and (config.accelerator == "cpu" or not has_accelerator):
        raise ValueError("precision fp16 needs an accelerator; on a CPU use bf16 or fp32")
    if config.precision == "fp16" and config.strategy == "fsdp":
        raise ValueError("precision fp16 scales gradients, which strategy fsdp does not allow; use bf16 or fp32")
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", config.devices))
    nodes = int(os.environ["WORLD_SIZE"]) // devices if "LOCAL_WORLD_SIZE" in os.environ else config.nodes
    try:
        return Fabric(
            accelerator=config.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=_make_strategy(config, devices * nodes) if devices * nodes > 1 else "auto",
            precision=PRECISIONS[config.precision],  # type: ignore[arg-type]
        )
    except RuntimeError as error:
        raise ValueError(f"accelerator {config.accelerator!r} is not available here: {error}") from error


def _make_strategy(config: TrainingConfig, processes: int) -> Any:
    from lightning_fabric.strategies import DDPStrategy, ModelParallelStrategy

    timeout = timedelta(minutes=config.timeout)
    if config.strategy == "ddp":
        return DDPStrategy(timeout=timeout)
    from torchsonic.parallel import shard_parameters

    return ModelParallelStrategy(
        lambda model, mesh: shard_parameters(model, mesh["data_parallel"]),
        data_parallel_size=processes,
        tensor_parallel_size=1,
        timeout=timeout,
    )


def prepare_to_wait(fabric: Fabric) -> None:
    """Connect the processes for :func:`wait_for_first`, while all of them are known to be there."""
    if fabric.world_size > 1:
        _patient_group(dist.group.WORLD)


def wait_for_first(fabric: Fabric) -> None:
    """Let the others wait while the first process works alone, such as in a test, however long that takes.

    Elsewhere waiting for longer than the configured time means that a process is lost. A lost one is noticed here, too,
    by its closed connections, though not one that is merely stuck.
    """
    if fabric.world_size > 1:
        dist.barrier(group=_patient_group(dist.group.WORLD))


@lru_cache(maxsize=1)
def _patient_group(world: Any) -> Any:
    return dist.new_group(backend="gloo", timeout=PATIENCE)


def on_first(fabric: Fabric, act: Callable[[], T]) -> T:
    """Do something on the first process and tell the others what came out, be it an error.

    Were each process to look at the files by itself, a passing trouble of one would give it other data, unseen.
    """
    prepare_to_wait(fabric)
    outcome: T | Exception | None = None
    if fabric.is_global_zero:
        try:
            outcome = act()
        except Exception as error:  # the others would wait for ever
            outcome = error
    wait_for_first(fabric)
    outcome = fabric.broadcast(outcome)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome  # type: ignore[return-value]


def gather(fabric: Fabric, value: T) -> list[T]:
    """The values of all processes, in their order, on each of them."""
    if fabric.world_size == 1:
        return [value]
    values: list[Any] = [None] * fabric.world_size
    dist.all_gather_object(values, value)
    return values


def check_agreement(fabric: Fabric, step: int) -> None:
    """Refuse to go on from different steps, which processes find where one cannot read what the others can.

    Their weights would differ from then on, unseen.
    """
    steps = gather(fabric, step)
    if len(set(steps)) > 1:
        raise CheckpointError(
            f"processes found checkpoints of different steps: {', '.join(map(str, steps))}; all of them must be able "
            "to read the folder of the run"
        )
