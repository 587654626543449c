"""A short training run as a program of its own: tests kill it, start it again, or start several of it."""

import argparse
import json
import sys
from pathlib import Path

import torch

import torchsonic
from torchsonic.data import SynthShape
from torchsonic.training import SegmentationTask, TrainingConfig, fit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=json.loads, default={})
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = TrainingConfig(**{"steps": 24, "batch": 8, "log_every": 1, "checkpoint_every": 1, **arguments.config})
    torch.manual_seed(config.seed)
    # Mode dropout draws random numbers at each step, which must go on where they stopped.
    options = {"num_modes": 6, "mode_dropout": 0.2 if config.devices == 1 else 0.0}
    model = torchsonic.create_model("synthshape_sonicnet", width=8, depth=1, backbone_options=options)
    task = SegmentationTask(SynthShape(size=(24, 24)), range(40), range(100, 110), batch=config.batch, noise=0.05)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    result = fit(model, task, config, arguments.folder, show=False)
    model.save_pretrained(arguments.folder / "model")
    (arguments.folder / "done").write_text(str(result.step))


if __name__ == "__main__":
    sys.exit(main())
