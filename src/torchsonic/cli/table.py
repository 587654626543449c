"""The table of commands, and the table of kinds of runs behind ``train``, ``predict`` and ``evaluate``.

``find_command`` finds the command for some words; for ``predict`` and ``evaluate`` the run determines the kind.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torchsonic
from torchsonic.cli.arrays import DataMnist, TrainArrays
from torchsonic.cli.command import Command, UserError
from torchsonic.cli.doctor import Doctor
from torchsonic.cli.export import Export
from torchsonic.cli.images import EvaluateImages, PredictImages, TrainImages
from torchsonic.cli.masks import EvaluateMasks, PredictMasks, TrainMasks
from torchsonic.cli.models import CompareOperators, Convert, Explain, Explore, Models
from torchsonic.cli.nnunet import NnunetConvert, NnunetInstall
from torchsonic.cli.study import RunStudy, Summary
from torchsonic.cli.synthetic import (
    DataPreview,
    Demo,
    EvaluateSynthetic,
    Report,
    Table1,
    TrainHalliGalli,
    TrainSynthShape,
)
from torchsonic.cli.volumes import CompareOrientations, EvaluateVolumes, PredictVolumes, TrainVolumes
from torchsonic.lab.runs.folder import RunError, is_run, kind_of, model_kind
from torchsonic.models import list_pretrained


@dataclass(frozen=True)
class Kind:
    """A kind of run, under its name in :data:`torchsonic.lab.runs.folder.KINDS`.

    A command on a run of this kind is a dataclass with the run as its first positional field.
    """

    example: str
    """A training command, for the help of ``torchsonic``."""
    train: Mapping[str, type[Command]]
    """Commands of ``torchsonic train``."""
    predict: type[Command] | None = None
    evaluate: type[Command] | None = None


KINDS = {
    "synthetic": Kind(
        example="train table1 --preset quick",
        train={"synthshape": TrainSynthShape, "halligalli": TrainHalliGalli, "table1": Table1},
        evaluate=EvaluateSynthetic,
    ),
    "images": Kind(
        example="train images --data DIR --model sonic_tiny",
        train={"images": TrainImages},
        predict=PredictImages,
        evaluate=EvaluateImages,
    ),
    "volumes": Kind(
        example="train volumes --data DIR",
        train={"volumes": TrainVolumes},
        predict=PredictVolumes,
        evaluate=EvaluateVolumes,
    ),
    "masks": Kind(
        example="train masks --data DIR --instances",
        train={"masks": TrainMasks},
        predict=PredictMasks,
        evaluate=EvaluateMasks,
    ),
    "arrays": Kind(example="train arrays --data DIR --model sonic_sequence", train={"arrays": TrainArrays}),
}


@dataclass(frozen=True)
class Group:
    """Commands that share their first word."""

    help: str
    members: Mapping[str, type[Command]]
    by_run: bool = False
    """Whether members are kinds of runs, so that a run says which one is meant."""


_TRAIN = {name: command for kind in KINDS.values() for name, command in kind.train.items()}
_PREDICT = {name: kind.predict for name, kind in KINDS.items() if kind.predict is not None}
_EVALUATE = {name: kind.evaluate for name, kind in KINDS.items() if kind.evaluate is not None}

COMMANDS: dict[str, type[Command] | Group] = {
    "train": Group("Train a network; the same command continues a stopped run.", _TRAIN),
    "predict": Group("Predict with a trained network.", _PREDICT, by_run=True),
    "evaluate": Group("Test trained networks and write a report.", _EVALUATE, by_run=True),
    "study": RunStudy,
    "summary": Summary,
    "compare": Group(
        "Compare operators or runs.", {"operators": CompareOperators, "orientations": CompareOrientations}
    ),
    "report": Report,
    "explain": Explain,
    "explore": Explore,
    "export": Export,
    "convert": Convert,
    "models": Models,
    "data": Group("Look at the synthetic data sets, and prepare others.", {"preview": DataPreview, "mnist": DataMnist}),
    "nnunet": Group("Use Sonic networks in nnU-Net.", {"install": NnunetInstall, "convert": NnunetConvert}),
    "demo": Demo,
    "doctor": Doctor,
}
FORMER = {"table1": ("train", "table1"), "version": ("--version",)}
"""Commands of the version before, with what they are called now."""
HELP = ("-h", "--help")


def checkout_commands() -> Mapping[str, type[Command] | Group]:
    """Benchmarks, dependencies and figures, if the package lies in a checkout; the wheel has no ``tools``."""
    root = Path(torchsonic.__file__).resolve().parents[2]
    if not (root / "tools" / "commands.py").is_file() or not (root / "pyproject.toml").is_file():
        return {}
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    from tools.commands import COMMANDS

    return COMMANDS


def find_command(words: Sequence[str]) -> tuple[type[Command] | Group, list[str], list[str]]:
    """The command that words name, its full name, and the words after that.

    A group is returned when its help is asked for, or nothing beyond its name is said.
    """
    commands = {**COMMANDS, **checkout_commands()}
    name, rest = words[0], list(words[1:])
    if name not in commands:
        raise UserError(f"there is no command {name!r}; {suggestion(name, commands)}")
    entry = commands[name]
    if not isinstance(entry, Group):
        return entry, [name], rest
    if not rest or rest[0] in HELP:
        return entry, [name], rest
    if entry.by_run:
        kind, behind = _find_kind(name, entry, rest)
        return entry.members[kind], [name, *(rest[:1] if rest[0] == kind else [])], behind
    if rest[0] not in entry.members:
        raise UserError(f"{name}: there is no {rest[0]!r}; {suggestion(rest[0], entry.members)}")
    return entry.members[rest[0]], [name, rest[0]], rest[1:]


def suggestion(word: str, known: Iterable[str]) -> str:
    """The name that was probably meant, or all names."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"


def _find_kind(name: str, group: Group, words: list[str]) -> tuple[str, list[str]]:
    """The kind that the first word, a run or the options say; and the words behind it, with runs for their models."""
    said = words[0] if words[0] in KINDS else None
    words = words[1:] if said else words
    count = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    words = [*(str(_run_of(Path(word))) for word in words[:count]), *words[count:]]
    runs = [word for word in words[: count or None] if is_run(Path(word))]
    first = said or (words[0] if count else next(iter(runs), None))
    kind = said or (_kind_of_options(name, group, words) if first is None else _kind_of_run(first))
    for run in runs:
        if (own := _kind_of_run(run)) != kind:
            remedy = f"leave out {said!r}" if said else f"{first} is not; name runs of one kind at a time"
            raise UserError(f"{name}: {run} is a run on {own} data; {remedy}")
    if kind not in group.members:
        reason = f"{first} is a run on {kind} data, which {name} cannot use"
        reason = f"there is no '{name} {said}'" if said else reason
        *most, last = group.members
        raise UserError(f"{name}: {reason}; give a run on {', '.join(most)} or {last}")
    return kind, words


def _run_of(folder: Path) -> Path:
    """The run, if a folder is that of its network."""
    return folder.parent if folder.name == "model" and is_run(folder.parent) else folder


def _kind_of_run(word: str) -> str:
    try:
        return model_kind(Path(word)) or kind_of(Path(word))
    except RunError as error:
        near, text = difflib.get_close_matches(word.lower(), [*KINDS, *list_pretrained()], n=1), str(error)
        if near:
            text += f"; did you mean {near[0]!r}?"
        elif not set(text) & set(";?"):  # there is no remedy in it yet
            text += "; name the folder of a run, which 'torchsonic train' prints, or a packaged network"
        raise UserError(text) from error


def _kind_of_options(name: str, group: Group, words: Sequence[str]) -> str:
    """The only kind whose command has all options that are given."""
    given = {word.partition("=")[0] for word in words if word.startswith("--")} - set(HELP)
    fitting = []
    for kind, command in group.members.items():
        names = {field.name.replace("_", "-") for field in fields(command)}  # type: ignore[arg-type]
        if given <= {f"--{prefix}{option}" for option in names for prefix in ("", "no-")}:
            fitting.append(kind)
    if len(fitting) != 1:
        raise UserError(f"{name}: name the folder of a run, or one of the kinds {', '.join(fitting or group.members)}")
    return fitting[0]
