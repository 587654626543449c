import math

import pytest
import torch
from torch import nn

from tests.layers import LAYERS, make_layer
from torchsonic import SonicConv2d
from torchsonic.nn.init import initial_directions, initial_responses

GRIDS = {1: (96,), 2: (40, 48), 3: (16, 18, 20)}


@pytest.mark.parametrize("num_axes", [1, 2, 3])
@pytest.mark.parametrize("channels", [(1, 1), (3, 16), (32, 4)])
@pytest.mark.parametrize("num_modes", [1, 8, 40])
def test_white_noise_leaves_with_the_variance_it_came_with(num_axes, channels, num_modes):
    for spacing in (1e-3, 1.0, 1e3):
        variances = []
        for seed in range(24):
            torch.manual_seed(seed)
            layer = LAYERS[num_axes](*channels, num_modes=num_modes, spacing=spacing)
            with torch.no_grad():
                variances.append(layer(torch.randn(2, channels[0], *GRIDS[num_axes])).var())
        assert 0.7 <= torch.stack(variances).mean().sqrt() <= 1.4


@pytest.mark.parametrize("spacing", [(10.0, 1.0, 1.0), (2.5, 0.8, 0.8), (0.01, 0.3, 1.0)])
def test_anisotropic_references_keep_the_variance_too(spacing):
    deviations = []
    for seed in range(16):
        torch.manual_seed(seed)
        layer = LAYERS[3](8, 8, num_modes=12, spacing=spacing)
        with torch.no_grad():
            deviations.append(layer(torch.randn(2, 8, *GRIDS[3])).std())
    assert 0.7 <= torch.stack(deviations).mean() <= 1.4


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_layers_in_any_unit_start_identical(num_axes):
    layers = []
    for spacing in (1.0, 1e-3, 4e-5):
        torch.manual_seed(3)
        layers.append(LAYERS[num_axes](3, 4, num_modes=6, spacing=spacing))
    x = torch.randn(1, 3, *GRIDS[num_axes])
    for layer in layers[1:]:
        for p, q in zip(layer.parameters(), layers[0].parameters(), strict=True):
            torch.testing.assert_close(p, q)
        torch.testing.assert_close(layer(x), layers[0](x), rtol=1e-4, atol=1e-5)


def test_directions_cover_the_whole_circle_and_sphere():
    assert initial_directions(5, 1)[:, 0].tolist() == [1, -1, 1, -1, 1]
    for num_axes in (2, 3):
        directions = initial_directions(64, num_axes)
        torch.testing.assert_close(directions.norm(dim=-1), torch.ones(64))
        assert directions.mean(0).norm() < 0.1
        covariance = directions.T @ directions / 64
        assert (covariance - torch.eye(num_axes) / num_axes).abs().max() < 0.1
    assert (initial_directions(64, 2, half_circle=True)[:, 1] >= 0).all()


def test_the_bank_mixes_short_and_long_still_and_oscillating_modes():
    response = initial_responses(64, field=64)
    decay = response["scale"] / response["damping"]
    assert decay.min() < 1.2
    assert decay.max() > 52
    assert ((decay > 8).float().mean() - 0.5).abs() < 0.1
    frequency = (response["oscillation"] / response["scale"]).abs()
    assert 0.15 < (frequency == 0).float().mean() < 0.35
    assert 1.4 < frequency.max() <= math.pi / 2
    # Length, frequency and direction are independent of each other.
    table = torch.stack([decay.log(), frequency])
    assert torch.corrcoef(table)[0, 1].abs() < 0.25


def test_reset_parameters_follows_the_generator():
    layer = SonicConv2d(3, 4, num_modes=5)
    first, second = [], []
    for store in (first, second):
        layer.reset_parameters(torch.Generator().manual_seed(7))
        store.extend(p.clone() for p in layer.parameters())
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_meta_layers_wait_for_their_device():
    layers = [SonicConv2d(3, 4, num_modes=5, device="meta")]
    with torch.device("meta"):
        layers.append(SonicConv2d(3, 4, num_modes=5, spacing=(2.0, 0.5)))
    for layer in layers:
        layer = layer.to_empty(device="cpu")
        layer.reset_parameters()
        assert torch.isfinite(layer(torch.randn(1, 3, 8, 8))).all()


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_a_stack_of_32_blocks_stays_within_an_order_of_magnitude(num_axes):
    torch.manual_seed(0)
    x = torch.randn(2, 16, *GRIDS[num_axes])
    start = x.std()
    with torch.no_grad():
        for _ in range(32):
            layer = LAYERS[num_axes](16, 16, num_modes=8)
            x = torch.relu(nn.functional.group_norm(layer(x), 4) + x)
            assert torch.isfinite(x).all()
    assert 0.1 < x.std() / start < 10


def test_extreme_parameters_give_finite_output_and_gradients():
    for scale in (1e-6, 1.0, 1e6):
        layer = make_layer(2, dtype=torch.float32)
        for value in (-200.0, -20.0, 20.0, 200.0):
            with torch.no_grad():
                for p in layer.mode_parameters()[1:5]:
                    p.fill_(value)
            layer.zero_grad()
            x = torch.randn(1, 3, 8, 9, requires_grad=True)
            y = layer(x, spacing=scale)
            y.square().mean().backward()
            assert torch.isfinite(y).all()
            assert all(torch.isfinite(p.grad).all() for p in [x, *layer.parameters()])  # type: ignore[arg-type]
