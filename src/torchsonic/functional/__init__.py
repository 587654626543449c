"""The mathematics: pure tensor functions without state."""

# These register custom operators.
from torchsonic.functional import compiled as compiled
from torchsonic.functional import compiled_resample as compiled_resample
from torchsonic.functional.fft import fft_backend, set_fft_backend, use_fft_backend
from torchsonic.functional.footprint import estimated_bytes
from torchsonic.functional.frequency import Band, as_spacing, frequency_axes, frequency_grid
from torchsonic.functional.limits import ResponseLimits
from torchsonic.functional.mode_operator import ModeOperator
from torchsonic.functional.nyquist import field_power
from torchsonic.functional.pages import keep_all_pages
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
    "estimated_bytes",
    "fft_backend",
    "field_power",
    "frequency_axes",
    "frequency_grid",
    "grid_gain",
    "keep_all_pages",
    "make_plan",
    "mode_response",
    "order_costs",
    "reference_gain",
    "resample",
    "response_matrix",
    "set_fft_backend",
    "sonic_conv",
    "spectral_conv",
    "use_fft_backend",
]
