"""Results of ``torchsonic bench``; the benchmarks live in a checkout and are in no wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchsonic.cli.command import UserError, make_folder, require_console_and_figures

__all__ = ["BenchReport", "result_folder", "write_report"]

REFERENCE_RESULTS = Path("results/bench")
TRIAL_RESULTS = Path("runs/bench")


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
class BenchReport:
    """Write Markdown and figures again from the JSON of earlier runs."""

    out: Path = REFERENCE_RESULTS
    """Folder of the results."""

    def run(self) -> None:
        require_console_and_figures()
        from benchmarks import report

        found = [path for kind in report.KINDS if (path := self.out / f"{kind}.json").is_file()]
        if not found:
            raise UserError(f"--out: no benchmark results in {self.out}")
        for path in found:
            try:
                result = report.read_result(path)
            except ValueError as error:
                raise UserError(str(error)) from error
            write_report(result, self.out)
