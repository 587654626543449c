"""The operator as functions of tensors."""

from torchsonic.engine.accelerator import set_coupling
from torchsonic.engine.fft import fft_backend, set_fft_backend, use_fft_backend
from torchsonic.engine.memory import keep_all_pages
from torchsonic.engine.memory_estimate import estimated_bytes
from torchsonic.engine.plan import ORDERS, Plan, make_plan, order_costs
from torchsonic.engine.search import plan_search, remembered_plans, restore_plans, set_plan_search
from torchsonic.functional.collate import MixedBatch, collate
from torchsonic.functional.conv import sonic_conv, spectral_conv
from torchsonic.functional.resample import resample
from torchsonic.spectral.band import Band, frequency_axes, frequency_grid
from torchsonic.spectral.gain import grid_gain, reference_gain
from torchsonic.spectral.groups import Group, make_group
from torchsonic.spectral.limits import ResponseLimits
from torchsonic.spectral.nyquist import field_power
from torchsonic.spectral.operator import ModeOperator, response_matrix
from torchsonic.spectral.orientation import Storage, all_storages, split_affine, split_orientation
from torchsonic.spectral.response import Modes, ModeShape, mode_response
from torchsonic.spectral.spacing import as_spacing

__all__ = [
    "ORDERS",
    "Band",
    "Group",
    "MixedBatch",
    "ModeOperator",
    "ModeShape",
    "Modes",
    "Plan",
    "ResponseLimits",
    "Storage",
    "all_storages",
    "as_spacing",
    "collate",
    "estimated_bytes",
    "fft_backend",
    "field_power",
    "frequency_axes",
    "frequency_grid",
    "grid_gain",
    "keep_all_pages",
    "make_group",
    "make_plan",
    "mode_response",
    "order_costs",
    "plan_search",
    "reference_gain",
    "remembered_plans",
    "resample",
    "response_matrix",
    "restore_plans",
    "set_coupling",
    "set_fft_backend",
    "set_plan_search",
    "sonic_conv",
    "spectral_conv",
    "split_affine",
    "split_orientation",
    "use_fft_backend",
]
