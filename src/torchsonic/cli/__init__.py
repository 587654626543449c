"""The command line: one dataclass for each command, wired together here and nowhere else.

A command is a frozen dataclass whose fields are its options and whose ``run`` does the work. ``COMMANDS`` is the tree
of names: to add a command, add a leaf. Everything optional is imported when a command runs.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, fields, make_dataclass
from typing import Annotated, Any, Union, get_type_hints

import torchsonic
from torchsonic.cli.checkout import commands_of_checkout
from torchsonic.cli.command import Command, UserError, make_folder, require, require_console_and_figures
from torchsonic.cli.convert import Convert
from torchsonic.cli.evaluate import EvaluateVolumes
from torchsonic.cli.explain import Explain
from torchsonic.cli.explore import Explore
from torchsonic.cli.export import Export
from torchsonic.cli.images import EvaluateImages, PredictImages, TrainImages
from torchsonic.cli.models import Models
from torchsonic.cli.nnunet import NnunetConvert, NnunetInstall
from torchsonic.cli.report import DataPreview, Report, Table1
from torchsonic.cli.run_kind import name_kind
from torchsonic.cli.synthetic import EvaluateSynthetic, TrainHalliGalli, TrainSynthShape
from torchsonic.cli.volumes import PredictVolumes, TrainVolumes
from torchsonic.demo import DemoConfig, run_demo

__all__ = ["main"]


@dataclass(frozen=True)
class Demo(DemoConfig):
    """Train a small Sonic network at one resolution and draw what it finds at others: about a minute."""

    def run(self) -> None:
        require_console_and_figures()
        if self.steps < 1 or self.batch < 1:
            raise UserError(f"--steps and --batch must be at least 1, got {self.steps} and {self.batch}")
        make_folder(self.out)
        run_demo(self)


@dataclass(frozen=True, kw_only=True)
class Version:
    """Print the versions of torchsonic, PyTorch and Python."""

    def run(self) -> None:
        import platform

        import torch

        print(f"torchsonic {torchsonic.__version__}, torch {torch.__version__}, Python {platform.python_version()}")


# Leaves are commands; a group is its one-line help and its members.
COMMANDS: dict[str, Any] = {
    "demo": Demo,
    "models": Models,
    "convert": Convert,
    "export": Export,
    "train": (
        "Train a model; a run that was stopped goes on.",
        {"synthshape": TrainSynthShape, "halligalli": TrainHalliGalli, "volumes": TrainVolumes, "images": TrainImages},
    ),
    "predict": (
        "Let a trained model predict; 'predict RUN' finds the kind of the run itself.",
        {"volumes": PredictVolumes, "images": PredictImages},
    ),
    "evaluate": (
        "Test finished runs, or segmentations of any tool; 'evaluate RUN' finds the kind of the run itself.",
        {"synthetic": EvaluateSynthetic, "volumes": EvaluateVolumes, "images": EvaluateImages},
    ),
    "explain": Explain,
    "explore": Explore,
    "report": Report,
    "table1": Table1,
    "data": ("Look at the data.", {"preview": DataPreview}),
    "nnunet": ("Use Sonic networks in nnU-Net.", {"install": NnunetInstall, "convert": NnunetConvert}),
    "version": Version,
    **commands_of_checkout(),
}


def _command_type(commands: Mapping[str, Any], arguments: Sequence[str]) -> Any:
    """The tree of commands as the union of dataclasses that tyro turns into nested subcommands."""
    import tyro

    members = []
    for name, entry in commands.items():
        if isinstance(entry, tuple):
            text, inner = entry
            group = make_dataclass(f"{name.capitalize()}Group", [("command", _command_type(inner, arguments))])
            members.append(Annotated[group, tyro.conf.subcommand(name, description=text)])
        else:
            for field in getattr(entry, "positional", ()):  # tyro's own mark would need tyro where it is written
                entry.__annotations__[field] = tyro.conf.Positional[get_type_hints(entry)[field]]
            for field in getattr(entry, "hidden", ()):
                entry.__annotations__[field] = tyro.conf.Suppress[get_type_hints(entry)[field]]
            for field in fields(entry):  # --no-browser says what it does, beside which "default: True" would be wrong
                if field.default is True:
                    kind = get_type_hints(entry)[field.name]
                    entry.__annotations__[field.name] = Annotated[kind, tyro.conf.arg(help_behavior_hint="")]
            preset = {"default": entry.with_preset(arguments)} if hasattr(entry, "with_preset") else {}
            members.append(Annotated[entry, tyro.conf.subcommand(name, **preset)])
    if len(members) == 1:  # tyro takes a union of one for the type itself, without a subcommand
        members.append(Annotated[None, tyro.conf.Suppress])
    return Union[tuple(members)]


def _parse(arguments: Sequence[str]) -> Command:
    import tyro

    flags = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            chosen = tyro.cli(
                _command_type(COMMANDS, arguments),
                prog="torchsonic",
                description=f"SONIC convolutions for PyTorch, version {torchsonic.__version__}.",
                args=list(arguments),
                config=flags,
            )
    finally:
        print(_in_our_words(complaint.getvalue()), end="", file=sys.stderr)
    while hasattr(chosen, "command"):
        chosen = chosen.command
    return chosen


def _in_our_words(complaint: str) -> str:
    """Tyro's complaint; of a value that a configuration refuses only the reason, without tyro's name for the place."""
    line = " ".join(word for word in complaint.split() if not set(word) <= set("│╭╮╰╯─"))
    refused = re.search(r"(?:__tyro-dummy-inner__\S*|Error parsing command): (.*?) For full helptext", line)
    return complaint if refused is None else f"torchsonic: {refused[1]}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command ``torchsonic``; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may hold what no terminal can show
    if list(arguments) in (["--version"], ["-V"]):
        print(f"torchsonic {torchsonic.__version__}")
        return 0
    try:
        require("tyro", "cli")
        _parse(name_kind(arguments, {name: COMMANDS[name][1] for name in ("evaluate", "predict")})).run()
    except UserError as error:
        print(f"torchsonic: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        remedy = "; the same command goes on from here" if arguments[0] in ("train", "table1") else ""
        print(f"torchsonic: interrupted{remedy}", file=sys.stderr)
        return 130
    return 0
