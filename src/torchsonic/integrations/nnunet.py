"""torchsonic's networks in nnU-Net v2: trainers that change only the network.

``torchsonic nnunet install DIR`` lets nnU-Net's commands find them; :mod:`torchsonic.integrations.nnunet_settings`
lists the settings. For prediction, nnU-Net rebuilds a network from the ``plans.json`` next to its folds and nothing
else. So the settings are written into the configuration of the plans, and thereby into every checkpoint.
"""

# nnU-Net finds trainers by their names, which follow its own.
# ruff: noqa: N801

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from torchsonic.integrations import TORCHVISION_REMEDY

try:
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
    from nnunetv2.utilities.default_n_proc_DA import get_allowed_n_proc_DA
    from nnunetv2.utilities.plans_handling.plans_handler import ConfigurationManager, PlansManager
except ImportError as error:
    raise ImportError(f'this needs nnunetv2 ({error}); run: pip install "torchsonic[medical]"') from error
except RuntimeError as error:  # a torchvision built for another torch says so in its own way
    raise ImportError(f"nnunetv2 cannot be imported ({error}): {TORCHVISION_REMEDY}") from error

from torchsonic.engine.memory import keep_all_pages
from torchsonic.integrations.nnunet_checkpoint import read_checkpoint, saved_settings
from torchsonic.integrations.nnunet_cost import write_cost
from torchsonic.integrations.nnunet_dataset import READER, REMEDY, describe_oblique, stored_degrees
from torchsonic.integrations.nnunet_schedule import GroupedPolyLR, make_optimiser
from torchsonic.integrations.nnunet_settings import (
    BUDGET,
    NETWORK,
    ORBIT,
    Settings,
    complete_network,
    network_arguments,
    read_settings,
)
from torchsonic.models import PretrainedModel

__all__ = ["nnUNetTrainerBudget", "nnUNetTrainerSonic", "nnUNetTrainerSonicHybrid", "nnUNetTrainerSonicOrbit"]

KEY = "torchsonic"  # of our entry in a configuration of the plans
MAY_CHANGE = frozenset({"epochs", "iterations", "val_iterations", "save_every"})  # when a training goes on
ALL = frozenset(field.name for field in fields(Settings))


class _SettableTrainer(nnUNetTrainer):
    """nnU-Net's trainer with the settings that are in ``uses``."""

    uses: ClassVar[frozenset[str]]
    settings: Settings

    def __init__(
        self,
        plans: dict,
        configuration: str,
        fold: int,
        dataset_json: dict,
        device: torch.device = torch.device("cuda"),  # noqa: B008 - nnU-Net inspects and repeats the signature
    ) -> None:
        self.settings, self._given = read_settings()
        # Before nnU-Net sees the plans, which it keeps in checkpoints and beside the folds.
        plans["configurations"][configuration].update(self._changes(plans, configuration))
        super().__init__(plans, configuration, fold, dataset_json, device)
        self._apply()
        unused = sorted(self._given - self.uses)
        if unused:
            self.print_to_log_file(f"torchsonic: {type(self).__name__} does not use {', '.join(unused)}")

    def _changes(self, plans: dict, configuration: str) -> dict[str, Any]:
        """What the settings change in a configuration of the plans, themselves included."""
        resolved = PlansManager(plans).get_configuration(configuration).configuration
        changes: dict[str, Any] = {}
        if self.settings.batch_size is not None:
            changes["batch_size"] = self.settings.batch_size
        if self.settings.patch_size is not None:
            patch, axes = list(self.settings.patch_size), len(resolved["patch_size"])
            if len(patch) != axes:
                raise ValueError(f"patch_size must have {axes} axes for {configuration}, got {_listed(patch)}")
            self._check_patch(patch, resolved)
            changes["patch_size"] = patch
        changes[KEY] = self._entry(self._network(resolved))
        return changes

    def _entry(self, network: dict[str, Any]) -> dict[str, Any]:
        """What is kept: the settings in use and the arguments of the network, as JSON gives them back."""
        used = {name: value for name, value in asdict(self.settings).items() if name in self.uses}
        return json.loads(json.dumps({"settings": used, "network": network}))

    def _check_patch(self, patch: list[int], resolved: dict[str, Any]) -> None:
        """Refuse a patch that the network cannot take."""

    def _network(self, resolved: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the network that are to be kept."""
        return {}

    def _apply(self) -> None:
        self.num_epochs = self.settings.epochs
        self.num_iterations_per_epoch = self.settings.iterations
        self.num_val_iterations_per_epoch = self.settings.val_iterations
        self.save_every = self.settings.save_every
        self.initial_lr, self.weight_decay = self.settings.learning_rate, self.settings.weight_decay

    def _seed(self, stage: int) -> None:
        """Draw the same numbers in each stage, whatever was drawn before: by another network, or before going on."""
        if self.settings.seed is not None:
            words = np.random.SeedSequence([self.settings.seed, stage, self.local_rank]).generate_state(3)
            for seed, word in zip((torch.manual_seed, np.random.seed, random.seed), words.tolist(), strict=True):
                seed(word)

    def initialize(self) -> None:
        self._seed(0)
        super().initialize()
        count = sum(parameter.numel() for parameter in self._built().parameters())
        kept = json.dumps(self.configuration_manager.configuration[KEY])
        self.print_to_log_file(f"torchsonic: {count:,} parameters; {kept}")

    def _built(self) -> nn.Module:
        assert isinstance(self.network, nn.Module)
        return self.network

    def on_train_start(self) -> None:
        self._refuse_another_network()
        if (reader := self.plans_manager.plans.get("image_reader_writer")) != READER:
            self.print_to_log_file(f"torchsonic: {reader} keeps the files' axes; if they differ, set {REMEDY}")
        if self.settings.seed is not None and get_allowed_n_proc_DA() > 0:
            self.print_to_log_file(
                "torchsonic: the seed fixes only the weights, because other processes draw the patches; "
                "set nnUNet_n_proc_DA=0 to fix those too"
            )
        super().on_train_start()
        self._report_oblique_cases()

    def _report_oblique_cases(self) -> None:
        if self.local_rank == 0:
            assert self.dataset_class is not None
            assert self.preprocessed_dataset_folder is not None
            cases = self.dataset_class(self.preprocessed_dataset_folder)
            degrees = [stored_degrees(cases.load_case(name)[-1]) for name in cases.identifiers]
            if problem := describe_oblique(degrees):
                self.print_to_log_file(f"torchsonic: {problem}")

    def on_train_epoch_start(self) -> None:
        self._seed(1 + self.current_epoch)
        super().on_train_epoch_start()

    def on_train_end(self) -> None:
        super().on_train_end()
        if self.local_rank == 0:
            assert self.output_folder is not None
            begun, ended = (self.logger.get_value(f"epoch_{end}_timestamps", step=None) for end in ("start", "end"))
            write_cost(Path(self.output_folder), self._built(), begun, ended, self.device)

    def train_step(self, batch: dict) -> dict:
        if self.device.type == "cpu":
            keep_all_pages()  # every step allocates what the last one freed
        return super().train_step(batch)

    def _refuse_another_network(self) -> None:
        """All folds share one plans.json; another network in it would make the other folds' checkpoints useless."""
        assert self.output_folder is not None
        own = Path(self.output_folder)
        others = sorted({p.parent.name for p in own.parent.glob("fold_*/checkpoint_*.pth")} - {own.name})
        if not (others and (path := own.parent / "plans.json").is_file()):
            return
        then = PlansManager(str(path)).get_configuration(self.configuration_name).configuration
        now = self.configuration_manager.configuration
        network = complete_network(then[KEY]["network"]) if then.get(KEY, {}).get("network") else {}
        before = {"patch_size": list(then["patch_size"]), **network}
        after = {"patch_size": list(now["patch_size"]), **now[KEY]["network"]}
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                raise ValueError(
                    f"{own.parent / others[0]} was trained with {name}={before.get(name)}, but now it is "
                    f"{after.get(name)}; all folds share one network: set it as before, or use another nnUNet_results"
                )

    def load_checkpoint(self, filename_or_checkpoint: dict | str) -> None:
        """Resume from a checkpoint with its settings; of the current ones, only the length of training counts."""
        named = isinstance(filename_or_checkpoint, str)
        checkpoint = read_checkpoint(filename_or_checkpoint) if named else filename_or_checkpoint
        kept = checkpoint["init_args"]["plans"]["configurations"][self.configuration_name]
        if KEY not in kept:
            raise ValueError(f"{filename_or_checkpoint} has no settings, so it is not from {type(self).__name__}")
        saved = saved_settings(kept[KEY]["settings"])
        for name in sorted(self._given & self.uses - MAY_CHANGE):
            given, used = getattr(self.settings, name), getattr(saved, name)
            if given != used:
                self.print_to_log_file(f"torchsonic: {name}={given} is ignored; the checkpoint's {used} is used")
        self.settings = replace(saved, **{name: getattr(self.settings, name) for name in self._given & MAY_CHANGE})
        plans = self.plans_manager.plans
        own = plans["configurations"][self.configuration_name]
        for name in ("batch_size", "patch_size"):
            own.pop(name, None)  # what is given now, where a configuration inherits its own
            own.update({name: kept[name]} if name in kept else {})
        own[KEY] = self._entry(kept[KEY]["network"])
        self.plans_manager = PlansManager(plans)  # it remembers configurations, so a new one must read them
        self.configuration_manager = self.plans_manager.get_configuration(self.configuration_name)
        self._apply()
        # nnU-Net reads the file once more, as a full pickle; above it was found to hold nothing that executes.
        super().load_checkpoint(filename_or_checkpoint)
        self.my_init_kwargs = {**self.my_init_kwargs, "plans": plans}


class nnUNetTrainerBudget(_SettableTrainer):
    """nnU-Net's own network with settings for epochs, iterations, seed, batch, patch, optimiser, rate and decay.

    With the same settings and ``nnUNet_n_proc_DA=0`` it sees the same patches in the same order as the Sonic trainers.
    """

    uses = BUDGET

    def _check_patch(self, patch: list[int], resolved: dict[str, Any]) -> None:
        steps = np.prod(resolved["architecture"]["arch_kwargs"].get("strides") or [[1]], axis=0)
        if any(np.mod(patch, steps)):
            sizes = f"multiples of {_listed(steps)}"
            raise ValueError(f"patch_size must be {sizes} for nnU-Net's network, got {_listed(patch)}")

    def configure_optimizers(self) -> tuple[Any, Any]:
        own = self.settings.optimiser == "sgd"
        return super().configure_optimizers() if own else make_optimiser(self._built(), self.settings, self.num_epochs)


class nnUNetTrainerSonic(_SettableTrainer):
    """nnU-Net with :class:`torchsonic.models.SonicUNet`, or ``SonicNet`` in 2-D, at the spacing of the plans."""

    uses = ALL - {"local_kernel", "group"}
    kind: ClassVar[dict[str, bool]] = {}

    def _network(self, resolved: dict[str, Any]) -> dict[str, Any]:
        return network_arguments(self.settings, len(resolved["spacing"]), **self.kind)

    def _apply(self) -> None:
        super()._apply()
        self.enable_deep_supervision = False

    @staticmethod
    def build_network_architecture(
        plans_manager: PlansManager,
        configuration_manager: ConfigurationManager,
        num_input_channels: int,
        num_output_channels: int,
        enable_deep_supervision: bool = False,
    ) -> nn.Module:
        """Build the network that the configuration describes, both for training and for prediction.

        ``(B, num_input_channels, *patch)`` to logits ``(B, num_output_channels, *patch)``.
        """
        if enable_deep_supervision:
            raise ValueError("enable_deep_supervision must be False: Sonic networks have one output, on the full grid")
        kept = configuration_manager.configuration.get(KEY)
        if kept is None:
            raise ValueError(
                f"the plans of {plans_manager.dataset_name} have no entry '{KEY}' to build the network from; "
                "use the plans.json that the trainer wrote next to its folds"
            )
        spacing = tuple(float(step) for step in configuration_manager.spacing)  # in the order of array axes
        arguments = complete_network(kept["network"])
        build = PretrainedModel.known[arguments.pop("class")]
        return build(num_input_channels, num_output_channels, spatial_dims=len(spacing), spacing=spacing, **arguments)

    def set_deep_supervision_enabled(self, enabled: bool) -> None:
        """Do nothing: there is no deep supervision, but nnU-Net calls this around every validation."""

    def _do_i_compile(self) -> bool:
        # The compiler takes the operator as one piece and gains little, so it is left to those who ask for it.
        return "nnUNet_compile" in os.environ and super()._do_i_compile()

    def configure_optimizers(self) -> tuple[Any, GroupedPolyLR]:
        return make_optimiser(self._built(), self.settings, self.num_epochs)


class nnUNetTrainerSonicHybrid(nnUNetTrainerSonic):
    """The same with a small local convolution next to each global one."""

    uses = ALL - {"group"}
    kind: ClassVar = {"hybrid": True}


class nnUNetTrainerSonicOrbit(nnUNetTrainerSonic):
    """nnU-Net with :class:`torchsonic.models.OrbitNet`, whose logits rotate with the image."""

    uses = (ALL - NETWORK) | ORBIT
    kind: ClassVar = {"orbit": True}


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(str(int(number)) for number in numbers)
