"""Scenes that are drawn, not read: SynthShape, HalliGalli, and how both are perturbed."""

from torchsonic.lab.data.synthetic.halligalli import HalliGalli
from torchsonic.lab.data.synthetic.perturbations import PERTURBATIONS, perturb
from torchsonic.lab.data.synthetic.released import RELEASED_PERTURBATIONS, ReleasedShapes
from torchsonic.lab.data.synthetic.synthshape import SynthShape

__all__ = ["PERTURBATIONS", "RELEASED_PERTURBATIONS", "HalliGalli", "ReleasedShapes", "SynthShape", "perturb"]
