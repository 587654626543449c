"""A run through nnU-Net on the tests' dataset: FOLDER TRAINER LAST OPTIONS; its process ends after the epoch LAST."""

import os
import sys
from pathlib import Path

from torchsonic.lab.runs import nnunet

STEPS = 3

if __name__ == "__main__":
    folder, trainer, last, *options = sys.argv[1:]
    write_log = nnunet._write_log

    def write_and_end(folder, logger, epoch):
        write_log(folder, logger, epoch)
        if len(logger.get_value("train_losses", step=None)) == int(last) < STEPS:
            os._exit(0)

    nnunet._write_log = write_and_end
    training = nnunet.NnunetTraining(steps=STEPS, epoch=1, batch=2)
    config = nnunet.NnunetConfig(dataset=4, trainer=trainer, options=tuple(options), training=training)
    nnunet.run_experiment(config, Path(folder))
