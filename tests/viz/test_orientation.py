"""Roses point where modes point."""

import math

import pytest
import torch

from tests.layers import make_layer
from torchsonic import SonicOrbitConv2d, viz


@pytest.mark.parametrize(("direction", "angle"), [((0, 1), 0), ((1, 0), 90), ((0, -1), 180), ((-1, 0), 270)])
def test_a_mode_on_an_axis_points_to_it(direction, angle):
    layer = make_layer(2, num_modes=1)
    with torch.no_grad():
        layer.raw_direction.copy_(torch.tensor([direction]))
    angles, weights = viz.layer_orientation(layer, bins=8)
    assert math.degrees(float(angles[weights.argmax()])) == pytest.approx(angle)
    assert int((weights > 0).sum()) == 1


def test_weights_are_kept():
    layer = make_layer(2, num_modes=50)
    assert float(viz.layer_orientation(layer)[1].sum()) == pytest.approx(float(viz.peak_gains(layer).sum()))
    by_energy = viz.layer_orientation(layer, weight="energy")[1]
    assert float(by_energy.sum()) == pytest.approx(float(viz.mode_energies(layer).sum()))


def test_the_middle_of_a_sector_is_an_axis():
    turned = torch.tensor([[math.sin(t), math.cos(t)] for t in (-0.2, 0.0, 0.2)])
    assert viz.orientation_histogram(turned, torch.ones(3), bins=8)[1].tolist() == [3, 0, 0, 0, 0, 0, 0, 0]


def test_a_rose_of_an_orbit_has_its_rotations():
    torch.manual_seed(0)
    layer = SonicOrbitConv2d(2, 16, num_modes=3, group="C16", lift=True)
    with torch.no_grad():
        layer.raw_direction.normal_()
    bars = torch.tensor([bar.get_height() for bar in viz.draw_rose(layer).axes[0].patches])
    torch.testing.assert_close(bars, bars.roll(len(bars) // 16))


def test_planes_of_a_volume_share_a_mode():
    layer = make_layer(3, num_modes=1)
    total = sum(float(viz.layer_orientation(layer, plane)[1].sum()) for plane in ((1, 2), (0, 2), (0, 1)))
    assert total == pytest.approx(2 * float(viz.peak_gains(layer)))  # each axis is in two planes


def test_an_unknown_weight_is_refused():
    with pytest.raises(ValueError, match="weight"):
        viz.layer_orientation(make_layer(2), weight="loudness")
