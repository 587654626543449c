"""The figures of the documentation can be made again."""

import re
from pathlib import Path

import pytest

from tests.lab.data.nifti import write_folder
from tools.figures import FIGURES, make_figures
from torchsonic.cli import main

pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")
DOCS = Path(__file__).parents[2] / "docs"


def test_every_picture_of_the_documentation_is_made_by_the_command():
    pages = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    shown = {name for page in pages for name in re.findall(r"\((?:docs/)?images/(\w+)\.(?:png|webp)", page.read_text())}
    # The explorer is drawn by a browser: make explorer-picture, which make figures calls.
    assert shown == {*FIGURES, "explorer"}
    assert {path.stem for path in (DOCS / "images").iterdir()} == shown


def test_untrained_figures_are_written(tmp_path, capsys):
    assert main(["figures", "--out", str(tmp_path), "--only", "modes_3d", "modes_1d"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"modes_3d.png", "modes_1d.png"}
    assert "modes_3d.png" in capsys.readouterr().out


def test_trained_figures_share_one_training(tmp_path):
    written = dict(make_figures(tmp_path, only=("rose", "pipeline", "training"), steps=2))
    assert [path.name for path in written.values()] == ["rose.png", "pipeline.png", "training.webp"]
    assert all(path.stat().st_size > 5000 for path in written.values())


def test_the_medical_figure_needs_volumes(tmp_path, capsys):
    assert main(["figures", "--out", str(tmp_path), "--only", "stages_medical"]) == 0
    assert "stages_medical: needs --volumes; not changed" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_the_medical_figure_is_trained_on_volumes(tmp_path):
    pytest.importorskip("nibabel", reason="nibabel is not installed")
    folder = write_folder(tmp_path / "cases", 6)
    written = dict(make_figures(tmp_path, only=("stages_medical",), steps=2, volumes=folder))
    assert written["stages_medical"].stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--only", "mona_lisa"], "--only must be from demo"), (["--steps", "1"], "--steps")]
)
def test_mistakes_end_in_one_line(arguments, words, capsys):
    assert main(["figures", *arguments]) == 1
    assert words in capsys.readouterr().err
