import copy

import pytest
import torch

from tests.layers import make_layer
from torchsonic.functional import frequency_grid, mode_response
from torchsonic.testing import relative_error


def float32_errors(layer, x, call):
    """Relative errors of output, input gradient and parameter gradients against float64."""
    results = []
    for dtype in (torch.float32, torch.float64):
        model, t = copy.deepcopy(layer).to(dtype), x.to(dtype).requires_grad_()
        y = call(model, t)
        weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
        results.append([y, *torch.autograd.grad(y, [t, *model.parameters()], weight)])
    return [relative_error(a, b) for a, b in zip(*results, strict=True)]


def plain_operator(layer, x):
    """The exact operator in the paper's order and in plain PyTorch: FFT of channels, complex mixing, inverse FFT."""
    size, modes = tuple(x.shape[2:]), layer.modes()
    omega = frequency_grid(size, 1.0, dtype=x.dtype)
    response = mode_response(omega, modes.direction, modes.scale, modes.pole, modes.transverse)
    response = modes.gain.reshape(-1, *[1] * len(size)) * response
    axes = tuple(range(2, x.dim()))
    z = torch.einsum("mc,bc...->bm...", modes.mix_in, torch.fft.fftn(x, dim=axes))
    y = torch.fft.ifftn(torch.einsum("km,bm...->bk...", modes.mix_out, response * z), dim=axes).real
    return y + layer.bias.reshape(-1, *[1] * len(size))


@pytest.mark.parametrize("size", [(63,), (17, 25), (15, 15), (63, 65), (13, 11, 15)])  # odd: no bin without sign
def test_float32_error_is_at_most_twice_that_of_the_papers_order(size):
    """Both against their own float64, output and gradients; geometric mean over seeds."""
    ratios: list[torch.Tensor] = []
    names = ["y", "x", *dict(make_layer(len(size)).named_parameters())]
    for seed in range(5):
        layer = make_layer(len(size), (8, 8), 8, dtype=torch.float32, seed=seed)
        x = torch.randn(2, 8, *size)
        ours, plain = (float32_errors(layer, x, call) for call in (lambda m, t: m(t), plain_operator))
        ratios.append((torch.tensor(ours) / torch.tensor(plain)).log())
    typical = dict(zip(names, torch.stack(ratios).mean(0).exp(), strict=True))
    if len(size) == 1:  # no direction to turn, nothing across
        del typical["raw_direction"], typical["raw_transverse"]
    assert typical["y"] <= 2
    values = torch.stack(list(typical.values()))
    assert values.log().mean().exp() <= 2  # all together
    assert values.max() <= 4, typical  # and none far off
