"""The paper's implementation notes, written out plainly, against ``variant="paper"``."""

import math

import pytest
import torch

from tests.layers import make_layer
from torchsonic.functional import resample
from torchsonic.testing import relative_error


def plain_paper_operator(layer, x, spacing):
    """Notes (i)-(v) of Appendix A, literally."""
    axes = x.dim() - 2
    dims = tuple(range(2, x.dim()))
    size = tuple(x.shape[2:])
    x = x - x.mean(dims, keepdim=True)
    x = x / (x.square().mean(dims, keepdim=True) + 1e-5).sqrt()
    direction, scale, damping, oscillation, transverse = layer._physical(x.dtype)
    steps = torch.tensor(spacing, dtype=x.dtype)
    direction = direction / steps
    direction = direction / direction.norm(dim=-1, keepdim=True)
    frequencies = [
        2 * math.pi * (torch.fft.rfftfreq if d == axes - 1 else torch.fft.fftfreq)(n, spacing[d], dtype=x.dtype)
        for d, n in enumerate(size)
    ]
    omega = torch.stack(torch.meshgrid(*frequencies, indexing="ij"), -1)
    along = torch.einsum("...d,md->m...", omega, direction)
    across = (omega - along[..., None] * direction.reshape(-1, *[1] * axes, axes)).square().sum(-1)
    column = (slice(None), *[None] * axes)
    pole = torch.complex(-damping, oscillation)
    response = 1 / (1j * scale[column] * along - pole[column] + transverse[column] * across)
    response = response / response.abs().square().mean(dims_of(response), keepdim=True).sqrt()
    b = torch.complex(layer.mix_in[:, 0], layer.mix_in[:, 1])
    c = torch.complex(layer.mix_out[..., 0], -layer.mix_out[..., 1])
    spectrum = torch.einsum("km,m...,mc,bc...->bk...", c, response, b, torch.fft.rfftn(x, dim=dims))
    keep = torch.ones_like(spectrum.real)
    keep[..., 0] = 0
    if size[-1] % 2 == 0:
        keep[..., -1] = 0
    spectrum = torch.complex(spectrum.real, spectrum.imag * keep)
    y = torch.fft.irfftn(spectrum, s=size, dim=dims)
    return y + layer.bias.reshape(-1, *[1] * axes)


def dims_of(response):
    return tuple(range(1, response.dim()))


@pytest.mark.parametrize("size", [(7,), (8,), (6, 5), (5, 6), (4, 5, 6)])
def test_equals_the_notes_written_out(size):
    layer = make_layer(len(size), variant="paper")
    spacing = (0.7, 1.6, 2.5)[: len(size)]
    x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.parameters()]
    y, expected = layer(x, spacing=spacing), plain_paper_operator(layer, x, spacing)
    assert relative_error(y, expected) < 1e-12
    weight = torch.randn_like(y)
    for actual, wanted in zip(
        torch.autograd.grad(y, inputs, weight), torch.autograd.grad(expected, inputs, weight), strict=True
    ):
        torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)


def test_noise_is_added_in_training_only():
    layer = make_layer(2, variant="paper", input_noise=0.1)
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_a_constant_channel_is_harmless():
    layer = make_layer(2, variant="paper")
    y = layer(torch.ones(1, 3, 5, 6, dtype=torch.float64))
    assert torch.isfinite(y).all()


@pytest.mark.parametrize(("way", "grid"), [(True, (13, 15)), ("channel", (6, 7))])
def test_the_exact_operator_may_be_standardised_too(way, grid):
    layer, plain = make_layer(2, standardise=way), make_layer(2)
    x = torch.randn(2, 3, 6, 7, dtype=torch.float64)
    seen = resample(x, grid)  # the field on a grid that cuts no wave at its crests, or its samples
    level, spread = seen.mean((2, 3), keepdim=True), seen.var((2, 3), keepdim=True, unbiased=False)
    torch.testing.assert_close(layer(x), plain((x - level) / (spread + 1e-5).sqrt()))
    torch.testing.assert_close(layer(x), layer(3 * x - 7), rtol=1e-4, atol=1e-4)
    assert f"standardise={way!r}" in repr(layer)
    assert "standardise" not in repr(make_layer(2, variant="paper"))


@pytest.mark.parametrize("size", [(8, 6), (7, 6), (7, 9)])
def test_a_standardised_exact_layer_does_not_depend_on_the_sampling(size):
    layer = make_layer(2, standardise=True)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    fine = resample(x, (16, 27))
    spacing = tuple(n / m for n, m in zip(size, (16, 27), strict=True))
    assert relative_error(layer(fine, spacing=spacing, output_size=(5, 5)), layer(x, output_size=(5, 5))) < 1e-12
