"""Figures of every kind can be drawn for every number of axes, with units, and without windows."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch

import torchsonic
from tests.layers import make_layer
from torchsonic import viz
from torchsonic.viz.progress import take_snapshot

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
SAMPLES = {1: 33, 2: 15, 3: 7}


def texts(figure):
    """All words in a figure."""
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


@pytest.mark.parametrize("num_axes", [1, 2, 3])
@pytest.mark.parametrize("draw", [viz.draw_modes, viz.draw_mixed, viz.draw_stages])
def test_axes_carry_physical_units(draw, num_axes):
    figure = draw(make_layer(num_axes, spacing=0.5), samples=SAMPLES[num_axes], unit="mm")
    words = texts(figure)
    assert any("rad/mm" in word for word in words)
    assert not any("px" in word for word in words)
    figure.canvas.draw()


def test_the_last_frequency_shown_is_below_nyquist_of_the_spacing():
    figure = viz.draw_mixed(make_layer(2, spacing=0.5), outputs=[0], inputs=[0], samples=15)
    left, right = figure.axes[0].get_xlim()
    assert right == pytest.approx(torch.pi / 0.5)
    assert left == -right


def test_names_of_nested_layers_fit_into_the_figure():
    model = torchsonic.create_model("synthshape_orbitnet")  # backbone.features.blocks.0.operator and so on
    rose, stages = viz.draw_rose(model), viz.draw_stages(model, samples=17)
    for figure in (rose, stages):
        figure.canvas.draw()
    (legend,) = rose.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= rose.bbox.x1
    boxes = [panel.title.get_window_extent() for panel in stages.subfigs[0].axes if panel.get_title()]
    assert len(boxes) == 4
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_roses_and_snapshots_are_drawn(num_axes):
    model = torch.nn.Sequential(*[make_layer(num_axes, (3, 3)) for _ in range(2)])
    viz.draw_rose(model, weight="energy").canvas.draw()
    figure = viz.draw_snapshot(take_snapshot(model[0], 7, samples=SAMPLES[num_axes]), longest=64.0, fastest=2.0)
    figure.canvas.draw()
    assert any("step 7" in word for word in texts(figure))


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_receptive_fields_are_drawn_side_by_side(num_axes):
    layer = make_layer(num_axes, dtype=torch.float32)
    x = torch.randn(1, 3, *[9] * num_axes)
    fields = {"Sonic": viz.receptive_field(layer, x), "conv": viz.receptive_field(viz.convolution_twin(layer), x)}
    figure = viz.draw_receptive_fields(fields, unit="mm")
    figure.canvas.draw()
    assert {"Sonic", "conv"} <= set(texts(figure))
    rows_and_columns = figure.axes[0].get_subplotspec().get_gridspec().get_geometry()
    assert rows_and_columns == ((2, 3) if num_axes == 3 else (1, 2))


def test_layers_behind_strides_are_told_apart_and_those_left_out_are_counted():
    layers = [torchsonic.SonicConv1d(1, 1, num_modes=8, spacing=2.0 ** (place / 4)) for place in range(17)]
    many, few = viz.draw_stages(torch.nn.Sequential(*layers)), viz.draw_stages(torch.nn.Sequential(*layers[:4]))
    assert any("16 of 17 layers" in word for word in texts(many))
    assert [figure.axes[0].get_xscale() for figure in (many, few)] == ["log", "linear"]


def test_sweeps_show_the_knob_that_is_turned():
    low, high = (
        viz.plane_mode_pictures(viz.PlaneMode(angle=angle), viz.Lattice((33, 33), (1.0, 1.0)))[1] for angle in (0, 90)
    )
    torch.testing.assert_close(low.mT.flip(0), high)  # to the right, and up
    figure = viz.draw_sweep(values={"damping": [0.5, 0.1]}, kind="surface", size=15, unit="mm")
    assert "0.5" in texts(figure)
    surface, kernel = figure.axes[:2]
    assert surface.get_xlabel() == r"$\omega_{x}$ (rad/mm)"
    assert surface.get_ylabel() == r"$\omega_{y}$ (rad/mm)"
    assert (kernel.get_xlabel(), kernel.get_ylabel()) == ("$x$ (mm)", "$y$ (mm)")


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_a_layer_that_lets_nothing_through_is_drawn_without_holes(num_axes):
    layer = make_layer(num_axes)
    with torch.no_grad():
        layer.mix_out.zero_()
    snapshot = viz.draw_snapshot(take_snapshot(layer, 0, samples=SAMPLES[num_axes]), longest=64.0, fastest=2.0)
    stages = viz.draw_stages(layer, samples=SAMPLES[num_axes])
    modes = viz.draw_modes(layer, samples=SAMPLES[num_axes])
    for figure in (snapshot, stages, modes):
        figure.canvas.draw()
        assert not any("nan" in word for word in texts(figure))
    for figure in (snapshot, stages):
        for image in (image for panel in figure.axes for image in panel.images):
            assert not np.ma.getmaskarray(image.get_array()).any()
            assert np.isfinite(image.get_array()).all()


def test_a_layer_without_numbers_is_refused_by_its_name():
    model = torch.nn.Sequential(make_layer(2, (3, 3)), make_layer(2, (3, 3)))
    with torch.no_grad():
        model[1].mix_in[0] = torch.nan
    with pytest.raises(ValueError, match="layer 1 has modes that are not finite"):
        viz.draw_stages(model)


def test_no_window_and_no_state_of_pyplot():
    code = (
        "import sys, torchsonic, torchsonic.viz as viz; assert 'matplotlib' not in sys.modules; "
        "viz.draw_rose(torchsonic.SonicConv2d(1, 1)); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=None)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: viz.draw_sweep(values={"colour": [1]}), "values"),
        (lambda: viz.draw_sweep(values={"angle": []}), "angle"),
        (lambda: viz.draw_sweep(kind="cloud"), "kind"),
        (lambda: viz.draw_sweep(size=64), "odd"),
        (lambda: viz.PlaneMode(damping=-0.1), "positive"),
        (lambda: viz.PlaneMode(scale=0.0), "scale"),
        (lambda: viz.draw_slices(torchsonic.SonicConv2d(1, 1)), "draw_modes"),
        (lambda: viz.draw_mixed(torchsonic.SonicConv2d(1, 2), outputs=[2], inputs=[0]), "from 0 to 1"),
        (lambda: viz.draw_modes(torchsonic.SonicConv2d(1, 1), count=0), "count"),
        (lambda: viz.draw_stages(torch.nn.Conv2d(1, 1, 3)), "no Sonic layer"),
        (lambda: viz.draw_rose(torch.nn.Conv2d(1, 1, 3)), "no Sonic layer"),
        (lambda: viz.draw_rose(torchsonic.SonicConv2d(1, 1), weight="loudness"), "weight"),
        (lambda: viz.draw_rose(torchsonic.SonicConv1d(1, 1), weight="loudness"), "weight"),
        (lambda: viz.draw_rose(torchsonic.SonicConv1d(1, 1), bins=12), "bins"),
        (lambda: viz.draw_rose(torchsonic.SonicConv2d(1, 1), bins=3), "bins"),
        (lambda: viz.draw_receptive_fields({}), "at least one"),
    ],
)
def test_mistakes_are_named(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()
