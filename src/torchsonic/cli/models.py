"""Commands for models and operators: list them, show what they learned, convert the authors' released weights."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchsonic.cli.command import Command, UserError, make_folder, publish
from torchsonic.lab.report.catalogue import CatalogueRow, catalogue_table, marked_table, put_table
from torchsonic.lab.report.console import print_table
from torchsonic.lab.report.document import Table


@dataclass(frozen=True, kw_only=True)
class Explain(Command):
    """Show on one page what a trained network has learned."""

    model: Path
    """Folder of a run or of a saved model, or a name from 'torchsonic models --pretrained'."""
    out: Path = Path("explain.html")
    """HTML file to write; it needs no other file."""
    against: Path | None = None
    """Another run or saved model, whose receptive field is shown next to this one; by default the same network with
    untrained convolutions."""
    unit: str | None = None
    """Unit of length of the spacings; by default px or mm, if that is known."""
    layers: int = 6
    """Number of layers with pictures of their own, spread evenly over the network."""

    needs = ("matplotlib",)
    positional = ("model",)

    def run(self) -> None:
        if self.layers < 1:
            raise UserError(f"--layers must be at least 1, got {self.layers}")
        if self.out.is_dir():  # said before minutes of drawing
            raise UserError(f"--out {self.out} is a folder; name an HTML file, such as {self.out / 'explain.html'}")
        from torchsonic.lab.report.explain import load_subject, write_explanation

        make_folder(self.out.parent)
        subject = load_subject(self.model, against=self.against, unit=self.unit)
        written = write_explanation(
            subject, self.out, most_layers=self.layers, say=lambda text: print("drawn:", text, flush=True)
        )
        print("written:", written)


@dataclass(frozen=True, kw_only=True)
class Explore(Command):
    """Open a web page to adjust a mode, filter images and browse a model.

    The page runs only on this machine.
    """

    model: Path | None = None
    """Network whose modes to browse: folder of a run or of a saved model, or a name from 'torchsonic models
    --pretrained'."""
    host: str = "127.0.0.1"
    """Address to listen on. Unless it is this machine's own, others can reach the page, which has no password."""
    port: int = 0
    """Port to listen on; 0 chooses a free one."""
    browser: bool = True
    """Do not open a browser."""

    needs = ("PIL",)
    positional = ("model",)

    def run(self) -> None:
        from torchsonic.explorer import Session, make_server, open_checkpoint, serve

        session = Session(None if self.model is None else open_checkpoint(self.model))
        server = make_server(session, host=self.host, port=self.port)
        serve(server, browser=self.browser, say=lambda text: print(text, flush=True))


@dataclass(frozen=True, kw_only=True)
class Convert(Command):
    """Convert weights of the authors' released code."""

    file: Path
    """Weights: a .safetensors or torch.save file. Nothing in it is executed."""
    out: Path
    """New folder, for torchsonic.from_pretrained."""
    generation: Literal["rms", "dc", "free"] | None = None
    """Generation of the released code; needed for 2-D layers with vx and vy, since two generations use these names."""
    spacing: tuple[float, ...] = (1.0,)
    """Spacing the layers were built with: one number, or one per axis in array order (dz dy dx)."""
    standardise: Literal["channel", "sample", "none"] | None = None
    """What the input was standardised over; required, since the weights do not show it. 'none' if the network passed
    normalize_input=False, like the released classifiers; else 'channel' for rms, 'sample' for dc and free."""
    band_order: int | None = None
    """Butterworth order of layers with log_bandwidth; 4 by default."""
    missing_bandwidth: Literal["none", "half"] | None = None
    """Needed for layers with theta_v but no log_bandwidth: no band limit, or half the Nyquist frequency."""

    positional = ("file",)

    def run(self) -> None:
        from torchsonic.integrations.released import Choices, convert_file

        make_folder(self.out.parent)
        print(f"reading {self.file} ...", flush=True)
        conversion = convert_file(self.file, Choices(**self.values_for(Choices)))
        conversion.save(self.out)
        print(conversion.text())
        print("written:", self.out)


@dataclass(frozen=True, kw_only=True)
class Models(Command):
    """List the models with their parameters and FLOPs, and the paper's."""

    pattern: str = "*"
    """Shell pattern for the names, for example 'resnet50_*'."""
    out: Path | None = None
    """Markdown file whose table to update; the text around the table stays."""
    flops: bool = True
    """Skip the FLOPs, which take a few seconds to count."""
    pretrained: bool = False
    """List the trained networks included in torchsonic instead."""

    needs = ("rich",)
    positional = ("pattern",)

    def run(self) -> None:
        from rich.console import Console
        from rich.progress import track

        from torchsonic.models import list_models, list_pretrained

        if self.pretrained:
            if self.out is not None:
                raise UserError(f"--out {self.out} is for the table of models; leave out --pretrained or --out")
            names = fnmatch.filter(list_pretrained(), self.pattern)
            if not names:
                raise UserError(
                    f"no trained network matches {self.pattern!r}; there are {', '.join(list_pretrained())}"
                )
            print_table(_pretrained_table(names))
            return
        names = list_models(self.pattern)
        if not names:
            packaged = fnmatch.filter(list_pretrained(), self.pattern)
            remedy = "for packaged networks use: torchsonic models --pretrained"
            remedy = remedy if packaged else "run 'torchsonic models' to list all"
            raise UserError(f"no model matches {self.pattern!r}; {remedy}")
        text = None if self.out is None else _read(self.out)
        console = Console(stderr=True)
        rows = [
            _row(name, flops=self.flops)
            for name in track(names, description="counting", console=console, transient=True)
        ]
        print_table(catalogue_table(rows))
        if self.out is not None and text is not None:
            self.out.write_text(put_table(text, marked_table(rows, self._command())), encoding="utf-8")
            print("written:", self.out)

    def _command(self) -> str:
        words = ["torchsonic", "models", *([self.pattern] if self.pattern != "*" else [])]
        words += ["--out", str(self.out)] + ([] if self.flops else ["--no-flops"])
        return shlex.join(words)


def _pretrained_table(names: Sequence[str]) -> Table:
    from torchsonic.io import read_json
    from torchsonic.models import pretrained_folder

    rows = []
    for name in names:
        results = read_json(pretrained_folder(name) / "results.json")  # type: ignore[operator]
        network, training = results["config"]["model"], results["config"]["training"]
        budget = f"{training['steps']:,} steps of {training['batch']}"
        rows.append([name, results["task"], network, f"{results['parameters']:,}", budget])
    return Table("Trained networks in torchsonic", ("name", "task", "network", "parameters", "training"), rows, left=3)


def _read(path: Path) -> str:
    """The text to put the table into, checked before minutes of work are spent on it."""
    if not path.exists():
        make_folder(path.parent)
        return f"# Models\n\n{marked_table([], '')}\n"
    try:
        text = path.read_text(encoding="utf-8")
        put_table(text, "")
    except ValueError as error:
        raise UserError(f"--out {path}: {error}") from error
    return text


def _row(name: str, *, flops: bool) -> CatalogueRow:
    import torch

    from torchsonic.lab.metrics import count_flops, count_parameters, paper_cost
    from torchsonic.models import create_model, model_entry

    entry, _ = model_entry(name)
    model = create_model(name)
    number = None
    if flops:  # on a device that computes nothing: a pass through the largest takes minutes and all memory
        number = count_flops(model.to("meta"), torch.empty(1, *entry.input_size, device="meta"))
    row = entry.paper.get(name.partition(".")[2])
    paper = paper_cost(row, entry.task, len(entry.input_size) - 1)
    return CatalogueRow(name, entry.task, entry.input_size, count_parameters(model), number, paper)


@dataclass(frozen=True, kw_only=True)
class CompareOperators(Command):
    """Compare all operators under the same conditions: laws, directions, field, cost; takes minutes."""

    out: Path = Path("operators")
    """Folder for the page, its figure and its numbers."""
    quick: bool = False
    """Use small sizes and one draw of weights; takes less than a minute."""

    needs = ("rich", "matplotlib")

    def run(self) -> None:
        import torch
        from rich.console import Console

        from torchsonic.lab.report.operators import Budget, make_page, measure_operators
        from torchsonic.lab.runs.provenance import describe_run

        out = make_folder(self.out)
        run = describe_run(seed=0, device=torch.device("cpu"))
        budget = Budget.quick() if self.quick else Budget()
        with Console(stderr=True).status("measuring") as status:
            measured = measure_operators(budget, say=lambda text: status.update(f"measuring: {text}"))
        publish(make_page(measured, budget, run), out)
