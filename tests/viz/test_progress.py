"""Animations show the weights that a run kept."""

import math

import pytest
import torch

import torchsonic
from torchsonic import viz

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def make_weights(model, count):
    for step in range(count):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        state["0.raw_damping"] += 0.5 * step
        yield 10 * step, state


def test_snapshots_are_those_of_the_weights():
    model = torch.nn.Sequential(torchsonic.SonicConv2d(2, 2, num_modes=4))
    before = model[0].raw_damping.detach().clone()
    taken = list(viz.take_snapshots(model, make_weights(model, 3), samples=9))
    assert [snapshot.step for snapshot in taken] == [0, 10, 20]
    torch.testing.assert_close(taken[0].length, viz.decay_lengths(model[0]))
    assert (taken[2].length < taken[1].length).all()  # more damping, shorter modes
    assert torch.equal(model[0].raw_damping, before)


def dots(figure):
    """Places of the modes in the first panel of a frame."""
    return torch.as_tensor(figure.axes[0].collections[0].get_offsets().data)


def one_mode(direction, length):
    """A frame of one mode on a lattice with pixels of 1."""
    axes = len(direction)
    lattice = viz.Lattice((5,) * axes, (1.0,) * axes)
    one = torch.ones(1, dtype=torch.float64)
    directions = torch.tensor([direction], dtype=torch.float64)
    snapshot = viz.Snapshot(0, directions, length * one, one, one, torch.ones((5,) * axes).double(), lattice)
    return viz.draw_snapshot(snapshot, longest=64.0, fastest=2.0)


def test_a_mode_of_a_volume_stands_as_far_out_as_it_reaches_in_the_plane():
    """Of 32 pixels along (0.8, 0, 0.6) 19.2 lie in the plane; nothing shorter than half a pixel is told apart."""
    angle, radius = dots(one_mode((0.8, 0.0, 0.6), 32.0))[0].tolist()
    assert angle == pytest.approx(0)
    assert radius == pytest.approx(math.log2(0.6 * 32 / 0.5))
    assert dots(one_mode((1.0, 0.0, 0.0), 32.0))[0, 1] == 0


def test_the_middle_of_signed_lengths_is_half_a_pixel():
    figure = one_mode((-1.0,), 8.0)
    ticks = dict(
        zip(figure.axes[0].get_xticks(), [t.get_text() for t in figure.axes[0].get_xticklabels()], strict=True)
    )
    assert ticks[0] == "±0.5"
    assert dots(figure)[0, 0] == pytest.approx(-math.log2(8 / 0.5))


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_an_animation_has_a_frame_for_each_step(suffix, tmp_path):
    from PIL import Image

    model = torch.nn.Sequential(torchsonic.SonicConv2d(2, 2, num_modes=4))
    path = viz.write_animation(
        tmp_path / f"modes{suffix}", viz.take_snapshots(model, make_weights(model, 3), samples=9)
    )
    with Image.open(path) as image:
        assert image.n_frames == 3
        first = image.convert("L").tobytes()
        image.seek(2)
        assert image.convert("L").tobytes() != first


def test_mistakes_are_named(tmp_path):
    model = torch.nn.Sequential(torchsonic.SonicConv2d(2, 2, num_modes=4))
    with pytest.raises(ValueError, match=r"\.gif or \.webp"):
        viz.write_animation(tmp_path / "modes.mp4", [])
    with pytest.raises(ValueError, match="keep-every"):
        viz.write_animation(tmp_path / "modes.gif", [])
    with pytest.raises(ValueError, match="layer must be one of 0"):
        list(viz.take_snapshots(model, [], layer="1"))
