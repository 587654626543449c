"""A run that several processes and one can make."""

import torch

import torchsonic
from torchsonic.lab.data import SynthShape
from torchsonic.lab.training import SegmentationTask

CONFIG = {
    **{"steps": 8, "batch": 4, "accumulate": 2, "log_every": 1, "checkpoint_every": 1, "accelerator": "cpu"},
    **{"ema": 0.5, "keep_every": 4, "devices": 2},
}


def make_model():
    torch.manual_seed(0)
    return torchsonic.create_model("synthshape_sonicnet", width=8, depth=2, backbone_options={"num_modes": 6})


def make_task():
    return SegmentationTask(SynthShape(size=(16, 16)), range(20), range(100, 104), batch=4, noise=0.05)
