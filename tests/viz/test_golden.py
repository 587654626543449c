"""Figures look as they did when somebody last looked at them."""

import pytest

from tests.viz.golden import FIGURES, differences, field, is_like, modes, render, stages, stored, sweep
from torchsonic import viz

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


@pytest.mark.parametrize("name", FIGURES)
def test_figures_look_as_stored(name):
    drawn, kept = render(FIGURES[name]()), stored(name)
    assert is_like(drawn, kept), f"differences {differences(drawn, kept)}; look at it: python -m tests.viz.golden"


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("sweep", lambda: sweep(damping=0.2)),
        ("sweep", lambda: sweep(transverse=0.5)),
        ("modes_2d", lambda: modes_of_another_seed()),
        ("modes_2d", lambda: modes_upside_down()),
        ("stages", lambda: stages(1)),
        ("field", lambda: field(reach=3.5)),
    ],
)
def test_another_picture_is_not_taken_for_it(name, draw):
    assert not is_like(render(draw()), stored(name))


def test_a_style_of_the_users_changes_nothing():
    from matplotlib import rc_context

    with rc_context({"font.size": 30, "image.cmap": "jet", "axes.facecolor": "red"}):
        drawn = render(sweep())
    assert is_like(drawn, stored("sweep"))


def modes_of_another_seed():
    import torch

    import torchsonic

    torch.manual_seed(1)
    return viz.draw_modes(torchsonic.SonicConv2d(2, 3, num_modes=6), count=4, samples=33)


def modes_upside_down():
    """Kernels with the other sign: the same shapes in other colours."""
    from unittest.mock import patch

    from torchsonic.viz.lattice import mode_beams

    with patch("torchsonic.viz.modes.mode_beams", lambda *arguments: -mode_beams(*arguments)):
        return modes()
