"""The page draws in the colours of the figures."""

import re
from importlib import resources

import numpy as np
import pytest

from torchsonic.viz.style import MAGNITUDE, SIGNED


@pytest.mark.parametrize(("name", "figures"), [("heat", MAGNITUDE), ("signed", SIGNED)])
def test_maps_of_the_page_are_those_of_the_figures(name, figures):
    colormaps = pytest.importorskip("matplotlib", reason="matplotlib is not installed").colormaps
    script = resources.files("torchsonic.explorer").joinpath("page", "pictures.js").read_text()
    (stops,) = re.findall(rf"^  {name}: \[(.*)\],$", script, flags=re.MULTILINE)
    drawn = np.array([[int(stop[i : i + 2], 16) for i in (0, 2, 4)] for stop in re.findall(r"#(\w{6})", stops)])
    expected = 255 * colormaps[figures](np.linspace(0, 1, len(drawn)))[:, :3]
    assert np.abs(drawn - expected).max() <= 2
