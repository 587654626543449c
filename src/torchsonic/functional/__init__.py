"""The mathematics: pure tensor functions without state."""

from torchsonic.functional import compiled as compiled  # registers the custom operator
from torchsonic.functional.frequency import Band, as_spacing, frequency_axes, frequency_grid
from torchsonic.functional.limits import ResponseLimits
from torchsonic.functional.mode_operator import ModeOperator
from torchsonic.functional.pair import ModeShape
from torchsonic.functional.plan import ORDERS, Plan, make_plan, order_costs
from torchsonic.functional.resample import resample
from torchsonic.functional.spectral_conv import sonic_conv, spectral_conv
from torchsonic.functional.transfer import Modes, grid_gain, mode_response, reference_gain, response_matrix

__all__ = [
    "ORDERS",
    "Band",
    "ModeOperator",
    "ModeShape",
    "Modes",
    "Plan",
    "ResponseLimits",
    "as_spacing",
    "frequency_axes",
    "frequency_grid",
    "grid_gain",
    "make_plan",
    "mode_response",
    "order_costs",
    "reference_gain",
    "resample",
    "response_matrix",
    "sonic_conv",
    "spectral_conv",
]
