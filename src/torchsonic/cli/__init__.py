"""The command line: one dataclass for each command, all listed in ``table``.

A command is a frozen dataclass whose fields are its options and whose ``run`` does the work. To add a command, add it
to ``COMMANDS``; to add a kind of run, add it to ``KINDS``. Everything optional is imported when a command runs.
"""

from __future__ import annotations

import inspect
import io
import os
import platform
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import MISSING, fields, is_dataclass
from itertools import dropwhile
from typing import Annotated, Any, get_origin, get_type_hints

import torch

import torchsonic
from torchsonic.cli.command import Command, error_text, require, warnings_in_one_line
from torchsonic.cli.table import COMMANDS, FORMER, HELP, KINDS, Group, checkout_commands, find_command, suggestion
from torchsonic.models.model_folder import find_folder, list_pretrained

__all__ = ["main", "parse"]

WIDTH = 80


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command ``torchsonic``; returns the exit status."""
    try:
        try:
            return _main(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the end of Python complains
        return 1


def _main(arguments: Sequence[str] | None) -> int:
    words = _present_words(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may hold what no terminal can show
    if words[:1] in (["--version"], ["-V"]):
        print(f"torchsonic {torchsonic.__version__}, torch {torch.__version__}, Python {platform.python_version()}")
        return 0
    if not words or words[0] in HELP:
        print(_main_screen())
        return 0
    command = None
    try:
        command = parse(_with_folders(words))
        if command is not None:
            require(*command.needs)
            with warnings_in_one_line():
                command.run()
    except KeyboardInterrupt:
        remedy = "; the same command continues from here" if words[0] in ("train", "study") else ""
        print(f"torchsonic: interrupted{remedy}", file=sys.stderr)
        return 130
    except Exception as error:
        if command is None and isinstance(error, BrokenPipeError):  # while help was shown
            raise
        text = error_text(error, command)
        if text is None or sys.flags.dev_mode:  # python -X dev shows where an error came from
            raise
        print(f"torchsonic: {text}", file=sys.stderr)
        return 1
    return 0


def _present_words(arguments: Sequence[str]) -> list[str]:
    """The arguments, with a command of the previous version under its current name."""
    words = list(arguments)
    if not words or words[0] not in FORMER:
        return words
    present = FORMER[words[0]]
    print(f"warning: 'torchsonic {words[0]}' is now 'torchsonic {' '.join(present)}'", file=sys.stderr)
    return [*present, *words[1:]]


def _with_folders(words: list[str]) -> list[str]:
    """The words, with names of trained networks before the first option replaced by their folders."""
    if words[0] not in ("predict", "evaluate", "explain", "explore", "export"):
        return words
    count = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    names = list_pretrained()
    return [*(str(find_folder(word)) if word in names else word for word in words[:count]), *words[count:]]


def parse(words: Sequence[str]) -> Command | None:
    """The command that words name, with its options; ``None`` if the help of a group was shown instead."""
    entry, name, rest = find_command(words)
    if isinstance(entry, Group):
        print(_group_screen(name[0], entry))
        return None
    require("tyro")
    import tyro

    rest, complaint = _present_options(entry, rest), io.StringIO()
    if set(HELP) & set(rest):  # tyro's help leaves out what is given: here the run, which said the kind
        rest = list(dropwhile(lambda word: not word.startswith("-"), rest))
    flags = (
        tyro.conf.OmitArgPrefixes,
        tyro.conf.FlagCreatePairsOff,
        tyro.conf.DisallowNone,
        tyro.conf.PositionalMetavarFromFieldName,
    )
    try:
        with redirect_stderr(complaint):
            defaults = {} if (preset := entry.with_preset(rest)) is None else {"default": preset}
            return tyro.cli(
                _marked(entry, entry), prog=" ".join(["torchsonic", *name]), args=rest, config=flags, **defaults
            )
    finally:
        print(_in_our_words(complaint.getvalue(), entry), end="", file=sys.stderr)


def _present_options(command: type[Command], words: Sequence[str]) -> list[str]:
    """Options under their present names; whoever writes a former one is told."""
    present = []
    for word in words:
        option, equals, value = word.partition("=")
        if option in command.renamed:
            print(f"warning: {option} is now {command.renamed[option]}", file=sys.stderr)
            option = command.renamed[option]
        present.append(f"{option}{equals}{value}")
    return present


def _marked(cls: Any, command: type[Command], group: str = "") -> Any:
    """A dataclass whose annotations say what tyro must know; tyro's own marks would need it where they are written."""
    import tyro

    hints = get_type_hints(cls)
    for field in fields(cls):
        kind, name, notes = hints[field.name], f"{group}{field.name}", {}
        if is_dataclass(kind):
            _marked(kind, command, f"{name}.")
        if name in command.positional:
            kind = tyro.conf.Positional[kind]
        if name in command.hidden:
            kind = tyro.conf.Suppress[kind]
        is_list = field.default is MISSING and get_origin(hints[field.name]) is tuple
        if isinstance(field.default, bool) or field.default in (None, (), "") or is_list:
            notes["help_behavior_hint"] = ""  # else --no-browser would say "default: True"
        if (option := f"--{field.name.replace('_', '-')}") in command.renamed:
            notes["name"] = command.renamed[option].removeprefix("--")
        cls.__annotations__[field.name] = Annotated[kind, tyro.conf.arg(**notes)] if notes else kind
    return cls


def _in_our_words(complaint: str, command: type[Command]) -> str:
    """Tyro's complaint; of a value that a configuration refuses only the reason, which names the option."""
    line = " ".join(word for word in complaint.split() if not set(word) <= set("│╭╮╰╯─-"))
    chosen = re.search(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?)\)", line)
    if chosen is not None:
        known = sorted(set(re.findall(r"'([^' ]+)'", chosen[3])) - {"None"})
        return f"torchsonic: {chosen[2]}: there is no {chosen[1]!r}; {suggestion(chosen[1], known)}\n"
    refused = re.search(r"Error parsing \w+: (.*?) For full helptext", line)
    if refused is None:  # the help of predict and evaluate depends on the run; the frame keeps its width
        return re.sub(r"(torchsonic (?:predict|evaluate)) --help {4}", r"\1 RUN --help", complaint)
    name, *rest = refused[1].split(" ", 1)
    option = f"--{name.replace('_', '-')}"
    is_option = rest and re.match("(must|belongs?|needs) ", rest[0])
    return f"torchsonic: {command.renamed.get(option, option) if is_option else name} {' '.join(rest)}\n"


def _main_screen() -> str:
    """All commands, and one example for each kind of run."""
    examples = [*(kind.example for kind in KINDS.values()), "predict RUN --data NEW --out FOUND", "explain RUN"]
    checkout = list(checkout_commands())
    return "\n".join(
        [
            f"torchsonic {torchsonic.__version__}: SONIC, a global convolution for any resolution, in PyTorch",
            "",
            "usage: torchsonic COMMAND [OPTIONS]       torchsonic COMMAND --help explains one",
            "",
            *_rows(COMMANDS),
            "",
            *(f"  torchsonic {example}" for example in examples),
            *(["", f"In this checkout also: {', '.join(checkout)}."] if checkout else []),
        ]
    )


def _group_screen(name: str, group: Group) -> str:
    """The commands of a group."""
    usage, after = f"torchsonic {name} COMMAND [OPTIONS]", f"'torchsonic {name} COMMAND --help' explains one."
    if group.by_run:
        usage = f"torchsonic {name} RUN [OPTIONS]"
        after = (
            f"RUN is the folder of a run, or of a saved model that says what it was trained on, or a name from "
            f"'torchsonic models --pretrained'. The options depend on its kind: see 'torchsonic {name} RUN --help', or "
            f"'torchsonic {name} KIND --help' without a run."
        )
    return "\n".join([f"usage: {usage}", "", group.help, "", *_rows(group.members), "", textwrap.fill(after, WIDTH)])


def _rows(entries: Mapping[str, Any]) -> list[str]:
    width = max(map(len, entries)) + 4
    rows = []
    for name, entry in entries.items():
        text = entry.help if isinstance(entry, Group) else inspect.getdoc(entry) or ""
        first = text.partition("\n\n")[0]
        rows += textwrap.wrap(first, WIDTH, initial_indent=f"  {name}".ljust(width), subsequent_indent=" " * width)
    return rows
