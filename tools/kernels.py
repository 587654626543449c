"""Compile the Triton kernels for GPUs that need not be here, and tell the registers they use and spill."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["TARGETS", "Compiled", "compile_kernels"]

TARGETS = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "gfx942": ("hip", "gfx942", 64),
}
# Even axes of 128 samples, where most signs are evaluated; other sizes are arguments, not constants.
UNLIMITED = {"PAPER": False, "ORDER": 0, "LIMIT": 0.0, "SOFT": False}
IMAGES = {"NYQUIST0": -1, "NYQUIST1": 64, "NYQUIST2": 64, "REAL": 64, **UNLIMITED}
VOLUMES = {**IMAGES, "NYQUIST0": 64}
INTEGERS = {"omega_step", "mode_step", "num_modes", "n0", "n1", "n2", "samples"}
NUMBERS = {"unit", "radius_factor"}


class Compiled(NamedTuple):
    """A kernel for a target: registers of a thread, and bytes (NVIDIA) or registers (AMD) that it spills."""

    kernel: str
    target: str
    registers: int
    spills: int


def compile_kernels(targets: Iterable[str] = tuple(TARGETS), dtype: str = "fp32") -> list[Compiled]:
    """Compile all kernels at the sizes of the benchmark."""
    from torchsonic.engine import triton_kernels, triton_parameters

    block, few = {"BLOCK": triton_kernels.BLOCK}, {"BLOCK": triton_parameters.BLOCK, "AXES": 2, "NODES": 32}
    kernels = {
        "couple, images": (triton_kernels.couple, IMAGES | block),
        "couple, volumes": (triton_kernels.couple, VOLUMES | block),
        "couple_adjoint, images": (triton_kernels.couple_adjoint, IMAGES | block),
        "couple_adjoint, volumes": (triton_kernels.couple_adjoint, VOLUMES | block),
        "physical": (triton_parameters.physical, few),
        "physical_adjoint": (triton_parameters.physical_adjoint, few),
    }
    return [
        Compiled(name, target, *_compile(kernel, constants, target, dtype))
        for target in targets
        for name, (kernel, constants) in kernels.items()
    ]


def _compile(kernel: Any, constants: dict[str, Any], target: str, dtype: str) -> tuple[int, int]:
    import triton  # pyright: ignore[reportMissingImports]
    from triton.backends.compiler import GPUTarget  # pyright: ignore[reportMissingImports]
    from triton.compiler import ASTSource  # pyright: ignore[reportMissingImports]

    def kind(name: str) -> str:
        if name in constants:
            return "constexpr"
        return "i32" if name in INTEGERS else "fp32" if name in NUMBERS else f"*{dtype}"

    signature = {name: kind(name) for name in kernel.arg_names}
    # The launcher finds out that allocations begin at multiples of 16 bytes.
    aligned = {(i,): [["tt.divisibility", 16]] for i, text in enumerate(signature.values()) if text[0] == "*"}
    source = ASTSource(kernel, signature, constexprs=constants, attrs=aligned)
    assembly = triton.compile(source, target=GPUTarget(*TARGETS[target])).asm
    return _nvidia(assembly["ptx"], target) if "ptx" in assembly else _amd(assembly["amdgcn"])


def _nvidia(ptx: str, target: str) -> tuple[int, int]:
    from triton import knobs  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx)
        name = re.search(r"\.target (\w+)", ptx)
        assembler = [knobs.nvidia.ptxas.path, "-v", f"--gpu-name={name[1] if name else target}"]
        done = subprocess.run(
            [*assembler, str(file), "-o", str(file.with_suffix(".cubin"))], capture_output=True, text=True, check=True
        )
    registers, spills = re.search(r"Used (\d+) registers", done.stderr), re.findall(r"(\d+) bytes spill", done.stderr)
    assert registers is not None
    return int(registers[1]), sum(map(int, spills))


def _amd(assembly: str) -> tuple[int, int]:
    found = {name: int(value) for name, value in re.findall(r"\.(\w+_count):\s*(\d+)", assembly)}
    return found["vgpr_count"], found["vgpr_spill_count"] + found["sgpr_spill_count"]
