"""Training and test on synthetic scenes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torchsonic.lab.data import PERTURBATIONS, HalliGalli, perturb
from torchsonic.lab.metrics import count_flops
from torchsonic.lab.metrics.robustness import RESOLUTIONS, score_perturbations, score_resolutions, score_samples
from torchsonic.lab.runs.folder import load_model
from torchsonic.lab.runs.run import Experiment, run
from torchsonic.lab.runs.synthetic.config import SyntheticConfig, read_config
from torchsonic.lab.runs.synthetic.samples import TEST_NOISE, make_data, make_task, test_indices
from torchsonic.lab.training import Fit, SegmentationTask
from torchsonic.lab.training.progress import counting_progress
from torchsonic.models import PretrainedModel, create_model

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["SyntheticExperiment", "evaluate_run", "load_run", "make_model", "run_experiment"]

BANKS: Mapping[str, Mapping[str, Any]] = {
    "broad": {},
    "far": {"field": 128.0, "bank": {"shortest_decay": 16.0, "width_to_length": 0.01}},
}


class SyntheticExperiment(Experiment[SyntheticConfig, PretrainedModel]):
    """Segmentation of SynthShape or HalliGalli."""

    kind = "synthetic"
    may_change = ("test_samples",)

    def prepare(self, folder: Path, fabric: Fabric, *, show: bool) -> PretrainedModel:
        return make_model(self.config)

    def task(self, *, show: bool) -> SegmentationTask:
        return make_task(self.config)

    def test(self, model: PretrainedModel, *, show: bool) -> dict[str, Any]:
        return evaluate_run(model, self.config, show=show)

    def describe(self, model: PretrainedModel, result: Fit) -> dict[str, Any]:
        example = make_data(self.config.task).samples([0])[0].to(next(model.parameters()).device)
        return {"task": self.config.task, "model": self.config.model, "flops": count_flops(model, example)}


def run_experiment(config: SyntheticConfig, folder: Path, *, show: bool = True) -> dict[str, Any]:
    """Train, test and save; see :func:`torchsonic.lab.runs.run.run`."""
    return run(SyntheticExperiment(config), folder, show=show)


def make_model(config: SyntheticConfig) -> PretrainedModel:
    """The network of a run; its weights are drawn from the run's seed."""
    torch.manual_seed(config.training.seed)
    arguments: dict[str, Any] = {"num_classes": make_data(config.task).num_classes}
    arguments["depth"] = config.depth or (4 if config.task == "synthshape" else 1)
    norm = config.norm or ("group" if config.task == "synthshape" else "channel")
    options: dict[str, Any] = {} if config.model == "vit" else {"norm": norm}  # tokens are always normalised one by one
    if config.model == "sonicnet":
        bank = config.bank or ("broad" if config.task == "synthshape" else "far")
        standardise = config.task == "synthshape" if config.standardise is None else config.standardise
        options |= {"form": config.form, "variant": config.variant}
        padding = config.padding or ("circular" if config.task == "halligalli" else None)
        options |= {"padding": None, "padding_mode": padding} if padding else {}
        options |= {"standardise": standardise, **BANKS[bank]}
    arguments |= {"head_norm": norm, "backbone_options": options}
    return create_model(f"synthshape_{config.model}", **arguments)


def evaluate_run(model: PretrainedModel, config: SyntheticConfig, *, show: bool = True) -> dict[str, Any]:
    """Scores of a trained model: ``clean``, and ``rows`` under perturbations (noise only for HalliGalli)."""
    data, indices = make_data(config.task), test_indices(config)
    background = config.task == "halligalli"
    model.eval()
    shared: dict[str, Any] = {"num_classes": data.num_classes, "background": background}
    if isinstance(data, HalliGalli):
        shared["window"] = data.window()
    clean = score_samples(model, data.samples, indices, **shared)
    if config.task == "synthshape":
        total = sum(len(perturbation.levels) for perturbation in PERTURBATIONS.values()) + len(RESOLUTIONS)
        with counting_progress("testing", total, show=show) as advance:
            rows = score_perturbations(model, data, indices, advance=advance)
            rows += score_resolutions(model, data, indices, advance=advance)
        return {"clean": clean, "rows": rows}

    def noisy(chosen: Any) -> Any:
        image, label = data.samples(chosen)
        return perturb(image, label, "noise", TEST_NOISE, seed=int(chosen[0]))

    return {
        "clean": clean,
        "rows": [
            {"test": "halligalli", "level": 0.0, "dice": clean},
            {"test": "halligalli", "level": TEST_NOISE, "dice": score_samples(model, noisy, indices, **shared)},
        ],
    }


def load_run(folder: Path) -> tuple[PretrainedModel, SyntheticConfig]:
    """The trained model of a run and its configuration."""
    return load_model(folder), read_config(folder)
