"""Classification of photographs: one model, trained on a folder of classes, tested at the training size and others.

A run is a folder: ``config.json``, ``classes.json``, ``log.jsonl``, ``checkpoints/``, ``model/`` and, in the end,
``results.json``.
"""

from torchsonic.lab.runs.images.config import MODELS, PRESETS, ImagesConfig, apply_preset, read_config
from torchsonic.lab.runs.images.network import apply_init, make_model
from torchsonic.lab.runs.images.predict import list_files, predict_files
from torchsonic.lab.runs.images.run import find_test_images, run_experiment
from torchsonic.lab.runs.images.saved_model import load_run, read_classes
from torchsonic.lab.runs.images.sizes import SizeScore, score_sizes

__all__ = [
    "MODELS",
    "PRESETS",
    "ImagesConfig",
    "SizeScore",
    "apply_init",
    "apply_preset",
    "find_test_images",
    "list_files",
    "load_run",
    "make_model",
    "predict_files",
    "read_classes",
    "read_config",
    "run_experiment",
    "score_sizes",
]
