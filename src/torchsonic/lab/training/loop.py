"""The training loop, for every task of the project; meant to be read from top to bottom.

A run is a function of model, task and configuration: data are a function of the step, the learning rate is one too, and
everything else that changes is in the checkpoint. So a run that was killed and resumed ends with the same bits.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchsonic.engine.memory import keep_all_pages
from torchsonic.engine.search import remembered_plans, restore_plans
from torchsonic.lab.training.checkpoint import (
    CheckpointError,
    Checkpoints,
    random_state,
    read_checkpoint,
    restore_random_state,
)
from torchsonic.lab.training.config import TrainingConfig
from torchsonic.lab.training.fabric import check_agreement, gather, make_fabric, prepare_to_wait, wait_for_first
from torchsonic.lab.training.loggers import Logger, make_loggers
from torchsonic.lab.training.optimiser import MovingAverage, make_optimiser, set_rate
from torchsonic.lab.training.progress import training_progress
from torchsonic.lab.training.shards import load_optimiser, load_weights, share_weights, whole_optimiser, whole_weights
from torchsonic.lab.training.task import Task, make_batches
from torchsonic.nn.parameters import is_sharded

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# What may differ when a run resumes: none of it changes the result beyond rounding.
MAY_CHANGE = {
    *("workers", "accelerator", "devices", "nodes", "strategy", "timeout"),
    *("log_every", "checkpoint_every", "keep_every", "loggers"),
}


@dataclass
class Fit:
    """What a finished run leaves behind, on every process."""

    step: int
    metrics: dict[str, float]
    """Of the final model, or of the best one if there were evaluations in between."""
    seconds: float
    """Training alone, over all resumptions."""
    waiting: float = 0.0
    """Of these, seconds in which the first process waited for data."""
    losses: list[tuple[int, float]] = field(default_factory=list)
    """Logged losses of this process's part of the run."""


def fit(
    model: nn.Module,
    task: Task,
    config: TrainingConfig,
    folder: Path,
    *,
    fabric: Fabric | None = None,
    show: bool = True,
) -> Fit:
    """Train a model, or go on with a run that stopped.

    Parameters
    ----------
    model
        Trained in place, or a copy of it with ``strategy="fsdp"``; at the end it holds the final weights (averaged
        with ``ema``), or the best ones if there were evaluations in between.
    task
        Data, loss and evaluation.
    folder
        Of the run: ``log.jsonl`` and ``checkpoints/``. A run found there is resumed.
    fabric
        Already launched; by default made from the configuration.
    show
        Show a progress bar, on the first process.
    """
    if fabric is None:
        fabric = make_fabric(config)
        fabric.launch()
    folder.mkdir(parents=True, exist_ok=True)
    prepare_to_wait(fabric)
    run = _Run(model, task, config, folder, fabric)
    run.resume()
    check_agreement(fabric, run.step)
    if run.step == 0:
        run.keep()
    fabric.barrier()
    losses: list[tuple[int, float]] = []
    first = fabric.is_global_zero
    batches = iter(
        fabric.setup_dataloaders(
            make_batches(task, config, start=run.step, rank=fabric.global_rank, world=fabric.world_size),
            use_distributed_sampler=False,
        )
    )
    loggers = make_loggers(config.loggers, folder, first_step=run.step) if first else []
    try:
        with training_progress(config.steps, run.step, config.batch, show=show and first) as advance:
            while run.step < config.steps:
                if fabric.device.type == "cpu":
                    keep_all_pages()  # every step allocates what the last one freed
                loss = run.train_step(batches)
                if run.step % config.log_every == 0 or run.step == config.steps:
                    value = float(fabric.all_reduce(loss, reduce_op="mean"))  # type: ignore[arg-type]
                    losses.append((run.step, value))
                    for logger in loggers:
                        times = {"seconds": run.seconds, "waiting": run.waiting}
                        logger.log(run.step, {"loss": value, "learning_rate": run.rate, **times})
                    advance(run.step, value)
                if not run.is_finite:
                    raise FloatingPointError(
                        f"the loss became {loss.item()} at step {run.step}; lower learning_rate or use fp32"
                    )
                last = run.step == config.steps
                if not last and config.evaluate_every and run.step % config.evaluate_every == 0:
                    run.evaluate(loggers)
                run.keep()
                # The last weights are safe before they are scored: what goes wrong there must not cost a training.
                if last or run.step % config.checkpoint_every == 0 or run.is_new_best:
                    run.save()
            if run.evaluated < config.steps:
                run.evaluate(loggers)
                run.save()
    finally:
        for logger in loggers:
            logger.close()
    run.finish()
    return Fit(run.step, run.best_metrics, run.seconds, run.waiting, losses)


class _Run:
    """Everything that changes during training."""

    def __init__(self, model: nn.Module, task: Task, config: TrainingConfig, folder: Path, fabric: Fabric) -> None:
        self.given, self.task, self.config, self.fabric = model, task, config, fabric
        # FSDP cannot be undone, and what is given back is an ordinary model.
        self.raw = copy.deepcopy(model) if config.strategy == "fsdp" and fabric.world_size > 1 else model
        self.shapes = {name: value.shape for name, value in model.state_dict().items() if isinstance(value, Tensor)}
        self.checkpoints = Checkpoints(folder / "checkpoints")
        torch.manual_seed(config.seed + fabric.global_rank)  # dropout differs between processes
        self.model = fabric.setup_module(self.raw)
        self.optimiser: Any = fabric.setup_optimizers(make_optimiser(self.raw, config))
        self.average = MovingAverage(self.raw, config.ema) if config.ema else None
        self.step, self.seconds, self.waiting, self.rate = 0, 0.0, 0.0, 0.0
        self.evaluated = 0
        self.best_score, self.best_metrics, self.is_new_best = -float("inf"), {}, False
        self.is_finite = True

    def train_step(self, batches: Iterator[Any]) -> Tensor:
        """One step of the optimiser; returns this process's mean loss."""
        start = time.perf_counter()
        self.model.train()
        self.rate = set_rate(self.optimiser, self.step, self.config)
        total = torch.zeros((), device=self.fabric.device)
        for turn in range(self.config.accumulate):
            asked = time.perf_counter()
            batch = next(batches)
            if isinstance(batch, Exception):  # of a process that prepares data
                raise batch
            self.waiting += time.perf_counter() - asked
            with self.fabric.no_backward_sync(self.model, enabled=turn + 1 < self.config.accumulate):
                loss = self.task.loss(self.model, batch) / self.config.accumulate
                self.fabric.backward(loss)
            total += loss.detach()
        if self.config.clip:
            self.fabric.clip_gradients(self.model, self.optimiser, max_norm=self.config.clip, error_if_nonfinite=False)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.step += 1
        if self.average is not None:
            self.average.update(self.raw, self.step)
        # Reading the loss waits for the device, which belongs to the step's time.
        self.is_finite = bool(torch.isfinite(total))
        self.seconds += time.perf_counter() - start
        return total

    def evaluate(self, loggers: Sequence[Logger]) -> None:
        """Score the model as it would be saved; every process gets the first one's numbers."""
        self.model.eval()
        metrics: dict[str, float] = {}
        with torch.no_grad(), self._averaged():
            # A model that is shared out runs on all processes or on none.
            if self.fabric.is_global_zero or is_sharded(self.raw):
                metrics = self.task.evaluate(self.raw)
        wait_for_first(self.fabric)
        metrics = self.fabric.broadcast(metrics)
        self.evaluated = self.step
        self.is_new_best = metrics["score"] > self.best_score
        if self.is_new_best:
            self.best_score, self.best_metrics = metrics["score"], metrics
        for logger in loggers:
            logger.log(self.step, metrics)

    def _averaged(self):
        return nullcontext() if self.average is None else self.average.applied(self.raw)

    def save(self) -> None:
        """Write a checkpoint, on the first process; all wait for it."""
        state = self._state(gather(self.fabric, random_state()))
        if self.fabric.is_global_zero:
            self.checkpoints.save(state, best=self.is_new_best)
        self.is_new_best = False
        self.fabric.barrier()

    def keep(self) -> None:
        """Copy the weights as they would be saved, if this step is one of those to be kept."""
        every, first = self.config.keep_every, self.fabric.is_global_zero
        if every and self.step % every == 0 and (first or is_sharded(self.raw)):
            with self._averaged():
                weights = whole_weights(self.raw.state_dict(), self.shapes, keep=first)
                if first:
                    self.checkpoints.keep(self.step, weights)

    def _state(self, random_states: list[dict[str, Any]]) -> dict[str, Any]:
        """What a checkpoint holds, on the first process; all help to put it together."""
        keep = self.fabric.is_global_zero
        average = self.average.state_dict() if self.average is not None else {}
        return {
            "step": self.step,
            "evaluated": self.evaluated,
            "seconds": self.seconds,
            "waiting": self.waiting,
            "config": asdict(self.config),
            "model": whole_weights(self.raw.state_dict(), self.shapes, keep=keep),
            "optimiser": whole_optimiser(self.optimiser, self.raw, self.shapes, keep=keep),
            "average": whole_weights(average, self.shapes, keep=keep),
            "scaler": self._scaler().state_dict() if self._scaler() is not None else {},
            "random": random_states,
            "best_score": self.best_score,
            "best_metrics": self.best_metrics,
            "plans": remembered_plans(),  # of the first process: with others, last bits would change
        }

    def _scaler(self) -> Any:
        """The scaler of fp16 gradients, where there is one."""
        return getattr(self.fabric.strategy.precision, "scaler", None)

    def resume(self) -> None:
        """Take up the newest good checkpoint, if there is one."""
        state = self.checkpoints.load()
        if state is None:
            return
        _refuse_changes(state["config"], self.config)
        restore_plans(state.get("plans", {}))
        self._load_weights(state)
        load_optimiser(self.optimiser, state["optimiser"])
        if self._scaler() is not None and state["scaler"]:
            self._scaler().load_state_dict(state["scaler"])
        self.step, self.seconds, self.waiting = state["step"], state["seconds"], state.get("waiting", 0.0)
        self.best_score, self.best_metrics = state["best_score"], state["best_metrics"]
        self.evaluated = state.get("evaluated", self.step)  # older runs scored before they saved
        if len(state["random"]) == self.fabric.world_size:
            restore_random_state(state["random"][self.fabric.global_rank])

    def _load_weights(self, state: dict[str, Any]) -> None:
        try:
            load_weights(self.raw, state["model"])
        except RuntimeError as error:
            raise CheckpointError(f"the run in {self.checkpoints.folder} has another model: {error}") from error
        if self.average is not None:
            self.average.load_state_dict(share_weights(state["average"], self.average.weights), self.raw)

    def finish(self) -> None:
        """Leave the best weights in the model if several were scored, else the final ones."""
        if self.config.evaluate_every and self.checkpoints.best.exists():
            self._load_weights(read_checkpoint(self.checkpoints.best))
        if self.average is not None:
            self.average.copy_to(self.raw)
        if self.raw is not self.given:
            self.given.to(self.fabric.device)
            self.given.load_state_dict(whole_weights(self.raw.state_dict(), self.shapes, keep=True))
        self.given.eval()


def _refuse_changes(old: dict[str, Any], config: TrainingConfig) -> None:
    defaults = {option.name: option.default for option in fields(config)}
    for name, value in asdict(config).items():
        before = old.get(name, defaults[name])  # a setting that is younger than the run had its default's effect
        before = tuple(before) if isinstance(before, list) else before
        if name not in MAY_CHANGE and before != value:
            raise CheckpointError(
                f"the run to resume had {name}={before}, not {value}; use the old value or another folder"
            )
