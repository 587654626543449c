"""Segmentation of NIfTI volumes: one model, trained on one fold or split, tested on whole cases.

A run is a folder: ``config.json``, ``split.json``, ``log.jsonl``, ``checkpoints/``, ``model/`` and, in the end,
``results.json``.
"""

from torchsonic.lab.runs.volumes.config import MODELS, PRESETS, VolumesConfig
from torchsonic.lab.runs.volumes.predict import (
    AxesWatch,
    predict_case,
    predict_probabilities,
    read_good_cases,
)
from torchsonic.lab.runs.volumes.run import load_run, run_experiment
from torchsonic.lab.runs.volumes.scores import score_cases
from torchsonic.lab.runs.volumes.split import Split, make_folds, read_split

__all__ = [
    "MODELS",
    "PRESETS",
    "AxesWatch",
    "Split",
    "VolumesConfig",
    "load_run",
    "make_folds",
    "predict_case",
    "predict_probabilities",
    "read_good_cases",
    "read_split",
    "run_experiment",
    "score_cases",
]
