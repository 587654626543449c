"""``torchsonic evaluate volumes``: scores and a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from torchsonic.cli.command import UserError, check_device, make_folder, require, warnings_in_one_line

if TYPE_CHECKING:
    from torchsonic.lab.report.volumes import Evaluation

__all__ = ["EvaluateVolumes"]

THRESHOLD = 0.5
PRINTED = ("Scores", "Differences", "Lesions")
"""Tables of the report that a console shows, too."""


@dataclass(frozen=True, kw_only=True)
class EvaluateVolumes:
    """Score segmented volumes and write a report with pictures.

    Of runs (RUN [RUN ...]): each predicts its own test cases, or all cases of --external. Of any tool's output:
    --predictions and --labels, two folders of NIfTI files whose names match.
    """

    positional: ClassVar[tuple[str, ...]] = ("runs",)

    runs: tuple[Path, ...] = ()
    """Folders of finished runs of 'torchsonic train volumes'; the folds of one model share a row."""
    external: Path | None = None
    """Folder with images/ and labels/ from elsewhere, all of whose cases the runs predict instead of their own."""
    data: Path | None = None
    """Where the cases of the runs lie, if not where they lay in training."""
    predictions: tuple[Path, ...] = ()
    """Folders of predicted labels, of nnU-Net or any other tool, instead of runs; several are compared."""
    labels: Path | None = None
    """Folder of true labels, with --predictions."""
    images: Path | None = None
    """Folder of images for the background of pictures, with --predictions."""
    classes: tuple[str, ...] = ()
    """Names of the classes from 1 on; by default those of nnU-Net's dataset.json, or their numbers."""
    lesions: int | None = None
    """Class whose lesions are counted: AUROC, AP, F1, sensitivity, precision."""
    probabilities: Path | None = None
    """Folder with probabilities of the lesion class, with --predictions; beside these by default (nnU-Net's .npz)."""
    threshold: float = THRESHOLD
    """Least confidence of a lesion that is reported."""
    tolerance: float = 2.0
    """Millimetres within which surfaces agree."""
    pictures: bool = True
    """Leave the pictures out."""
    keep_going: bool = False
    """Leave bad cases out with a warning instead of stopping at the first."""
    device: str = "cpu"
    """Where the networks of runs compute: cpu, cuda, mps."""
    out: Path = Path("evaluation")
    """Folder for the report and, of runs, the predictions."""

    def run(self) -> None:
        self._check()
        for package in ("monai", "nibabel", "scipy", *(["picai_eval"] if self.lesions is not None else [])):
            require(package, "medical")
        require("matplotlib", "viz")
        require("rich", "cli")
        from torchsonic.lab.report import print_document, write_document
        from torchsonic.lab.report.volumes import make_page

        try:
            with warnings_in_one_line():
                evaluation = self._score()
            document = make_page(evaluation)
            written = write_document(document, make_folder(self.out))
        except (OSError, ValueError) as error:
            raise UserError(str(error)) from error
        print_document(document, sections=PRINTED)
        print("written:", written[0])

    def _check(self) -> None:
        if bool(self.runs) == bool(self.predictions):
            raise UserError("give runs, or --predictions and --labels, but not both")
        with_folders = {"labels": self.labels, "images": self.images, "probabilities": self.probabilities}
        with_runs = {"external": self.external, "data": self.data}
        for name, value in with_folders.items():
            if self.runs and value is not None:
                raise UserError(f"--{name} belongs to --predictions, not to runs")
        for name, value in with_runs.items():
            if not self.runs and value is not None:
                raise UserError(f"--{name} belongs to runs, not to --predictions")
        if not self.runs and self.labels is None:
            raise UserError("--predictions needs --labels, the folder of true labels")
        if self.external is not None and self.data is not None:
            raise UserError("--external and --data exclude each other: name one folder of cases")
        if self.probabilities is not None and self.lesions is None:
            raise UserError("--probabilities needs --lesions, the class they belong to")
        if not 0.0 < self.threshold <= 1.0:
            raise UserError(f"--threshold must be in (0, 1], got {self.threshold}")
        if not self.tolerance > 0:
            raise UserError(f"--tolerance must be positive, got {self.tolerance}")
        if self.threshold != THRESHOLD and self.lesions is None:
            raise UserError("--threshold needs --lesions, the class of the lesions it is for")
        if not self.runs and self.device != "cpu":
            raise UserError("--device belongs to runs, not to --predictions")
        check_device(self.device)

    def _score(self) -> Evaluation:
        from torchsonic.lab.report.volumes import Scoring, score_folders
        from torchsonic.lab.report.volumes.runs import score_runs

        scoring = Scoring(
            classes=self.classes,
            lesion_class=self.lesions,
            threshold=self.threshold,
            tolerance=self.tolerance,
            pictures=self.pictures,
            keep_going=self.keep_going,
        )
        if self.predictions and self.labels is not None:
            more = {"images": self.images, "probabilities": self.probabilities}
            return score_folders(self.predictions, self.labels, scoring=scoring, **more)
        more = {"external": self.external, "data": self.data}
        return score_runs(self.runs, make_folder(self.out), scoring=scoring, device=self.device, **more)
