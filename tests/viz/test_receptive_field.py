"""Receptive fields of networks whose fields are known."""

import pytest
import torch
from torch import nn

import torchsonic
from torchsonic import viz


def test_a_3x3_convolution_sees_3x3_pixels_by_its_weights():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    field = viz.receptive_field(conv, torch.randn(2, 2, 11, 11))
    seen = field.values > 0
    assert seen.nonzero().min(0).values.tolist() == [4, 4]
    assert int(seen.sum()) == 9
    expected = conv.weight.detach().square().sum((0, 1)).sqrt()
    torch.testing.assert_close(field.values[4:7, 4:7], expected)


def test_a_stack_of_convolutions_sees_as_far_as_it_can():
    stack = nn.Sequential(*[nn.Conv1d(1, 1, 3, padding=1) for _ in range(4)])
    field = viz.receptive_field(stack, torch.randn(1, 1, 31), spacing=0.5)
    assert field.reach(1.0) == pytest.approx(4 * 0.5)
    assert float(field.share_beyond(torch.tensor([2.0]))) == 0.0


def test_a_sonic_layer_sees_by_its_kernel():
    layer = torchsonic.SonicConv2d(2, 3, num_modes=4)
    field = viz.receptive_field(layer, torch.randn(1, 2, 12, 12), place=(0, 0))
    kernel = layer.kernel(12).detach().square().sum((0, 1)).sqrt()
    torch.testing.assert_close(field.values, kernel[[-i for i in range(12)]][:, [-i for i in range(12)]])
    assert field.place == (0, 0)


def test_many_channels_are_estimated_without_bias():
    conv = nn.Conv2d(1, 400, 3, padding=1)
    field = viz.receptive_field(conv, torch.randn(1, 1, 5, 5))
    expected = conv.weight.detach().square().sum((0, 1)).sqrt()
    torch.testing.assert_close(field.values[1:4, 1:4], expected, rtol=0.4, atol=0)
    assert float((field.values[1:4, 1:4] / expected).mean()) == pytest.approx(1, abs=0.15)


def test_behind_a_stride_the_place_is_that_of_the_input():
    field = viz.receptive_field(nn.Conv2d(1, 1, 3, stride=2, padding=1), torch.randn(1, 1, 16, 16))
    assert field.place == (8, 8)
    assert float(field.values.sum()) == pytest.approx(float(field.values[7:10, 7:10].sum()))


def test_shares_and_reach_agree():
    values = torch.zeros(9)
    values[[0, 4]] = torch.tensor([1.0, 3.0])
    field = viz.ReceptiveField(values, (4,), (2.0,))
    assert field.share_beyond(torch.tensor([0.0, 7.9, 8.0])).tolist() == pytest.approx([0.1, 0.1, 0.0])
    assert field.reach(0.9) == 0.0
    assert field.reach(0.95) == 8.0


def test_the_mode_of_a_model_and_its_weights_stay_as_they_are():
    model = nn.Sequential(nn.Conv1d(1, 2, 3, padding=1), nn.BatchNorm1d(2)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    viz.receptive_field(model, torch.randn(1, 1, 8))
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_classifier_is_measured_before_its_mean():
    model = torchsonic.create_model("sonic_tiny", num_classes=3, widths=(8, 8), depths=(1, 1))
    field = viz.receptive_field(model, torch.randn(1, 3, 32, 32))
    assert field.values.shape == (32, 32)
    assert field.place == (16, 16)
    twin = viz.receptive_field(viz.convolution_twin(model), torch.randn(1, 3, 32, 32))
    assert twin.values.shape == (32, 32)


def test_a_classifier_that_knows_no_spacing_is_measured_all_the_same():
    model = torchsonic.create_model("resnet50", num_classes=3, width=8).eval()
    x = torch.randn(1, 3, 64, 64)
    told = viz.receptive_field(model, x, spacing=0.5)
    assert torch.equal(told.values, viz.receptive_field(model, x).values)
    assert told.spacing == (0.5, 0.5)
    tokens = torchsonic.create_model("vit_s16", num_classes=3)
    with pytest.raises(ValueError, match="needs an output with spatial axes"):
        viz.receptive_field(tokens, torch.randn(1, 3, 32, 32), spacing=0.5)


def test_a_spacing_that_would_not_be_heard_is_refused():
    chain = nn.Sequential(torchsonic.SonicConv2d(1, 2, num_modes=4))
    with pytest.raises(ValueError, match="set_spacing"):
        viz.receptive_field(chain, torch.randn(1, 1, 16, 16), spacing=0.5)
    told = viz.receptive_field(torchsonic.set_spacing(chain, 0.5), torch.randn(1, 1, 16, 16))
    torch.testing.assert_close(
        told.values, viz.receptive_field(chain[0], torch.randn(1, 1, 16, 16), spacing=0.5).values
    )


def test_a_network_without_places_is_refused():
    with pytest.raises(ValueError, match="before its mean"):
        viz.receptive_field(nn.Sequential(nn.Flatten(), nn.Linear(8, 2)), torch.randn(1, 1, 8))
    with pytest.raises(ValueError, match="place"):
        viz.receptive_field(nn.Conv1d(1, 1, 1), torch.randn(1, 1, 8), place=(8,))


def test_a_twin_differs_in_the_operator_alone():
    model = torchsonic.create_model("sonicnet2d", width=8, num_modes=4, depth=2, stride=2, norm="channel").eval()
    twin = viz.convolution_twin(model)
    assert not list(torchsonic.nn.sonic_layers(twin))
    assert list(torchsonic.nn.sonic_layers(model))
    x = torch.randn(1, 3, 16, 16)
    assert twin(x, spacing=1.0).shape == model(x, spacing=1.0).shape
    assert torch.equal(twin.head[-1].weight, model.head[-1].weight)
    with pytest.raises(ValueError, match="no Sonic layer"):
        viz.convolution_twin(nn.Conv2d(1, 1, 3))
