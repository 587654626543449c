"""Install a wheel into empty environments, without extras and with each extra alone, and try it there.

``python -m tools.try_wheel dist/torchsonic-*.whl`` needs a package index or ``pip``'s ``find-links``. PyTorch and the
wheel are installed once; environments of extras see these and add only what the extra brings. In each, every door to an
optional part either opens or names the extra that is missing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.wheel_trial import DOORS

__all__ = ["Finding", "judge", "try_wheel"]

ROOT = Path(__file__).resolve().parents[1]
TRIAL = Path(__file__).with_name("wheel_trial.py")
FOREIGN = "torchvision does not match this build of torch"
"""Of the message that names cause and remedy, :data:`torchsonic.integrations.TORCHVISION_REMEDY`."""


@dataclass(frozen=True)
class Finding:
    """What went wrong in one environment."""

    extra: str
    problems: list[str] = field(default_factory=list)
    note: str = ""
    """Why it could not be tried to the end on this machine."""


def try_wheel(wheel: Path, extras: Sequence[str], work: Path) -> list[Finding]:
    """Try a wheel without extras and with each of some extras alone."""
    core = _make_environment(work / "core")
    _install(core, f"{wheel}")
    findings = [_tell(_try(core, ""))]
    for extra in extras:
        python = _make_environment(work / extra)
        place = _site_packages(python)
        (place / "core.pth").write_text(f"{_site_packages(core)}\n", encoding="utf-8")
        try:
            _install(python, f"torchsonic[{extra}]")
        except subprocess.CalledProcessError:
            findings.append(_tell(Finding(extra, ["pip cannot install it; what pip said is above"])))
        else:
            findings.append(_tell(_try(python, extra)))
    return findings


def _tell(finding: Finding) -> Finding:
    name = f"with [{finding.extra}]" if finding.extra else "without extras"
    untried = f"not tried to the end: {finding.note}" if finding.note else "works"
    print(f"{name}: {'; '.join(finding.problems) or untried}", flush=True)
    return finding


def _make_environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True, clear=True)
    return folder / "bin" / "python"


def _site_packages(python: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(python.parents[1])}))


def _install(python: Path, what: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), what]
    subprocess.run(command, check=True, cwd=python.parents[1])


def _try(python: Path, extra: str) -> Finding:
    """Core and doors, isolated from every other source."""
    done = subprocess.run([str(python), "-I", str(TRIAL)], capture_output=True, text=True, cwd=python.parents[1])
    if done.returncode:
        return Finding(extra, [f"the trial fails: {done.stderr.strip()[-600:]}"])
    said = json.loads(done.stdout.splitlines()[-1])
    return Finding(extra, judge(extra, said), said[extra] if FOREIGN in said[extra] else "")


def judge(extra: str, said: Mapping[str, str]) -> list[str]:
    """What is wrong with what the trial said.

    A shut door must name the extra that opens it, and that of the extra itself must open. A torchvision that the index
    built for another PyTorch is no fault of the wheel, if the message names cause and remedy.
    """
    problems = [f"the core fails: {said['']}"] if said[""] else []
    for name in DOORS:
        if FOREIGN in said[name]:
            continue
        if said[name] and name == extra:
            problems.append(f"[{name}] is installed, but fails: {said[name]}")
        elif said[name] and 'pip install "torchsonic[' not in said[name]:
            problems.append(f"without [{name}] the message names no extra: {said[name]}")
    return problems


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--extras", nargs="*", choices=DOORS, default=list(DOORS), help="all that users install")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        findings = try_wheel(options.wheel.resolve(), options.extras, Path(work))
    return int(any(finding.problems for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
