"""SONIC: a global, oriented, resolution-invariant convolution for PyTorch."""

from torchsonic import functional, nn
from torchsonic.functional import Modes
from torchsonic.nn import (
    SonicConv1d,
    SonicConv2d,
    SonicConv3d,
    infer_strides,
    parameter_groups,
    replace_convs,
    set_spacing,
)

__version__ = "0.1.0"

__all__ = [
    "Modes",
    "SonicConv1d",
    "SonicConv2d",
    "SonicConv3d",
    "__version__",
    "functional",
    "infer_strides",
    "nn",
    "parameter_groups",
    "replace_convs",
    "set_spacing",
]
