"""The released initial modes have the values that the facts about the released code name, in every unit and depth."""

import math

import pytest
import torch

import torchsonic
from torchsonic.nn import sonic_layers

AXES = {2: torchsonic.SonicConv2d, 3: torchsonic.SonicConv3d}


def released(num_axes, depth=0.0, **options):
    torch.manual_seed(0)
    options = {"variant": "paper", "dtype": torch.float64, "bias": False, **options}
    return AXES[num_axes](4, 6, num_modes=400, bank={"released": depth}, **options)


@pytest.mark.parametrize("num_axes", AXES)
@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_responses_have_the_released_values_of_their_depth(num_axes, depth):
    spacing = (3.0, 1.0, 0.5)[:num_axes]
    layer = released(num_axes, depth, spacing=spacing)
    modes = layer.reference_operator().modes
    damping = {0.0: 0.2, 0.5: 0.2 * math.sqrt(10), 1.0: 2.0}[depth]
    tau = 0.9 * {0.0: 0.2, 0.5: 0.2 * math.sqrt(0.05), 1.0: 0.01}[depth] + 0.1 / (num_axes * math.pi**2)
    for found, value in ((modes.scale, math.pi / 2 / 3), (-modes.pole.real, damping), (modes.transverse, tau)):
        raw, centre = torch.log(torch.expm1(found)), math.log(math.expm1(value))
        assert raw.mean().item() == pytest.approx(centre, abs=0.01 * abs(centre))
        assert raw.std().item() == pytest.approx(0.03 * abs(centre), rel=0.15)
    assert not modes.pole.imag.any()
    assert layer.oscillation_limit == 1


@pytest.mark.parametrize("num_axes", AXES)
def test_mixing_has_unit_norms(num_axes):
    modes = released(num_axes).reference_operator().modes
    torch.testing.assert_close(modes.mix_in.abs().square().sum(1), torch.ones(400, dtype=torch.float64))
    torch.testing.assert_close(modes.mix_out.abs().square().sum(0), torch.ones(400, dtype=torch.float64))


def test_directions_are_even_on_the_half_circle_where_y_is_positive():
    v_y, v_x = released(2).raw_direction.T  # array order
    angle = torch.atan2(v_y, v_x)
    even = math.pi * torch.arange(1, 401) / 401
    assert (torch.remainder(angle - even + math.pi, 2 * math.pi) - math.pi).std().item() == pytest.approx(0.05, rel=0.1)


def test_directions_of_volumes_are_a_hemisphere():
    direction = released(3).raw_direction
    assert (direction[:, 0] > -0.2).all()
    assert direction[:, 0].mean().item() == pytest.approx(0.5, abs=0.02)  # even in height
    assert direction[:, 1:].mean(0).abs().max() < 0.02


def test_networks_give_each_layer_the_bank_of_its_depth_in_pixels_of_its_own():
    for name, options in (("sonicnet3d.paper", {"num_modes": 8}), ("resnet50_sonic.paper", {"depths": (1, 1, 1, 1)})):
        layers = [layer for _, layer in sonic_layers(torchsonic.create_model(name, **options))]
        assert {layer.variant for layer in layers} == {"paper"}
        assert [layer.bank["released"] for layer in layers] == pytest.approx([0, 1 / 3, 2 / 3, 1])
        for layer, damping in zip(layers, (0.2, 0.431, 0.928, 2.0), strict=True):
            modes = layer.reference_operator().modes
            assert -modes.pole.real.mean().item() == pytest.approx(damping, rel=0.05)
            assert (modes.scale / layer.reference_spacing[0]).mean().item() == pytest.approx(math.pi / 2, rel=0.05)


def test_classifiers_take_features_as_they_are_and_the_other_presets_standardise_them():
    for name, standardise in (("resnet50_sonic", False), ("sonicnet3d", True), ("synthshape_sonicnet", True)):
        with torch.device("meta"):
            model = torchsonic.create_model(f"{name}.paper")
        assert {layer.standardise for _, layer in sonic_layers(model)} == {standardise}, name


def test_the_shapes_script_gives_all_layers_the_first_ones_values():
    model = torchsonic.create_model("synthshape_sonicnet.paper")
    assert [layer.bank for _, layer in sonic_layers(model)] == [{"released": 0.0}] * 4
    assert {layer.variant for _, layer in sonic_layers(model)} == {"paper"}


def test_a_name_is_the_bank_of_a_first_layer_and_a_seed_repeats_it():
    for bank in ("released", {"released": 0.0}):
        torch.manual_seed(3)
        layer = torchsonic.SonicConv2d(2, 2, num_modes=4, bank=bank)
        assert layer.bank == {"released": 0.0}
        again = torchsonic.SonicConv2d(2, 2, num_modes=4, bank="released")
        for one in (layer, again):
            one.reset_parameters(torch.Generator().manual_seed(5))
        assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), again.parameters(), strict=True))


def test_what_has_no_released_bank_is_refused():
    with pytest.raises(ValueError, match="bank 'released' is for images and volumes and takes no field, got 1-D"):
        torchsonic.SonicConv1d(2, 2, bank="released")
    with pytest.raises(ValueError, match="got field=32; use another bank"):
        torchsonic.SonicConv2d(2, 2, bank="released", field=32)
    with pytest.raises(ValueError, match=r"bank\['released'\] must be a depth from 0 to 1 and the only setting"):
        torchsonic.SonicConv2d(2, 2, bank={"released": 2.0})
    with pytest.raises(TypeError, match="bank must be 'released' or a mapping"):
        torchsonic.SonicConv2d(2, 2, bank="wide")
