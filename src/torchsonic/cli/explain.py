"""``torchsonic explain``: one page on what a model has learnt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torchsonic.cli.command import UserError, make_folder, require

__all__ = ["Explain"]


@dataclass(frozen=True, kw_only=True)
class Explain:
    """Write one page that shows what a saved model has learnt: its modes, spectra and receptive field."""

    positional: ClassVar[tuple[str, ...]] = ("checkpoint",)

    checkpoint: Path
    """Folder of a saved model, or of a run."""
    out: Path = Path("explain.html")
    """HTML file; it needs no other."""
    against: Path | None = None
    """Another saved model or run, whose receptive field is shown beside; untrained convolutions by default."""
    unit: str | None = None
    """Name of the length in which spacings are given; px or mm where that is known."""
    layers: int = 6
    """Layers with pictures of their own; of more, so many are chosen evenly."""

    def run(self) -> None:
        require("matplotlib", "viz")
        if self.layers < 1:
            raise UserError(f"--layers must be at least 1, got {self.layers}")
        if self.out.is_dir():  # said before minutes of drawing
            raise UserError(f"--out {self.out} is a folder; give an HTML file, such as {self.out / 'explain.html'}")
        from torchsonic.lab.report.explain import load_subject, write_explanation
        from torchsonic.lab.training.checkpoint import CheckpointError

        make_folder(self.out.parent)
        try:
            subject = load_subject(self.checkpoint, against=self.against, unit=self.unit)
            written = write_explanation(subject, self.out, most_layers=self.layers, say=_say)
        except (CheckpointError, ValueError) as error:
            raise UserError(" ".join(str(error).split())) from error
        except OSError as error:
            if error.filename is None or Path(error.filename) != self.out:
                raise UserError(f"cannot read or write {error.filename}: {error.strerror}") from error
            raise UserError(f"--out: cannot write {error.filename}: {error.strerror}") from error
        print("written:", written)


def _say(text: str) -> None:
    print("drawn:", text, flush=True)
