"""The report on segmented volumes: scores with intervals, costs, pictures; as HTML, Markdown and JSON."""

from torchsonic.experiments.volume_report.folders import score_folders
from torchsonic.experiments.volume_report.results import CaseResult, Evaluation, ModelResult
from torchsonic.experiments.volume_report.write import write_report

__all__ = ["CaseResult", "Evaluation", "ModelResult", "score_folders", "write_report"]
