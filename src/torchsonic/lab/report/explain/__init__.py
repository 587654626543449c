"""One page that shows what a saved model has learnt."""

from torchsonic.lab.report.explain.subject import Subject, load_subject
from torchsonic.lab.report.explain.write import write_explanation

__all__ = ["Subject", "load_subject", "write_explanation"]
