"""The paper's order of evaluation, to compare speed and rounding with."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from torchsonic.functional import frequency_grid, mode_response
from torchsonic.nn import SonicConvNd


class PaperOrder(nn.Module):
    """The paper's order of evaluation in plain PyTorch, on the parameters of a Sonic layer.

    All C channels are transformed, mixed by complex products on the half spectrum, and all K transformed back. The
    paper's standardisation of the input and its zeroing of bins are omitted, in its favour.
    """

    omega: Tensor

    def __init__(self, layer: SonicConvNd, size: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.size = layer, size
        omega = frequency_grid(size, half=True, dtype=layer.mix_in.dtype, device=layer.mix_in.device)
        self.register_buffer("omega", omega.flatten(0, -2))

    def double_copy(self) -> PaperOrder:
        """The same parameters in float64, on a grid that was never rounded to float32."""
        return PaperOrder(deepcopy(self.layer).double(), self.size)

    def forward(self, x: Tensor) -> Tensor:
        modes = self.layer.modes()
        response = mode_response(self.omega, modes.direction, modes.scale, modes.pole, modes.transverse)
        axes = tuple(range(2, x.dim()))
        spectrum = torch.fft.rfftn(x, dim=axes)
        z = torch.einsum("mc,bcn->bmn", modes.mix_in, spectrum.flatten(2))
        w = z * (modes.gain[:, None] * response)
        mixed = torch.einsum("km,bmn->bkn", modes.mix_out, w)
        return torch.fft.irfftn(mixed.unflatten(-1, spectrum.shape[2:]), s=self.size, dim=axes)
