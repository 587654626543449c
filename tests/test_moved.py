"""Old import paths lead to the modules themselves and warn."""

import importlib
import subprocess
import sys

import pytest

from torchsonic.moved import MOVED

OLD = {
    "torchsonic.data.volumes": "torchsonic.lab.data.volumes",
    "torchsonic.data.image_folder": "torchsonic.lab.data.images.folder",
    "torchsonic.evaluation.detection": "torchsonic.lab.metrics.detection",
    "torchsonic.experiments.volumes.split": "torchsonic.lab.runs.volumes.split",
    "torchsonic.training.loop": "torchsonic.lab.training.loop",
    **MOVED,
}


@pytest.mark.filterwarnings("ignore:torchsonic.* is now torchsonic:DeprecationWarning")
@pytest.mark.parametrize("old", OLD)
def test_an_old_path_gives_the_module_itself(old):
    assert importlib.import_module(old) is importlib.import_module(OLD[old])


def test_an_old_path_warns_once_at_the_line_that_imports_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from torchsonic.data.volumes import find_cases\nimport torchsonic.data\nfrom torchsonic import files\n"
        "from torchsonic.lab.data.volumes import find_cases as same\nassert find_cases is same and files.write_json\n"
    )
    done = subprocess.run([sys.executable, "-W", "always", str(program)], capture_output=True, text=True, check=True)
    assert done.stderr.count("DeprecationWarning") == 2
    assert "program.py:1: DeprecationWarning: torchsonic.data is now torchsonic.lab.data; the old path" in done.stderr
    assert "program.py:3: DeprecationWarning: torchsonic.files is now torchsonic.io" in done.stderr


def test_the_package_itself_uses_no_old_path():
    code = "import sys, torchsonic.cli\nassert not [n for n in sys.modules if torchsonic.moved.new_path(n)]"
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:torchsonic", "-c", code], check=True)


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"lab\.runs\.nonsense"):
        importlib.import_module("torchsonic.experiments.nonsense")
