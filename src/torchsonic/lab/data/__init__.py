"""Data of the tasks, all by sample number and seed."""

from torchsonic.lab.data.synthetic import PERTURBATIONS, HalliGalli, SynthShape, perturb

__all__ = ["PERTURBATIONS", "HalliGalli", "SynthShape", "perturb"]
