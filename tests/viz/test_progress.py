"""Animations show the weights that a run kept."""

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
    model = torch.nn.Sequential(torchsonic.SonicConv2d(2, 2, 4))
    before = model[0].raw_damping.detach().clone()
    taken = list(viz.take_snapshots(model, make_weights(model, 3), samples=9))
    assert [snapshot.step for snapshot in taken] == [0, 10, 20]
    torch.testing.assert_close(taken[0].length, viz.decay_lengths(model[0]))
    assert (taken[2].length < taken[1].length).all()  # more damping, shorter modes
    assert torch.equal(model[0].raw_damping, before)


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_an_animation_has_a_frame_for_each_step(suffix, tmp_path):
    from PIL import Image

    model = torch.nn.Sequential(torchsonic.SonicConv2d(2, 2, 4))
    path = viz.write_animation(
        tmp_path / f"modes{suffix}", viz.take_snapshots(model, make_weights(model, 3), samples=9)
    )
    with Image.open(path) as image:
        assert image.n_frames == 3
        first = image.convert("L").tobytes()
        image.seek(2)
        assert image.convert("L").tobytes() != first


def test_mistakes_are_named(tmp_path):
    model = torch.nn.Sequential(torchsonic.SonicConv2d(2, 2, 4))
    with pytest.raises(ValueError, match=r"\.gif or \.webp"):
        viz.write_animation(tmp_path / "modes.mp4", [])
    with pytest.raises(ValueError, match="keep-every"):
        viz.write_animation(tmp_path / "modes.gif", [])
    with pytest.raises(ValueError, match="layer must be one of 0"):
        list(viz.take_snapshots(model, [], layer="1"))
