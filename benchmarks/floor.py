"""The least that a training step can take: its matrix products and Fourier transforms, and nothing else.

Forward there are two products, which mix channels into modes and modes into channels, with a transform there and one
back between them. Backward there are the adjoints of all four, and two products for the gradients of the mixing
matrices. Products write to memory that is there; transforms and oneDNN's products, which PyTorch does not let do so, to
what the allocator has at hand. No part passes anything on to the next, so this computes no useful function.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.entries import Entry

__all__ = ["FLOORS", "ComplexFloor", "Floor", "OneDNNFloor", "RealFloor"]


class Floor:
    """Products of ``channels (B, C, L)`` and ``signals (B, 2M, L)``; subclasses choose L and the transforms."""

    fields: Tensor
    spectra: Tensor

    def __init__(self, entry: Entry, length: int, device: torch.device) -> None:
        batch, channels, signals = entry.batch, entry.channels, 2 * entry.modes
        self.size, self.axes = entry.size, tuple(range(2, 2 + entry.num_axes))
        self.x, self.y, self.grad_x, self.grad_y = torch.randn(4, batch, channels, length, device=device)
        self.signals, self.grad_signals = torch.randn(2, batch, signals, length, device=device)
        self.mix_in = torch.randn(signals, channels, device=device).expand(batch, -1, -1)
        self.mix_out = torch.randn(channels, signals, device=device).expand(batch, -1, -1)
        self.grad_in = torch.empty(batch, signals, channels, device=device)
        self.grad_out = torch.empty(batch, channels, signals, device=device)

    def transform(self) -> None:
        raise NotImplementedError

    def transform_back(self) -> None:
        raise NotImplementedError

    def multiply(self, a: Tensor, b: Tensor, product: Tensor) -> None:
        torch.bmm(a, b, out=product)

    def forward(self) -> None:
        self.multiply(self.mix_in, self.x, self.signals)
        self.transform()
        self.transform_back()
        self.multiply(self.mix_out, self.signals, self.y)

    def backward(self) -> None:
        self.multiply(self.grad_y, self.signals.mT, self.grad_out)
        self.multiply(self.mix_out.mT, self.grad_y, self.grad_signals)
        self.transform()
        self.transform_back()
        self.multiply(self.grad_signals, self.x.mT, self.grad_in)
        self.multiply(self.mix_in.mT, self.grad_signals, self.grad_x)

    def step(self) -> None:
        self.forward()
        self.backward()


class ComplexFloor(Floor):
    """M complex signals are transformed; products are with their 2M real parts, sample by sample."""

    def __init__(self, entry: Entry, device: torch.device) -> None:
        super().__init__(entry, entry.num_samples, device)
        shape = (entry.batch, entry.modes, *entry.size)
        self.fields, self.spectra = torch.randn(2, *shape, dtype=torch.complex64, device=device)

    def transform(self) -> None:
        torch.fft.fftn(self.fields, dim=self.axes)

    def transform_back(self) -> None:
        torch.fft.ifftn(self.spectra, dim=self.axes)


class OneDNNFloor(ComplexFloor):
    """The same with the products of oneDNN, sample by sample."""

    def multiply(self, a: Tensor, b: Tensor, product: Tensor) -> None:
        for left, right in zip(a, b, strict=True):
            torch.ops.mkldnn._linear_pointwise.default(left, right.mT, None, "none", [], "")


class RealFloor(Floor):
    """C real channels are transformed; products are with the real and imaginary parts of their half spectra."""

    def __init__(self, entry: Entry, device: torch.device) -> None:
        half = (*entry.size[:-1], entry.size[-1] // 2 + 1)
        super().__init__(entry, 2 * torch.Size(half).numel(), device)
        self.fields = torch.randn(entry.shape, device=device)
        self.spectra = torch.randn(entry.batch, entry.channels, *half, dtype=torch.complex64, device=device)

    def transform(self) -> None:
        torch.fft.rfftn(self.fields, dim=self.axes)

    def transform_back(self) -> None:
        torch.fft.irfftn(self.spectra, s=self.size, dim=self.axes)


# The fastest one counts.
FLOORS: dict[str, type[ComplexFloor | RealFloor]] = {"floor_complex": ComplexFloor, "floor_real": RealFloor}
if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
    FLOORS["floor_onednn"] = OneDNNFloor
