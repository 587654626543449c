"""Accuracy of classifiers over image sizes, beside the paper's curve, as HTML, Markdown, JSON and PNG."""

from torchsonic.lab.report.image_sizes.results import Curve, SizeReport, score_runs
from torchsonic.lab.report.image_sizes.words import accuracy_rows, loss_rows, verdict_lines
from torchsonic.lab.report.image_sizes.write import write_report

__all__ = ["Curve", "SizeReport", "accuracy_rows", "loss_rows", "score_runs", "verdict_lines", "write_report"]
