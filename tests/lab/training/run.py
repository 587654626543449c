"""A short training run, also as a program of its own: tests kill it, start it again, or start several of it."""

import argparse
import json
import sys
from pathlib import Path

import torch

import torchsonic
from torchsonic.lab.data import SynthShape
from torchsonic.lab.training import SegmentationTask, TrainingConfig, fit


def run(folder: Path, *, mode_dropout: float | None = None, **options) -> None:
    config = TrainingConfig(**{"steps": 24, "batch": 8, "log_every": 1, "checkpoint_every": 1, **options})
    torch.manual_seed(config.seed)
    # Mode dropout draws random numbers at each step, which must go on where they stopped.
    dropout = mode_dropout if mode_dropout is not None else 0.2 if config.devices == 1 else 0.0
    backbone = {"num_modes": 6, "mode_dropout": dropout}
    model = torchsonic.create_model("synthshape_sonicnet", width=8, depth=1, backbone_options=backbone)
    task = SegmentationTask(SynthShape(size=(24, 24)), range(40), range(100, 110), batch=config.batch, noise=0.05)
    folder.mkdir(parents=True, exist_ok=True)
    result = fit(model, task, config, folder, show=False)
    model.save_pretrained(folder / "model")
    (folder / "done").write_text(str(result.step))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=json.loads, default={})
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run(arguments.folder, **arguments.config)


if __name__ == "__main__":
    sys.exit(main())
