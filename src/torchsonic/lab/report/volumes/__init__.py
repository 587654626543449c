"""The report on segmented volumes: scores with intervals, costs, pictures."""

from torchsonic.lab.report.volumes.folders import score_folders
from torchsonic.lab.report.volumes.page import make_page
from torchsonic.lab.report.volumes.results import CaseResult, Evaluation, ModelResult
from torchsonic.lab.report.volumes.scoring import Scoring

__all__ = ["CaseResult", "Evaluation", "ModelResult", "Scoring", "make_page", "score_folders"]
