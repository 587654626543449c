"""The GPU path without a GPU: kernels are interpreted, compiled, and run on a device that computes nothing."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchsonic
from benchmarks.fake_cuda import absent, run_on_fake_cuda
from torchsonic.engine import accelerator

installed = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not installed, reason='Triton is not installed: pip install "torchsonic[triton]"')
QUIETLY = ("-q", "-p", "no:cacheprovider", "--show-capture=no")


@pytest.fixture(autouse=True)
def _unchosen(monkeypatch):
    monkeypatch.setattr(accelerator, "_chosen", None)


def assert_passed(done):
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@needs_triton
def test_interpreted_kernels_obey_their_laws():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    program = [sys.executable, "-m", "pytest", *QUIETLY, "tests/gpu/interpreted.py"]
    assert_passed(subprocess.run(program, env=environment, capture_output=True, text=True, check=False))


@needs_triton
@pytest.mark.skipif(absent() is not None, reason=str(absent()))
def test_the_path_obeys_its_laws_on_a_device_without_numbers():
    assert_passed(run_on_fake_cuda("pytest", *QUIETLY, "tests/gpu/on_fake_cuda.py"))


@needs_triton
def test_kernels_compile_for_gpus_and_spill_no_register():
    from tools.kernels import TARGETS, compile_kernels

    found = compile_kernels()
    assert {kernel.target for kernel in found} == set(TARGETS)
    assert not [kernel for kernel in found if kernel.spills]
    assert max(kernel.registers for kernel in found) <= 128  # two blocks of 512 threads fit on a multiprocessor
    page, counts = Path("docs/gpu.md").read_text(), {(one.kernel, one.target): one.registers for one in found}
    for words, pair, between in (
        ("`couple`, images; volumes", ("couple, images", "couple, volumes"), ";"),
        ("`couple_adjoint`, images; volumes", ("couple_adjoint, images", "couple_adjoint, volumes"), ";"),
        ("`physical`, `physical_adjoint`", ("physical", "physical_adjoint"), ","),
    ):
        cells = (f"{between} ".join(str(counts[name, target]) for name in pair) for target in TARGETS)
        assert f"| {words} | {' | '.join(cells)} |" in page
    assert f"at most {max(counts.values())} per thread" in page


@pytest.mark.skipif(installed, reason="Triton is installed")
def test_without_triton_the_choice_is_refused_and_says_what_to_install():
    with pytest.raises(ImportError, match=r"pip install .torchsonic\[triton\]"):
        torchsonic.set_coupling("triton")


def test_an_unknown_coupling_is_refused():
    with pytest.raises(ValueError, match="name must be one of torch, triton, got 'cuda'"):
        torchsonic.set_coupling("cuda")


@needs_triton
def test_cpus_keep_pytorchs_operations_also_when_compiled():
    layer, x = torchsonic.SonicConv2d(2, 3, num_modes=2), torch.randn(2, 2, 6, 8)
    wanted = layer(x)
    torchsonic.set_coupling("triton")
    assert torch.equal(layer(x), wanted)
    assert torch.allclose(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), wanted, atol=1e-6)
