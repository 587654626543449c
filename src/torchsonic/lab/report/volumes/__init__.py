"""The report on segmented volumes: scores with intervals, costs, pictures; as HTML, Markdown and JSON."""

from torchsonic.lab.report.volumes.folders import score_folders
from torchsonic.lab.report.volumes.results import CaseResult, Evaluation, ModelResult
from torchsonic.lab.report.volumes.write import write_report

__all__ = ["CaseResult", "Evaluation", "ModelResult", "score_folders", "write_report"]
