"""How Sonic operators are written down while a model is exported.

Exporters want real operations that every runtime knows, and as many constants as possible. While an :class:`Exporting`
is active, layers and :func:`torchsonic.functional.resample` hand their work to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor

from torchsonic.engine.lowering import use_lowering
from torchsonic.export.lowering.dense import analysis_matrices, resampling_matrix, synthesis_matrices
from torchsonic.export.lowering.layer import convolve_portably
from torchsonic.export.lowering.radix import factorise, step_matrices
from torchsonic.spectral.band import Band
from torchsonic.spectral.spacing import Spacing

if TYPE_CHECKING:
    from torchsonic.nn.conv import SonicConvNd

__all__ = ["Exporting", "Transforms"]

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
        """A Sonic layer on prepared ``x``; see :func:`convolve_portably`."""
        return convolve_portably(layer, self, x, out_size, given, steps)

    def resample(self, x: Tensor, size: tuple[int, ...]) -> Tensor:
        """As :func:`torchsonic.functional.resample`, one product for each axis that changes."""
        for axis, (old, new) in enumerate(zip(x.shape[2:], size, strict=True)):
            if old == new:
                continue
            make = partial(resampling_matrix, old, new, x.dtype, x.device)
            matrix = self._once(("resampling", old, new, x.dtype), make)
            last = axis == x.dim() - 3
            x = x @ matrix.mT if last else (matrix @ x.movedim(2 + axis, -2)).movedim(-2, 2 + axis)
        return x
