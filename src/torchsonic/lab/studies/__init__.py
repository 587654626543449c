"""Studies: compare models on one task, with the same learning-rate search and several seeds. A study is a TOML file.

A study first trains each model once per learning rate on a short budget and tests it on validation data. It then trains
each model at its best rate on the full budget, once per seed, and tests it on the test data.
"""

from torchsonic.lab.studies.definition import Measure, Model, Number, Study, list_studies, read_study
from torchsonic.lab.studies.plan import Planned, best_rate, plan_runs, time_left
from torchsonic.lab.studies.runner import run_study

__all__ = [
    "Measure",
    "Model",
    "Number",
    "Planned",
    "Study",
    "best_rate",
    "list_studies",
    "plan_runs",
    "read_study",
    "run_study",
    "time_left",
]
