"""One page that shows what a saved model has learnt."""

from torchsonic.experiments.explain.subject import Subject, load_subject
from torchsonic.experiments.explain.write import write_explanation

__all__ = ["Subject", "load_subject", "write_explanation"]
