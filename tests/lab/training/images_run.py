"""A short training run on pictures, also as a program of its own: tests kill it, start it again, or start several."""

import json
import sys
from pathlib import Path

import torch

from torchsonic.lab.data.images.changes import ImageChanges
from torchsonic.lab.runs.images import ImagesConfig, run_experiment
from torchsonic.lab.training import TrainingConfig


def run(folder: Path, data: Path, **options) -> None:
    training = {"steps": 12, "batch": 8, "log_every": 1, "checkpoint_every": 1, "learning_rate": 1e-3, **options}
    config = ImagesConfig(
        data=data,
        model="resnet50_sonic",
        model_options=("width=8", "depths=1,1,1,1", "operator_options.num_modes=4"),
        image_size=32,
        changes=ImageChanges(mixup=0.2, cutmix=1.0),
        training=TrainingConfig(**training),
    )
    results = run_experiment(config, folder, show=False)
    if results:
        (folder / "done").write_text(str(results["top1"]))


def main() -> None:
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3]))


if __name__ == "__main__":
    main()
