"""How a Sonic layer runs while its model is exported."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchsonic.engine.lowering import is_symbolic
from torchsonic.export.lowering.portable import portable_band, portable_conv
from torchsonic.export.lowering.real_response import (
    RealResponses,
    constant_responses,
    evaluate_real,
    real_grid_gain,
)
from torchsonic.spectral.band import Band
from torchsonic.spectral.response import ModeShape, spacing_frame
from torchsonic.spectral.spacing import Spacing, spacing_values

if TYPE_CHECKING:
    from torchsonic.export.lowering.exporting import Exporting
    from torchsonic.nn.conv import SonicConvNd

__all__ = ["convolve_portably"]


def convolve_portably(
    layer: SonicConvNd, exporting: Exporting, x: Tensor, out_size: tuple[int, ...], given: Spacing, steps: Tensor
) -> Tensor:
    """The layer on ``x (B, C, *size)`` by real operations, its response a constant if size and spacing are fixed.

    Parameters
    ----------
    given, steps
        Spacing as the layer was told it, and as a tensor ``(1, D)`` or ``(B, D)``.
    """
    boundary = layer.boundary(given)
    band = portable_band(tuple(x.shape[2:]), out_size, boundary)
    return portable_conv(
        x,
        layer.mix_in.to(x.dtype),
        layer.mix_out.to(x.dtype),
        None if layer.bias is None else layer.bias.to(x.dtype),
        _responses(layer, exporting, band, given, steps, x),
        exporting,
        out_size=out_size,
        boundary=boundary,
        order=layer.order,
    )


def _responses(
    layer: SonicConvNd, exporting: Exporting, band: Band, given: Spacing, steps: Tensor, like: Tensor
) -> RealResponses:
    symmetry = layer._symmetry
    # Made in every case: the trace may need it where the run before did not.
    shape = _shape(layer, exporting, band, steps, like.dtype)
    if not (isinstance(given, Tensor) or is_symbolic((*band.size_in, *band.size_out))):

        def make() -> RealResponses:
            exact = layer._shape(band.size_in, steps, torch.float64).each(Tensor.detach)
            return constant_responses(exact, steps, band, symmetry, layer.limits, like.dtype)

        num_parts = 4 if symmetry == "real" else 2
        num_bytes = num_parts * like.element_size() * layer.num_modes * math.prod(band.shape)
        key = ("responses", id(layer), band, spacing_values(given, layer.num_axes), like.dtype)
        found = exporting.constant(key, make, num_bytes=num_bytes)
        if found is not None:
            return found
    return evaluate_real(shape, steps, band, symmetry, layer.limits)


def _shape(layer: SonicConvNd, exporting: Exporting, band: Band, steps: Tensor, dtype: torch.dtype) -> ModeShape:
    """Parameters of the responses; constants, but for those that follow grid and spacing in the paper's variant."""

    def make() -> ModeShape:
        reference = torch.tensor([layer.reference_spacing], dtype=torch.float64, device=steps.device)
        shape = layer._shape(band.size_in, reference, torch.float64)
        if layer.variant == "paper":
            shape = shape._replace(direction=layer._physical(torch.float64)[0][None], cutoff=None)
        return shape.each(lambda t: t.detach().to(dtype))

    shape = exporting.constant(("shape", id(layer), dtype), make)
    assert shape is not None, "the model was not run before it was traced"
    if layer.variant == "exact":
        return shape
    shape = shape._replace(
        direction=spacing_frame(shape.direction[0], steps),
        cutoff=layer._cutoff(steps, dtype),
    )
    if layer.gain == "power":
        shape = shape._replace(gain=real_grid_gain(shape, steps, band.size_in))
    return shape
