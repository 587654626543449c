"""Results of ``torchsonic bench``; the benchmarks live in a checkout and are in no wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchsonic.cli.command import Command, UserError, make_folder

__all__ = ["BenchCommand", "BenchReport", "result_folder", "write_report"]

REFERENCE_RESULTS = Path("results/bench")
TRIAL_RESULTS = Path("runs/bench")


class BenchCommand(Command):
    """Measures something, and writes tables and figures."""

    needs = ("rich", "matplotlib")


def result_folder(out: Path | None, *, partial: bool) -> Path:
    """Where results go: a trial must not overwrite the reference results unless told to."""
    return make_folder(out or (TRIAL_RESULTS if partial else REFERENCE_RESULTS))


def write_report(result: dict, folder: Path) -> None:
    """Write and print a result."""
    from benchmarks.report import make_page
    from torchsonic.lab.report import print_document, write_document

    document = make_page(result)
    paths = write_document(document, folder, name=result["kind"])
    print_document(document)
    print("written:", ", ".join(str(path) for path in paths))


@dataclass(frozen=True, kw_only=True)
class BenchReport(BenchCommand):
    """Write Markdown and figures again from the JSON of earlier runs."""

    out: Path = REFERENCE_RESULTS
    """Folder of the results."""

    def run(self) -> None:
        from benchmarks import report

        found = [path for kind in report.KINDS if (path := self.out / f"{kind}.json").is_file()]
        if not found:
            raise UserError(f"--out: no benchmark results in {self.out}")
        for path in found:
            write_report(report.read_result(path), self.out)
