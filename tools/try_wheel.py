"""Install a wheel into empty environments, without extras and with each extra alone, and try it there.

``python -m tools.try_wheel dist/torchsonic-*.whl`` needs a package index or ``pip``'s ``find-links``. PyTorch and the
wheel are installed once; environments of extras see these and add only what the extra brings. In each, every door to an
optional part either opens or names the extra that is missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CORE", "DOORS", "Finding", "try_wheel"]

ROOT = Path(__file__).resolve().parents[1]
CORE = """
import tempfile, torch, torchsonic
layer = torchsonic.SonicConv2d(3, 8, num_modes=4)
x = torch.randn(2, 3, 12, 16, requires_grad=True)
layer(x, spacing=(0.8, 2.5)).square().mean().backward()
assert x.grad is not None and all(p.grad is not None for p in layer.parameters())
model = torchsonic.create_model("sonicnet2d", width=8, num_modes=4)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    again = torchsonic.from_pretrained(folder)
assert torch.equal(model.eval()(x), again.eval()(x))
from torchsonic.cli import main
assert main(["--help"]) == 0 and main(["--version"]) == 0
"""
"""What works without any extra."""
DOORS = {
    "cli": "from torchsonic.cli import main; raise SystemExit(main(['models', '--help']))",
    "viz": "import torchsonic.viz; torchsonic.viz.draw_modes(torchsonic.SonicConv2d(2, 2, num_modes=2))",
    "images": "from torchsonic.lab.data.images.files import import_pillow; import_pillow()",
    "masks": "from torchsonic.lab.data.volumes.preparation import import_ndimage; import_ndimage('masks')",
    "app": "from torchsonic.explorer.uploads import read_image\n"
    "try: read_image(b'')\nexcept Exception as e: assert 'empty' in str(e), e",
    "train": "from torchsonic.lab.training.config import TrainingConfig\n"
    "from torchsonic.lab.training.fabric import make_fabric\nmake_fabric(TrainingConfig(accelerator='cpu'))",
    "timm": "import torchsonic.integrations.timm",
    "medical": "import torchsonic.integrations.monai, torchsonic.integrations.nnunet\n"
    "from torchsonic.lab.metrics.detection import find_lesions\nimport numpy\n"
    "find_lesions(numpy.zeros((4, 8, 8)), numpy.zeros((4, 8, 8)))",
    "export": "from torchsonic.export.run import require_packages; require_packages('onnx')",
    "hub": "from torchsonic.models.hub import import_hub; import_hub()",
}
"""What each extra opens; ``bench``, ``dev`` and ``docs`` are for checkouts, ``vkfft`` asks for a compiler."""


@dataclass(frozen=True)
class Finding:
    """What went wrong in one environment."""

    extra: str
    problems: list[str] = field(default_factory=list)


def try_wheel(wheel: Path, extras: Sequence[str], work: Path) -> list[Finding]:
    """Try a wheel without extras and with each of some extras alone."""
    core = _make_environment(work / "core")
    _install(core, f"{wheel}")
    findings = [_try(core, "")]
    for extra in extras:
        python = _make_environment(work / extra)
        place = _site_packages(python)
        (place / "core.pth").write_text(f"{_site_packages(core)}\n", encoding="utf-8")
        _install(python, f"torchsonic[{extra}]")
        findings.append(_try(python, extra))
    return findings


def _make_environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True, clear=True)
    return folder / "bin" / "python"


def _site_packages(python: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(python.parents[1])}))


def _install(python: Path, what: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), what]
    subprocess.run(command, check=True, cwd=python.parents[1])


def _try(python: Path, extra: str) -> Finding:
    """Core and doors, in a folder without sources."""
    problems = []
    code, said = _run(python, CORE)
    if code:
        problems.append(f"the core fails: {said}")
    for name, door in DOORS.items():
        code, said = _run(python, door)
        if code and name == extra:
            problems.append(f"[{name}] is installed, but fails: {said}")
        elif code and 'pip install "torchsonic[' not in said:
            problems.append(f"without [{name}] the message names no extra: {said}")
    return Finding(extra, problems)


def _run(python: Path, code: str) -> tuple[int, str]:
    done = subprocess.run([str(python), "-I", "-c", code], capture_output=True, text=True, cwd=python.parents[1])
    return done.returncode, done.stderr.strip()[-600:]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--extras", nargs="*", choices=DOORS, default=list(DOORS), help="all that users install")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        findings = try_wheel(options.wheel.resolve(), options.extras, Path(work))
    for finding in findings:
        name = f"with [{finding.extra}]" if finding.extra else "without extras"
        print(f"{name}: {'; '.join(finding.problems) or 'works'}")
    return int(any(finding.problems for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
