"""Accuracy of classifiers over image sizes, beside the paper's curve."""

from torchsonic.lab.report.image_sizes.page import make_page
from torchsonic.lab.report.image_sizes.results import Curve, SizeReport, score_runs

__all__ = ["Curve", "SizeReport", "make_page", "score_runs"]
