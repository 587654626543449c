"""SynthShape and HalliGalli: one model, trained on one fold with one seed, tested clean and perturbed."""

from torchsonic.lab.runs.synthetic.config import (
    MODELS,
    PRESETS,
    ModelName,
    SyntheticConfig,
    TaskName,
    apply_preset,
    parse_config,
    protocol,
    read_config,
)
from torchsonic.lab.runs.synthetic.run import evaluate_run, load_run, make_model, run_experiment
from torchsonic.lab.runs.synthetic.samples import TEST_NOISE, make_data, make_task, test_indices

__all__ = [
    "MODELS",
    "PRESETS",
    "TEST_NOISE",
    "ModelName",
    "SyntheticConfig",
    "TaskName",
    "apply_preset",
    "evaluate_run",
    "load_run",
    "make_data",
    "make_model",
    "make_task",
    "parse_config",
    "protocol",
    "read_config",
    "run_experiment",
    "test_indices",
]
