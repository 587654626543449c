"""The coupling by Triton's kernels, without a GPU: the interpreter runs them on the CPU."""

import importlib.util
import os
import subprocess
import sys

import pytest

import torchsonic

installed = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not installed, reason="Triton is not installed (pip install triton==3.7.1)")


@needs_triton
def test_interpreted_kernels_equal_the_definition_with_all_gradients():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"}
    program = [sys.executable, "-m", "tests.engine.triton_program"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "108 cases agree" in done.stdout


@pytest.mark.skipif(installed, reason="Triton is installed")
def test_without_triton_the_choice_is_refused_and_says_what_to_install():
    with pytest.raises(ImportError, match="pip install triton"):
        torchsonic.set_coupling("triton")


def test_an_unknown_coupling_is_refused():
    with pytest.raises(ValueError, match="name must be one of torch, triton, got 'cuda'"):
        torchsonic.set_coupling("cuda")
