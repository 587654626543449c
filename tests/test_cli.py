"""The command line as a user meets it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torchsonic
from torchsonic.cli import main


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "torchsonic.cli", *arguments], capture_output=True, text=True, cwd=cwd, timeout=600
    )


def test_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert torchsonic.__version__ in capsys.readouterr().out


def test_help_lists_the_commands():
    shown = run("--help")
    assert shown.returncode == 0
    assert all(word in shown.stdout for word in ("bench", "demo"))


def test_a_wrong_option_is_refused_without_a_traceback():
    refused = run("bench", "operator", "--repeat", "3")
    assert refused.returncode != 0
    assert "--repeats" in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stdout + refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "operator", "--repeats", "0"], "--repeats must be at least 1, got 0"),
        (["bench", "operator", "--sizes", "nonsense"], "--sizes"),
        (["bench", "report", "--out", "no/such/folder"], "no/such/folder"),
    ],
)
def test_mistakes_end_in_one_line(arguments, words, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_missing_package_names_its_extra(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["bench", "operator"]) == 1
    assert 'pip install "torchsonic[cli]"' in capsys.readouterr().err


def test_operator_benchmark_writes_its_results(tmp_path):
    done = run("bench", "operator", "--sizes", "2d-512-32-14", "--repeats", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "operator.json").read_text())
    assert {p.name for p in tmp_path.iterdir()} == {"operator.json", "operator.md", "operator.png"}
    assert result["run"]["seed"] == 0
    assert "commit" in result["run"]
    (entry,) = result["entries"]
    assert {"sonic", "sonic_recompute", "paper_order", "conv3", "floor"} <= set(entry["times"])


def test_reference_results_can_be_drawn_again(tmp_path):
    stored = Path(__file__).parents[1] / "results" / "bench"
    for kind in ("operator", "scaling", "init"):
        shutil.copy(stored / f"{kind}.json", tmp_path)
    done = run("bench", "report", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for kind in ("operator", "scaling", "init"):
        assert (tmp_path / f"{kind}.md").read_text() == (stored / f"{kind}.md").read_text()
        assert (tmp_path / f"{kind}.png").stat().st_size > 10_000


def test_demo_trains_and_draws(tmp_path):
    done = run("demo", "--steps", "3", "--batch", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo.png").stat().st_size > 10_000
