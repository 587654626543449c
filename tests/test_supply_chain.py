"""Files cannot execute, nothing asks the network unasked, and dependencies are pinned and their licences known."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.load_rules import network_imports, unsafe_calls
from tools.dependencies import (
    check_pins,
    direct_dependencies,
    licence_of,
    licence_page,
    read_pins,
)
from torchsonic.cli import main

ROOT = Path(__file__).parents[1]
SOURCES = [path for part in ("src", "benchmarks", "tools", "recipes") for path in sorted((ROOT / part).rglob("*.py"))]
# Who may speak to a network, and with what: the Hub when it is asked, a logger when it is chosen, and our own server.
MAY_CONNECT = {
    "src/torchsonic/models/model_folder.py": {"huggingface_hub"},
    "src/torchsonic/lab/training/loggers.py": {"wandb"},
    "src/torchsonic/explorer": {"http", "socket", "urllib"},
    "benchmarks": {"http", "urllib", "socket"},
}
# Programs are for those who trust whoever wrote them: docs/security.md.
MAY_LOAD_PROGRAMS = {"src/torchsonic/export/run.py": ("torch.export.load", "torch._inductor.aoti_load_package")}


def test_no_source_can_execute_what_a_file_says():
    assert len(SOURCES) > 100
    found = {(path.relative_to(ROOT).as_posix(), call) for path in SOURCES for call in unsafe_calls(path.read_text())}
    wrong = [f"{place} {call}" for place, call in found if not call.endswith(MAY_LOAD_PROGRAMS.get(place, ()))]
    assert not wrong, "\n".join(wrong)


def test_pickles_are_read_in_one_place():
    assert [path.name for path in SOURCES if "torch.load(" in path.read_text()] == ["io.py"]


@pytest.mark.parametrize(
    "code",
    [
        "import pickle\npickle.load(file)",
        "from pickle import loads as read\nread(data)",
        "import pickle as p\np.Unpickler(file).load()",
        "import torch\ntorch.load(path)",
        "import torch\ntorch.load(path, weights_only=False)",
        "import torch\ntorch.load(path, **options)",
        "from torch import load\nload(path)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "import yaml\nyaml.unsafe_load(text)",
        "eval(text)",
        "exec(text)",
        "import tarfile\ntarfile.open(path).extractall(folder)",
        "import zipfile\nwith zipfile.ZipFile(path) as archive:\n    archive.extract(name)",
        "import shutil\nshutil.unpack_archive(path)",
        "import joblib\njoblib.load(path)",
        "import subprocess\nsubprocess.run(text, shell=True)",
        "import os\nos.system(text)",
        "import torch\ntorch.hub.load(name, model)",
        "import torch\ntorch.export.load(path)",
        "from torch._inductor import aoti_load_package\naoti_load_package(path)",
    ],
)
def test_the_rules_find_what_they_are_for(code):
    assert unsafe_calls(code), code


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.load(path, weights_only=True)",
        "import numpy as np\nnp.load(path)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "model.eval()",
        "import json\njson.load(file)",
        "import subprocess\nsubprocess.run(['git', 'status'])",
    ],
)
def test_the_rules_let_harmless_code_pass(code):
    assert not unsafe_calls(code), code


def test_only_named_places_can_open_a_connection():
    wrong = []
    for path in SOURCES:
        place = path.relative_to(ROOT).as_posix()
        allowed = {name for start, names in MAY_CONNECT.items() if place.startswith(start) for name in names}
        wrong += [
            f"{place} imports {name}" for name in network_imports(path.read_text()) if name.split(".")[0] not in allowed
        ]
    assert not wrong, "\n".join(wrong)


def test_building_saving_and_loading_open_no_connection(tmp_path):
    code = (
        "import sys\n"
        "def watch(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.gethostbyname', 'urllib.Request'):\n"
        "        raise RuntimeError(f'asked the network: {event} {arguments}')\n"
        "sys.addaudithook(watch)\n"
        "import torch, torchsonic\n"
        "from torchsonic.models import PretrainedError\n"
        "model = torchsonic.create_model('synthshape_sonicnet')\n"
        "torchsonic.from_pretrained(model.save_pretrained(sys.argv[1]))\n"
        "try:\n"
        "    torchsonic.from_pretrained(sys.argv[1] + '/absent')\n"
        "except PretrainedError:\n"
        "    print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr


def test_every_direct_dependency_is_pinned_and_installed_as_pinned():
    problems, absent = check_pins(ROOT)
    assert not problems, "\n".join(problems)
    assert "torch" not in absent


def make_checkout(folder, *, requires="torch>=2", pins="torch==2.13.0"):
    (folder / "pyproject.toml").write_text(
        f'[project]\ndependencies = ["{requires}"]\n[project.optional-dependencies]\ndev = ["torchsonic[cli]"]\n'
    )
    (folder / "constraints.txt").write_text(f"# known to work\n{pins}\n")
    return folder


def test_missing_and_other_pins_are_named(tmp_path, capsys):
    problems, _ = check_pins(make_checkout(tmp_path, pins="numpy==2.0.0"))
    assert problems == ["torch (core) is not pinned in constraints.txt"]
    problems, _ = check_pins(make_checkout(tmp_path, pins="torch==1.0.0"))
    assert "constraints.txt pins 1.0.0" in problems[0]
    assert check_pins(make_checkout(tmp_path, requires="no_such_package", pins="No-Such.package==1"))[1] == [
        "no_such_package"
    ]
    with pytest.raises(ValueError, match="does not pin one version"):
        read_pins(make_checkout(tmp_path, pins="torch>=2"))
    assert main(["dependencies", "check", "--root", str(make_checkout(tmp_path, pins="torch==1.0.0"))]) == 1
    assert "constraints.txt pins 1.0.0" in capsys.readouterr().err


def test_the_page_of_licences_is_current():
    page = (ROOT / "docs" / "licences.md").read_text()
    assert "not installed when this page was written" not in page
    assert licence_page(ROOT, page) == page, "run: torchsonic dependencies licences"


def test_licences_come_from_metadata_and_absent_packages_keep_their_row(tmp_path):
    assert licence_of("numpy").startswith("BSD-3-Clause")
    assert licence_of("no_such_package") is None
    checkout = make_checkout(tmp_path, requires="no_such_package", pins="no_such_package==1")
    assert [dependency.name for dependency in direct_dependencies(checkout)] == ["no_such_package"]
    first = licence_page(checkout)
    assert "| no_such_package | 1 | core | not installed when this page was written |" in first
    assert "| no_such_package | 1 | core | MIT |" in licence_page(
        checkout, first.replace("not installed when this page was written", "MIT")
    )


@pytest.mark.skipif(importlib.util.find_spec("tyro") is None, reason="tyro is not installed")
def test_the_command_says_that_no_database_was_asked(capsys):
    assert main(["dependencies", "check", "--root", str(ROOT)]) == 0
    assert "no vulnerability database was queried" in capsys.readouterr().out
