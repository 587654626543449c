"""Runs through nnU-Net's own pipeline: its plans, patches, augmentation and validation; only the trainer is chosen.

nnUNet_raw, nnUNet_preprocessed and nnUNet_extTrainer must be set as for nnU-Net's own commands, and the dataset must be
preprocessed. ``checkpoints/`` holds what nnU-Net writes, from which a run resumes.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from torchsonic.io import read_json, write_json, write_whole
from torchsonic.lab.metrics.results import mean_known
from torchsonic.lab.runs.folder import write_config
from torchsonic.lab.runs.lock import locked
from torchsonic.lab.runs.provenance import describe_run
from torchsonic.lab.runs.run import refuse_changes
from torchsonic.lab.runs.settings import plain_settings, public_settings

__all__ = ["NnunetConfig", "NnunetTraining", "run_experiment"]

PREFIX = "TORCHSONIC_NNUNET_"
VARIABLES = ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_extTrainer")
VALIDATION_BATCHES = 10


@dataclass(frozen=True, kw_only=True)
class NnunetTraining:
    """Length, rate and seed of a training."""

    steps: int = 1600
    """Training steps, a multiple of ``epoch``."""
    epoch: int = 40
    """Steps per epoch of nnU-Net, after which it saves a checkpoint."""
    batch: int = 2
    """Patches per step."""
    learning_rate: float = 1e-2
    """Initial learning rate."""
    seed: int = 0
    """Seed of weights, patches and augmentation."""

    def __post_init__(self) -> None:
        if self.epoch < 1 or self.steps < 1 or self.steps % self.epoch:
            raise ValueError(f"steps must be a positive multiple of epoch, got {self.steps} and {self.epoch}")


@dataclass(frozen=True, kw_only=True)
class NnunetConfig:
    """One run of an nnU-Net trainer on one fold."""

    dataset: int
    """Number of the dataset."""
    trainer: str = "nnUNetTrainerSonic"
    """Trainer of torchsonic; nnUNetTrainerBudget trains nnU-Net's own network."""
    options: tuple[str, ...] = ()
    """Settings of the trainer as name=value, such as optimiser=adamw; see ``nnunet_settings``."""
    configuration: str = "3d_fullres"
    """Configuration of the plans."""
    fold: int | None = None
    """Fold whose cases are tested; by default the one with the number of the seed."""
    training: NnunetTraining = field(default_factory=NnunetTraining)
    """Length, rate and seed."""

    def __post_init__(self) -> None:
        wrong = [option for option in self.options if "=" not in option]
        if wrong:
            raise ValueError(f"options must be name=value, got {wrong[0]!r}")

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell the trainer these settings."""
        training = self.training
        named = dict(option.split("=", 1) for option in self.options)
        settings: dict[str, Any] = {
            "epochs": training.steps // training.epoch,
            "iterations": training.epoch,
            "val_iterations": VALIDATION_BATCHES,
            "save_every": 1,
            "seed": training.seed,
            "batch_size": training.batch,
            "learning_rate": training.learning_rate,
            **named,
        }
        return {f"{PREFIX}{name.upper()}": str(value) for name, value in settings.items()}


def run_experiment(config: NnunetConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train and validate as ``nnUNetv2_train`` does, in this process, and write ``results.json``."""
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        raise ValueError(
            f"{missing[0]} is not set; set nnU-Net's variables as for its own commands, see docs/nnunet.md"
        )
    with locked(folder):
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        origin = describe_run(seed=config.training.seed, device=device)
        refuse_changes(folder, plain_settings(config), may_change=())
        write_config(folder, "nnunet", config)
        _set_environment(config, folder)
        with nullcontext() if show else open(folder / "nnunet.txt", "a") as said, redirect_stdout(said):
            output = _train(config, folder, device)
        results = {"config": public_settings(config), "task": "nnunet", "model": config.trainer}
        results |= {**_read_results(output), "run": origin}
        write_json(folder / "results.json", results)
    return results


def _set_environment(config: NnunetConfig, folder: Path) -> None:
    """Tell nnU-Net and the trainer the settings of the run, and no others; both read variables."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    # Without further processes for the data, all trainers see the same patches.
    os.environ |= {"nnUNet_results": str(folder / "checkpoints"), "nnUNet_n_proc_DA": "0", **config.environment}


def _train(config: NnunetConfig, folder: Path, device: torch.device) -> Path:
    """Train and validate; returns the folder of nnU-Net's files."""
    from nnunetv2.run.run_training import get_trainer_from_args, maybe_load_checkpoint

    fold = config.training.seed if config.fold is None else config.fold
    resume = any((folder / "checkpoints").glob("**/checkpoint_*.pth"))
    trainer = get_trainer_from_args(
        str(config.dataset), config.configuration, fold, config.trainer, continue_training=resume, device=device
    )
    maybe_load_checkpoint(trainer, resume, validation_only=False)
    end_epoch = trainer.on_epoch_end

    def end_and_log() -> None:
        end_epoch()
        _write_log(folder, trainer.logger, config.training.epoch)

    trainer.on_epoch_end = end_and_log
    trainer.run_training()
    trainer.perform_actual_validation(save_probabilities=False)
    return Path(str(trainer.output_folder))


def _write_log(folder: Path, logger: Any, epoch: int) -> None:
    """``log.jsonl`` with the loss of every epoch, also of those before a run resumed."""
    losses, begun, ended = (
        logger.get_value(name, step=None) for name in ("train_losses", "epoch_start_timestamps", "epoch_end_timestamps")
    )
    seconds, lines = 0.0, []
    for number, (loss, start, end) in enumerate(zip(losses, begun, ended, strict=False), start=1):
        seconds += end - start
        lines.append({"step": number * epoch, "loss": float(loss), "seconds": seconds})
    write_whole(folder / "log.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def _read_results(output: Path) -> dict[str, Any]:
    """Dice of all cases of the fold, parameters and seconds from nnU-Net's files."""
    summary, cost = read_json(output / "validation" / "summary.json"), read_json(output / "cost.json")
    cases = []
    for row in summary["metric_per_case"]:
        scores = [values["Dice"] for _, values in sorted(row["metrics"].items(), key=lambda item: int(item[0]))]
        known = [None if score != score else score for score in scores]  # neither labelled nor found
        cases.append({"case": Path(row["prediction_file"]).name.split(".")[0], "dice": known})
    dice = [mean_known(column) for column in zip(*(case["dice"] for case in cases), strict=True)]
    mean = fmean(score for score in dice if score is not None)
    return {"dice": mean, "cases": cases, "parameters": cost["parameters"], "seconds": cost["seconds"]}
