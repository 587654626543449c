"""One seed, one tolerance table, one thread per worker."""

import os
import runpy
from pathlib import Path

import hypothesis
import pytest
import torch

from torchsonic.functional import options
from torchsonic.lab.runs import provenance

# For this process and, through PYTHONPATH, for those that tests start.
ENVIRONMENT = Path(__file__).parent / "environment"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ENVIRONMENT), os.environ.get("PYTHONPATH")]))
# Kept: operators that it declares for torchvision vanish with it, and a look for that package does not import it yet.
ENVIRONMENT_NAMES = runpy.run_path(str(ENVIRONMENT / "sitecustomize.py"))
# Threads of programs that tests start would wait for cores, and burn others while they do.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Processes that PyTorch's compiler would start import everything again, and have nothing to do without a GPU.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# Parts of names of tests that `make test-fast` leaves out.
SLOW = tuple(
    line for line in (Path(__file__).parent / "slow.txt").read_text().splitlines() if line.startswith("tests/")
)

hypothesis.settings.register_profile("suite", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=500)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=2500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def unwarned(monkeypatch):
    """What is warned of once in a process is warned of once in each test."""
    monkeypatch.setattr(options, "_seen", set())


@pytest.fixture(autouse=True, scope="session")
def hurried():
    """Every run looks for a second whether the machine is busy; hundreds of runs of tests need not know it."""
    provenance.BUSY_SECONDS = 0.01


@pytest.fixture(autouse=True, scope="session")
def single_thread():
    torch.set_num_threads(1)  # workers share the cores
