"""SONIC: a global, oriented, resolution-invariant convolution for PyTorch."""

import sys

from torchsonic import baselines, functional, models, nn
from torchsonic.functional import (
    Group,
    Modes,
    collate,
    fft_backend,
    make_group,
    plan_search,
    set_coupling,
    set_fft_backend,
    set_plan_search,
    use_fft_backend,
)
from torchsonic.models import PretrainedError, create_model, from_pretrained, list_models, list_pretrained
from torchsonic.moved import MovedModules
from torchsonic.nn import (
    SonicConv1d,
    SonicConv2d,
    SonicConv3d,
    SonicOrbitConv2d,
    SonicOrbitConv3d,
    infer_strides,
    parameter_groups,
    replace_convs,
    set_orientation,
    set_spacing,
)

__version__ = "0.2.0"
sys.meta_path.insert(0, MovedModules())  # before Python's own finder, which would load moved modules a second time

__all__ = [
    "Group",
    "Modes",
    "PretrainedError",
    "SonicConv1d",
    "SonicConv2d",
    "SonicConv3d",
    "SonicOrbitConv2d",
    "SonicOrbitConv3d",
    "__version__",
    "baselines",
    "collate",
    "create_model",
    "fft_backend",
    "from_pretrained",
    "functional",
    "infer_strides",
    "list_models",
    "list_pretrained",
    "make_group",
    "models",
    "nn",
    "parameter_groups",
    "plan_search",
    "replace_convs",
    "set_coupling",
    "set_fft_backend",
    "set_orientation",
    "set_plan_search",
    "set_spacing",
    "use_fft_backend",
]
