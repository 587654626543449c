"""Classification of photographs: one model, trained on a folder of classes, tested at the training size and others.

A run is a folder: ``config.json``, ``classes.json``, ``log.jsonl``, ``checkpoints/``, ``model/`` and, in the end,
``results.json``.
"""

from torchsonic.lab.runs.images.config import MODELS, PRESETS, ImagesConfig
from torchsonic.lab.runs.images.network import apply_init, load_run, make_model, read_classes
from torchsonic.lab.runs.images.predict import SizeScore, list_files, predict_files, score_sizes
from torchsonic.lab.runs.images.run import find_test_images, run_experiment

__all__ = [
    "MODELS",
    "PRESETS",
    "ImagesConfig",
    "SizeScore",
    "apply_init",
    "find_test_images",
    "list_files",
    "load_run",
    "make_model",
    "predict_files",
    "read_classes",
    "run_experiment",
    "score_sizes",
]
