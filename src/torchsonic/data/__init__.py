"""Data of the experiments, all by sample number and seed."""

from torchsonic.data.halligalli import HalliGalli
from torchsonic.data.perturbations import PERTURBATIONS, perturb
from torchsonic.data.synthshape import SynthShape

__all__ = ["PERTURBATIONS", "HalliGalli", "SynthShape", "perturb"]
