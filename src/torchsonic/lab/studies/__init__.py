"""Studies: models compared on one task, after an equal search of the rate, over seeds. A study is a TOML file.

A study trains each model once per rate on a short budget and tests it on validation data; then, at the model's best
rate, once per seed on the full budget, tested on the test data. The files of this folder are the project's own.
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
