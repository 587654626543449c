"""Examples in docstrings and on pages run; commands on pages are commands that there are."""

import dataclasses
import doctest
import importlib
import pkgutil
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch

import torchsonic
from torchsonic import cli
from torchsonic.cli.table import COMMANDS, KINDS, Group, checkout_commands

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(torchsonic.__path__, "torchsonic.")
    if not name.startswith("torchsonic.cli")
]
ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RECIPES = sorted((ROOT / "recipes").rglob("*.sh"))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "pip install" not in str(error):  # else it is the door to a package that is not there
            raise
        pytest.skip(str(error))
    names = {"torch": torch, "torchsonic": torchsonic}
    assert doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_on_pages_run(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert blocks or page.name != "README.md", "the README shows no example"
    for block in blocks:
        for package in {"monai", "nibabel", "timm"} & set(
            re.findall(r"^(?:import|from) (\w+)", block, flags=re.MULTILINE)
        ):
            pytest.importorskip(package, reason=f"{package} is not installed")
        exec(compile(block, page.name, "exec"), {})


FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", flags=re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^ *(?:torchsonic|torchrun .*-m torchsonic\.cli) +(.+)$", flags=re.MULTILINE)


def command_lines(text):
    """Arguments of each command in the blocks of a page for the shell, as a shell would part them."""
    for language, block in FENCE.findall(text):
        if language in ("sh", "bash"):
            for line in COMMAND.findall(block.replace("\\\n", " ")):
                words = shlex.split(line, comments=True)
                yield words[: words.index(">")] if ">" in words else words


def parse(arguments):
    group = COMMANDS.get(arguments[0])
    if isinstance(group, Group) and group.by_run and not arguments[1].startswith("-") and arguments[1] not in KINDS:
        # The kind is read from the run, which is not here.
        kind = next((kind for kind in group.members if kind in arguments[1]), next(iter(group.members)))
        arguments = [arguments[0], kind, *arguments[1:]]
    return cli.parse(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_stand_in_blocks_for_the_shell(page):
    """Else nobody would notice that one of them does not exist."""
    for language, block in FENCE.findall(page.read_text()):
        assert language in ("sh", "bash") or not COMMAND.search(block), f"write ```sh before: {block}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_pages_are_understood(page, capsys):
    pytest.importorskip("tyro")
    for arguments in command_lines(page.read_text()):
        try:
            command = parse(arguments)
        except SystemExit:
            pytest.fail(f"torchsonic {shlex.join(arguments)}\n{''.join(capsys.readouterr())}")
        assert hasattr(command, "run")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_commands_of_recipes_are_understood_and_their_files_exist(recipe, capsys):
    pytest.importorskip("tyro")
    subprocess.run(["bash", "-n", recipe], check=True)
    text = recipe.read_text()
    for name in re.findall(r'"\$here/([\w.]+)"', text):
        assert (recipe.parent / name).is_file()
    commands = list(command_lines(f"```sh\n{text}```\n"))
    assert commands
    for arguments in commands:
        try:
            parse(arguments)
        except SystemExit:
            pytest.fail(f"torchsonic {shlex.join(arguments)}\n{''.join(capsys.readouterr())}")


def mentioned_command(words):
    """The command that words in running text name, or a group of which they name none; what is left of them."""
    entry = Group("", {**COMMANDS, **checkout_commands()})
    while words and isinstance(entry, Group) and re.fullmatch(r"[a-z0-9]+", words[0]):
        entry, words = entry.members[words[0]], words[1:]
    return entry, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_running_text_exist(page):
    for mention in re.findall(r"`torchsonic ([^`]+)`", FENCE.sub("", page.read_text())):
        command, words = mentioned_command(mention.split())
        if isinstance(command, Group):
            assert words, f"torchsonic {mention} names no command"
            continue
        options = {field.name for field in dataclasses.fields(command)} | {"help"}
        for word in words:
            name = word.removeprefix("--").removeprefix("no-").replace("-", "_")
            assert not word.startswith("--") or name in options, f"torchsonic {mention} has no option {word}"


def test_a_command_that_does_not_exist_is_noticed(capsys):
    pytest.importorskip("tyro")
    page = (
        "```sh\ntorchsonic train volumes --data x \\\n    --nonsense 3  # why\ntorchsonic predict images A B > c\n```\n"
    )
    first, second = command_lines(page)
    assert first == ["train", "volumes", "--data", "x", "--nonsense", "3"]
    assert second == ["predict", "images", "A", "B"]
    parse(second)
    with pytest.raises(SystemExit):
        parse(first)
    with pytest.raises(KeyError, match="volume"):
        mentioned_command(["train", "volume"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_of_make_exist(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), flags=re.MULTILINE)
    assert set(named) <= targets


def test_every_part_has_its_page_of_the_api():
    described = {
        name
        for page in (ROOT / "docs" / "api").glob("*.md")
        for name in re.findall(r"^::: (\S+)", page.read_text(), flags=re.MULTILINE)
    }
    parts = {f"torchsonic.{name}" for _, name, package in pkgutil.iter_modules(torchsonic.__path__) if package}
    assert parts - {"torchsonic.cli"} <= described
