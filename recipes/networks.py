"""Steps of nnU-Net that Tables 2 and 3 share: plan once, train each network on each fold with the same budget."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipes.page import read_json
from recipes.runner import SMOKE, Step
from torchsonic.integrations.nnunet_cost import COST_FILE
from torchsonic.integrations.nnunet_settings import PREFIX

__all__ = ["CONFIGURATION", "NETWORKS", "PLANS", "Dataset", "Network", "Workplace", "add_networks"]

CONFIGURATION = "3d_fullres"
PLANS = {
    "resenc-l": ("nnUNetPlannerResEncL", "nnUNetResEncUNetLPlans"),
    "plain": ("ExperimentPlanner", "nnUNetPlans"),
}
"""Planner of nnU-Net, and the name of the plans that it makes."""
BEST = "checkpoint_best.pth"
PAPER_BUDGET = {"epochs": 1000, "iterations": 250, "val_iterations": 50}
SMOKE_BUDGET = {"epochs": 1, "iterations": 2, "val_iterations": 1}
OPTIMISER = {"batch_size": 2, "learning_rate": 0.01, "weight_decay": 1e-5, "seed": 0}


@dataclass(frozen=True)
class Network:
    """A row of the tables."""

    title: str
    """As the paper names it, if it has it."""
    trainer: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)
    """What makes it small enough for a smoke test."""


NETWORKS = {
    "nnunet": Network("nnU-Net ResEnc L", "nnUNetTrainerBudget"),
    "sonicnet": Network("SonicNet", "nnUNetTrainerSonic", {"preset": "paper"}, {"width": 8, "num_modes": 8}),
    "sonicunet": Network("SonicUNet", "nnUNetTrainerSonic", {"preset": "default"}),
}


def add_networks(parser: argparse.ArgumentParser) -> None:
    """Options about what is trained."""
    parser.add_argument(
        "--networks",
        nargs="+",
        choices=NETWORKS,
        default=["nnunet", "sonicnet"],
        help="rows to train, in this order; nnunet and sonicnet by default",
    )
    parser.add_argument(
        "--plans",
        choices=PLANS,
        default="resenc-l",
        help="nnU-Net's plans, and so its own network; resenc-l by default",
    )
    parser.add_argument(
        "--folds",
        nargs="+",
        type=int,
        choices=range(5),
        default=None,
        help="folds to train; all five by default, the first with --budget smoke",
    )


@dataclass(frozen=True)
class Dataset:
    """A data set of nnU-Net."""

    number: int
    name: str

    @property
    def folder(self) -> str:
        return f"Dataset{self.number:03d}_{self.name}"


@dataclass(frozen=True)
class Workplace:
    """The folders and the budget of a recipe."""

    options: argparse.Namespace

    @property
    def out(self) -> Path:
        return self.options.out

    @property
    def raw(self) -> Path:
        return self.out / "nnunet" / "raw"

    @property
    def preprocessed(self) -> Path:
        return self.out / "nnunet" / "preprocessed"

    @property
    def is_smoke(self) -> bool:
        return self.options.budget == SMOKE

    @property
    def plans(self) -> str:
        return PLANS[self.options.plans][1]

    @property
    def folds(self) -> list[int]:
        return self.options.folds or ([0] if self.is_smoke else list(range(5)))

    def variables(self, network: str = "") -> dict[str, Any]:
        """The folders of nnU-Net; every network has results of its own."""
        found: dict[str, Any] = {"nnUNet_raw": self.raw, "nnUNet_preprocessed": self.preprocessed}
        found["nnUNet_results"] = self.out / "nnunet" / "results" / network
        found["nnUNet_extTrainer"] = self.out / "nnunet" / "trainers"
        return found | ({"nnUNet_def_n_proc": 2} if self.is_smoke else {})

    def settings(self, network: str) -> dict[str, Any]:
        """Of training."""
        chosen = NETWORKS[network]
        if self.is_smoke:
            return {**SMOKE_BUDGET, **OPTIMISER, **chosen.settings, **chosen.small}
        return {**PAPER_BUDGET, **OPTIMISER, **chosen.settings}

    def title(self, network: str) -> str:
        """Of a row."""
        plain = network == "nnunet" and self.options.plans == "plain"
        return "nnU-Net, plain plans" if plain else NETWORKS[network].title

    def protocol(self, text: str) -> str:
        """A sentence with the budget filled in."""
        plans = {"resenc-l": "ResEnc-L", "plain": "plain"}[self.options.plans]
        return text.format(plans=plans, folds=len(self.folds), **self.settings(self.options.networks[0]))

    def trained(self, dataset: Dataset, network: str) -> Path:
        """Folder of a network's folds."""
        name = f"{NETWORKS[network].trainer}__{self.plans}__{CONFIGURATION}"
        return self.out / "nnunet" / "results" / network / dataset.folder / name

    def gather(self, name: str, source: Path) -> Step:
        """Bring a data set into the layout of the next step, in ``data/name``."""
        command = ["python", "-m", "recipes.gather", name, source, self.out / "data" / name]
        return Step(f"{name}: gather", [*command, *(["--smoke"] if self.is_smoke else [])])

    def install(self) -> Step:
        """Show the trainers to nnU-Net."""
        folder = self.out / "nnunet" / "trainers"
        return Step("install trainers", ["torchsonic", "nnunet", "install", folder], self.variables())

    def convert(self, name: str, dataset: Dataset, channels: Sequence[str], labels: Sequence[str]) -> Step:
        """Make a raw data set of nnU-Net from ``data/name``."""
        command = ["torchsonic", "nnunet", "convert", "--data", self.out / "data" / name, "--out", self.raw]
        named = ["--name", dataset.name, "--id", dataset.number, "--channels", *channels, "--labels", *labels]
        return Step(f"{name}: convert", [*command, *named])

    def split(self, dataset: Dataset, patient: str, file: Path | None = None) -> Step:
        """Folds that keep the cases of a patient together."""
        how = ["--file", file] if file else ["--patient", patient]
        words = ["python", "-m", "recipes.split", self.preprocessed / dataset.folder, *how]
        return Step(f"{dataset.name}: split", words)

    def plan(self, dataset: Dataset) -> Step:
        """Plans, and preprocessing for these."""
        planner, _ = PLANS[self.options.plans]
        command = ["nnUNetv2_plan_and_preprocess", "-d", dataset.number, "-pl", planner, "-c", CONFIGURATION]
        few = ["-npfp", 2, "-np", 2] if self.is_smoke else []
        words = [*command, "--verify_dataset_integrity", *few]
        return Step(f"{dataset.name}: plan and preprocess", words, self.variables())

    def train(self, dataset: Dataset) -> Iterator[Step]:
        """Every network on every fold, tested with the checkpoint that was best in validation."""
        for network in self.options.networks:
            variables = {f"{PREFIX}{name.upper()}": value for name, value in self.settings(network).items()}
            variables |= {**self.variables(network), **({"nnUNet_n_proc_DA": 0} if self.is_smoke else {})}
            for fold in self.folds:
                command = ["nnUNetv2_train", dataset.number, CONFIGURATION, fold, "-p", self.plans]
                words = [*command, "-tr", NETWORKS[network].trainer, "--c", "--val_best", *self._device()]
                yield Step(f"{dataset.name}: train {network}, fold {fold}", words, variables)

    def postprocess(self, dataset: Dataset, network: str) -> list[Step]:
        """All folds together with nnU-Net's own postprocessing, as ``predictions/DATASET/NETWORK``."""
        command = ["nnUNetv2_find_best_configuration", dataset.number, "-p", self.plans, "-c", CONFIGURATION]
        words = [*command, "-tr", NETWORKS[network].trainer, "-f", *self.folds, "--disable_ensembling"]
        merged = self.trained(dataset, network) / f"crossval_results_folds_{'_'.join(map(str, self.folds))}"
        apply = ["nnUNetv2_apply_postprocessing", "-i", merged, "-o", self.predictions(dataset.name, network)]
        found = ["-pp_pkl_file", merged / "postprocessing.pkl", "-plans_json", merged / "plans.json"]
        found += ["-dataset_json", merged / "dataset.json"]
        return [
            Step(f"{dataset.name}: find postprocessing of {network}", words, self.variables(network)),
            Step(f"{dataset.name}: postprocess {network}", [*apply, *found], self.variables(network)),
        ]

    def predict(self, dataset: Dataset, network: str, name: str) -> Step:
        """Another data set, by all folds together."""
        command = ["nnUNetv2_predict", "-d", dataset.number, "-p", self.plans, "-c", CONFIGURATION, "-chk", BEST]
        words = [*command, "-tr", NETWORKS[network].trainer, "-f", *self.folds, "--save_probabilities", *self._device()]
        files = ["-i", self.out / "data" / name / "images", "-o", self.predictions(name, network)]
        return Step(f"{name}: predict with {network}", [*words, *files], self.variables(network))

    def predictions(self, name: str, network: str) -> Path:
        """Folder of labels that a network predicted."""
        return self.out / "predictions" / name / network

    def evaluate(self, name: str, labels: Path, more: Sequence[str]) -> Step:
        """Score the networks' predictions."""
        folders = [self.predictions(name, network) for network in self.options.networks]
        command = ["torchsonic", "evaluate", "volumes", "--predictions", *folders, "--labels", labels]
        # Folds that were not trained have no predictions.
        few = ["--keep-going"] if len(self.folds) < 5 else []
        out = self.out / "evaluation" / name
        return Step(f"{name}: evaluate", [*command, *more, "--no-pictures", *few, "--out", out])

    def page(self, recipe: str, folders: Sequence[Any]) -> Step:
        """The last step of a recipe: the same command with ``--page`` and the options that the page depends on."""
        options = self.options
        words = ["python", "-m", f"recipes.{recipe}", "--page", *folders, "--out", self.out, "--budget", options.budget]
        more = [*(["--folds", *options.folds] if options.folds else []), *(["--partial"] if options.partial else [])]
        return Step("page", [*words, "--plans", options.plans, "--networks", *options.networks, *more])

    def costs(self, dataset: Dataset, network: str) -> list[float | None]:
        """Millions of parameters, mean hours of a fold, and the most gigabytes."""
        found = [read_json(self.trained(dataset, network) / f"fold_{fold}" / COST_FILE) for fold in self.folds]
        peaks = [cost["peak_bytes"] for cost in found if cost["peak_bytes"] is not None]
        hours = sum(cost["seconds"] for cost in found) / len(found) / 3600
        return [found[0]["parameters"] / 1e6, hours, max(peaks) / 1e9 if peaks else None]

    def _device(self) -> list[str]:
        return [] if self.options.device == "cuda" else ["-device", self.options.device]
