"""How Sonic operators are written down while a model is exported.

Exporters want real operations that every runtime knows, and as many constants as possible. While an :class:`Exporting`
is active, layers and :func:`torchsonic.functional.resample` hand their work to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor

from torchsonic.engine.call import Mixing
from torchsonic.engine.lowering import is_symbolic, use_lowering
from torchsonic.engine.resampling import centred_matrix, multiply_axes
from torchsonic.export.lowering.dense import analysis_matrices, resampling_matrix, synthesis_matrices
from torchsonic.export.lowering.portable import portable_band, portable_conv
from torchsonic.export.lowering.radix import factorise, step_matrices
from torchsonic.export.lowering.real_response import RealResponses, constant_responses, evaluate_real, real_grid_gain
from torchsonic.spectral.band import Band
from torchsonic.spectral.response import ModeShape, spacing_frame
from torchsonic.spectral.spacing import Spacing, orientation_of, plain_spacing, spacing_values

if TYPE_CHECKING:
    from torchsonic.nn.conv import SonicConvNd

Transforms = Literal["matmul", "fft"]
T = TypeVar("T")


class Exporting:
    """What one export knows.

    The model is run once before it is traced. What depends on no input is computed in that run, in float64 where digits
    matter, and kept; the trace finds it here and takes it as a constant.

    Parameters
    ----------
    transforms
        ``"matmul"``: products with cosines and sines. ``"fft"``: PyTorch's own transforms, where sizes allow it.
    constant_bytes
        Most that responses may take as constants; those beyond are computed by the exported graph.
    """

    def __init__(self, transforms: Transforms = "matmul", *, constant_bytes: int = 0) -> None:
        self.transforms: Transforms = transforms
        self._bytes_left = constant_bytes
        self._constants: dict[str, Any] = {}
        self._shared: dict[str, Any] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let layers use this while the model runs or is traced, once."""
        self._shared.clear()  # tensors of an earlier trace mean nothing in this one
        with use_lowering(self):
            yield

    def constant(self, key: Hashable, make: Callable[[], T], *, num_bytes: int = 0) -> T | None:
        """What was computed for ``key`` before the trace; ``None`` if it was not, or would be too large."""
        name = repr(key)
        if name not in self._constants and not torch.compiler.is_compiling() and num_bytes <= self._bytes_left:
            self._bytes_left -= num_bytes
            self._constants[name] = make()
        return self._constants.get(name)

    def _once(self, key: tuple, make: Callable[[], T]) -> T:
        """A constant, or else computed once in the graph for all layers that ask for it."""
        found = self.constant(key, make)
        if found is not None:
            return found
        name = repr(key)
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def matrices(
        self, kind: Literal["analysis", "synthesis"], band: Band, samples: tuple[int, ...], like: Tensor
    ) -> list[Tensor]:
        """Matrices of :mod:`dense` for a band and the samples on its input or output side."""
        make = analysis_matrices if kind == "analysis" else synthesis_matrices
        key = (kind, band, samples, like.dtype)
        return self._once(key, lambda: make(band, samples, like.dtype, like.device))

    def steps(self, size: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Matrices of :mod:`radix` for a size that has factors."""
        factors = factorise(size)
        assert factors is not None
        return self._once(("steps", size, like.dtype), lambda: step_matrices(size, factors, like.dtype, like.device))

    def convolve(
        self, layer: SonicConvNd, x: Tensor, out_size: tuple[int, ...], given: Spacing, steps: Tensor
    ) -> Tensor:
        """A Sonic layer on prepared ``x (B, C, *size)``, its response a constant if size and spacing are fixed.

        Parameters
        ----------
        given, steps
            Spacing as the layer was told it, and as a tensor ``(1, D)`` or ``(B, D)``.
        """
        boundary = layer.boundary(given)
        band = portable_band(tuple(x.shape[2:]), out_size, boundary)
        mixing = Mixing(x, *layer.mixing(x.dtype))
        responses = _responses(layer, self, band, given, steps, x)
        return portable_conv(mixing, responses, self, band, out_size=out_size, boundary=boundary, order=layer.order)

    def resample(self, x: Tensor, size: tuple[int, ...], *, centred: bool = False) -> Tensor:
        """As :func:`torchsonic.functional.resample`, one product for each axis that changes."""
        matrix = centred_matrix if centred else resampling_matrix

        def make(old: int, new: int, dtype: torch.dtype, device: torch.device) -> Tensor:
            return self._once((matrix.__name__, old, new, dtype), partial(matrix, old, new, dtype, device))

        return multiply_axes(x, size, make)


def _responses(
    layer: SonicConvNd, exporting: Exporting, band: Band, given: Spacing, steps: Tensor, like: Tensor
) -> RealResponses:
    symmetry = layer._symmetry
    # Made in every case: the trace may need it where the run before did not.
    turn = orientation_of(given)
    shape = _shape(layer, exporting, band, steps, like.dtype, turn)
    told = isinstance(plain_spacing(given), Tensor) or turn is not layer._orientation  # inputs of the graph
    if not (told or is_symbolic((*band.size_in, *band.size_out))):

        def make() -> RealResponses:
            exact = layer._shape(band.size_in, steps, torch.float64, turn).each(Tensor.detach)
            return constant_responses(exact, steps, band, symmetry, layer.limits, like.dtype)

        num_parts = 4 if symmetry == "real" else 2
        num_bytes = num_parts * like.element_size() * layer.num_modes * layer.orbit_size * math.prod(band.shape)
        key = ("responses", id(layer), band, spacing_values(given, layer.num_axes), like.dtype)
        found = exporting.constant(key, make, num_bytes=num_bytes)
        if found is not None:
            return found
    return evaluate_real(shape, steps, band, symmetry, layer.limits)


def _shape(
    layer: SonicConvNd, exporting: Exporting, band: Band, steps: Tensor, dtype: torch.dtype, turn: Tensor | None
) -> ModeShape:
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
        return shape.turned(turn)
    shape = shape._replace(
        direction=spacing_frame(shape.direction[0], steps),
        cutoff=layer._cutoff(steps, dtype),
    )
    if layer.gain == "power":
        shape = shape._replace(gain=real_grid_gain(shape, steps, band.size_in))
    return shape
