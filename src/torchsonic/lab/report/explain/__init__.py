"""One page that shows what a saved model has learned."""

from torchsonic.lab.report.explain.page import make_page, write_explanation
from torchsonic.lab.report.explain.subject import Subject, load_subject

__all__ = ["Subject", "load_subject", "make_page", "write_explanation"]
