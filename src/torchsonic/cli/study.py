"""Studies: comparisons of models over learning rates and seeds, and their headline numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torchsonic.cli.command import Command, UserError, make_folder, publish


@dataclass(frozen=True, kw_only=True)
class RunStudy(Command):
    """Compare networks over rates and seeds; without a name, list studies.

    Each network is trained once at each rate and tested on validation data, then at its best rate once with each seed.
    To continue a stopped study, run the same command again: finished runs are skipped.
    """

    name: str = ""
    """Name of a study, or a TOML file like those in the package."""
    out: Path | None = None
    """Folder for the runs, runs/NAME by default; the report is written to its subfolder 'report'."""
    data: Path = Path("data")
    """Folder of the data sets, under the names that the study uses."""
    models: tuple[str, ...] = ()
    """Train only these models of the study; the report still covers all."""
    jobs: int = 1
    """Number of runs at a time."""
    threads: int = 1
    """Threads per run; the last bits of results depend on it."""
    show: bool = False
    """Do not train; only write and print the report on what is finished and what is left."""

    needs = ("lightning_fabric", "rich", "matplotlib")
    positional = ("name",)
    thrift = "fewer --jobs"

    def run(self) -> None:
        from torchsonic.lab.report.study import make_page, status_line
        from torchsonic.lab.studies import list_studies, plan_runs, read_study, run_study

        if not self.name:
            width = max(map(len, list_studies()))
            for name in list_studies():
                study = read_study(name)
                runs = len(study.models) * ((len(study.rates) if len(study.rates) > 1 else 0) + len(study.seeds))
                print(
                    f"{name:{width}}  {study.title}: {len(study.models)} models, {runs} runs, about {study.hours:g} h"
                )
            return
        if self.jobs < 1 or self.threads < 1:
            raise UserError(f"--jobs and --threads must be at least 1, got {self.jobs} and {self.threads}")
        study = read_study(self.name)
        unknown = [name for name in self.models if name not in study.models]
        if unknown:
            raise UserError(f"--models: study {study.name} has no {unknown[0]!r}, only {', '.join(study.models)}")
        out = self.out or Path("runs") / study.name
        print(f"{study.title}: {status_line(plan_runs(study, out, self.data))}", flush=True)
        failed, report = [], make_folder(out / "report")
        if not self.show:
            say = partial(print, flush=True)
            failed = run_study(study, out, self.data, models=self.models, jobs=self.jobs, threads=self.threads, say=say)
        publish(make_page(study, out, self.data), report)
        if failed:
            raise UserError(f"{len(failed)} runs failed: {'; '.join(failed[:3])}")


@dataclass(frozen=True, kw_only=True)
class Summary(Command):
    """Gather the headline numbers of studies into one file."""

    studies: tuple[Path, ...]
    """Report folders of studies, each with report.json."""
    out: Path = Path("results/summary.json")
    """File to write."""

    positional = ("studies",)

    def run(self) -> None:
        from torchsonic.io import read_json, write_json
        from torchsonic.lab.report.runs import count

        if not self.studies:
            raise UserError("name at least one folder with the report.json of a study")
        numbers: dict[str, dict] = {}
        for folder in self.studies:
            report = read_json(folder / "report.json")
            if "study" not in report:
                raise UserError(f"{folder / 'report.json'} is not the report of a study; name folders that study wrote")
            for number in report["numbers"]:
                if number["name"] in numbers:
                    raise UserError(f"{number['name']} is in two studies, the second in {folder}; name each study once")
                numbers[number["name"]] = {"study": report["study"], **number}
        make_folder(self.out.parent)
        write_json(self.out, {"numbers": [numbers[name] for name in sorted(numbers)]})
        print(f"{count(len(numbers), 'number')} written to {self.out}")
