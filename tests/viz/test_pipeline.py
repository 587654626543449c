"""The steps of a layer are those of the layer: their last is its output."""

import pytest
import torch

import torchsonic
from torchsonic import viz

LAYERS = {2: torchsonic.SonicConv2d, 3: torchsonic.SonicConv3d}


@pytest.mark.parametrize(("num_axes", "size"), [(2, (15, 17)), (3, (5, 9, 7))])
@pytest.mark.parametrize("options", [{}, {"standardise": "channel"}, {"limits": {"magnitude": 0.5}}])
def test_the_product_of_response_and_spectrum_is_the_outputs_spectrum(num_axes, size, options):
    layer = LAYERS[num_axes](3, 2, num_modes=5, bias=False, spacing=(1.5, 1.0, 0.5)[:num_axes], dtype=torch.float64)
    layer = layer if not options else LAYERS[num_axes](3, 2, num_modes=5, bias=False, dtype=torch.float64, **options)
    x = torch.randn(3, *size, dtype=torch.float64)
    y, total = layer(x[None])[0].detach(), 0
    for k in range(2):
        for c in range(3):
            steps = viz.layer_pipeline(layer, x, output=k, input=c)
            torch.testing.assert_close(steps.y, y[k], rtol=1e-9, atol=1e-10)
            total = total + steps.response * steps.spectrum
        torch.testing.assert_close(total, steps.product)
        torch.testing.assert_close(torch.fft.fftshift(torch.fft.fftn(y[k])), steps.product, rtol=1e-8, atol=1e-8)
        total = 0


def test_even_sizes_are_cut_to_odd_ones():
    layer = torchsonic.SonicConv2d(2, 2, num_modes=4)
    steps = viz.layer_pipeline(layer, torch.randn(2, 16, 9))
    assert {part.shape for part in steps[:5]} == {(15, 9)}


def test_inputs_are_what_the_layers_hear_and_the_model_stays_as_it_is():
    model = torchsonic.create_model("synthshape_sonicnet", width=8, depth=2, backbone_options={"num_modes": 4}).train()
    image = torch.randn(1, 3, 12, 12)
    inputs = viz.layer_inputs(model, image)
    assert model.training
    assert not any(layer._forward_pre_hooks for _, layer in torchsonic.nn.sonic_layers(model))
    assert list(inputs) == ["backbone.0.operator", "backbone.1.operator"]
    torch.testing.assert_close(inputs["backbone.0.operator"], model.project(image)[0].detach())


def test_figures_have_a_row_for_each_layer_and_five_steps():
    model = torchsonic.create_model("synthshape_sonicnet", width=8, depth=5, backbone_options={"num_modes": 4})
    image = torch.randn(1, 3, 12, 12)
    assert len(viz.draw_pipeline(model, image).axes) == 4 * 5
    figure = viz.draw_pipeline(model, image, layers=["backbone.1.operator"])
    assert figure.axes[0].get_ylabel() == "backbone.1.operator"
    volume = torchsonic.SonicConv3d(1, 2, num_modes=4)
    assert len(viz.draw_pipeline(volume, torch.randn(1, 1, 4, 6, 6)).axes) == 5


def test_mistakes_are_named():
    layer = torchsonic.SonicConv2d(2, 2, num_modes=4)
    with pytest.raises(ValueError, match=r"x must have the shape \(2, N, N\), each N at least 3, got \(3, 8, 8\)"):
        viz.layer_pipeline(layer, torch.randn(3, 8, 8))
    with pytest.raises(ValueError, match="layers must be from SonicConv2d, got 'first'"):
        viz.draw_pipeline(layer, torch.randn(1, 2, 8, 8), layers=["first"])
    with pytest.raises(ValueError, match="SonicConv1d is a layer for signals"):
        viz.draw_pipeline(torchsonic.SonicConv1d(2, 2), torch.randn(1, 2, 8))
    with pytest.raises(ValueError, match="models must be for images or volumes, but 'one' is for signals"):
        viz.draw_stages_beside({"one": torchsonic.SonicConv1d(2, 2)})


def test_networks_stand_beside_each_other_whatever_their_axes_and_depth():
    shapes = torchsonic.create_model("synthshape_sonicnet", width=8, backbone_options={"num_modes": 4})
    volume = torchsonic.SonicConv3d(1, 2, num_modes=4, spacing=(3.0, 1.0, 1.0))
    figure = viz.draw_stages_beside({"shapes": shapes, "heart": volume}, samples=9, units={"heart": "mm"})
    shown = [panel for panel in figure.axes if panel.axison and panel.get_title()]
    assert len(shown) == 4 + 1
    assert shown[0].get_ylabel().startswith("shapes")
    assert "rad/mm" in shown[4].get_xlabel()
    assert "rad/px" in shown[0].get_xlabel()
