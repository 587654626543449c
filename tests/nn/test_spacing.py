import pytest
import torch
from torch import nn

import torchsonic
from tests.layers import make_layer
from torchsonic.testing import band_limited_field, relative_error


def test_set_spacing_equals_passing_it():
    layer = make_layer(2)
    x = torch.randn(2, 3, 6, 7, dtype=torch.float64)
    expected = layer(x, spacing=(0.5, 2.0))
    torchsonic.set_spacing(layer, (0.5, 2.0))
    assert layer.spacing == (0.5, 2.0)
    torch.testing.assert_close(layer(x), expected)
    per_sample = torch.tensor([[0.5, 2.0], [1.0, 1.0]])
    torchsonic.set_spacing(layer, per_sample)
    torch.testing.assert_close(layer(x), layer(x, spacing=per_sample))


def test_layers_behind_strides_see_the_strided_spacing():
    model = nn.Sequential(make_layer(2, stride=2), nn.Conv2d(4, 3, 2, 2, dtype=torch.float64), make_layer(2))
    torchsonic.infer_strides(model, torch.zeros(1, 3, 32, 64, dtype=torch.float64))
    assert model.training
    assert model[2].input_stride == (4.0, 4.0)
    torchsonic.set_spacing(model, (1.0, 0.25))
    assert model[0].spacing == (1.0, 0.25)
    assert model[2].spacing == (4.0, 1.0)


def test_a_stack_of_layers_told_the_spacing_ignores_the_sampling():
    torch.manual_seed(0)
    model = nn.Sequential(make_layer(2, stride=2), make_layer(2, (4, 3), seed=1), make_layer(2, stride=2, seed=2))
    torchsonic.infer_strides(model, torch.zeros(1, 3, 32, 32, dtype=torch.float64))
    coarse = torchsonic.set_spacing(model, 1.0)(band_limited_field((32, 32), 3, 3))
    fine = torchsonic.set_spacing(model, 0.5)(band_limited_field((64, 64), 3, 3))
    assert relative_error(torchsonic.functional.resample(fine, coarse.shape[2:]), coarse) < 1e-11


def test_telling_a_strided_model_its_reference_spacing_changes_nothing():
    model = nn.Sequential(make_layer(2, stride=2), make_layer(2, (4, 3), seed=1))
    x = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    expected = model(x)
    for _ in range(2):  # finding strides again changes nothing either
        torchsonic.infer_strides(model, x)
        torch.testing.assert_close(model(x), expected)
        torch.testing.assert_close(torchsonic.set_spacing(model, 1.0)(x), expected)


def test_responses_kept_before_strides_were_found_are_not_used():
    model = nn.Sequential(make_layer(2, stride=2), make_layer(2, (4, 3), seed=1)).eval()
    x = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    torchsonic.infer_strides(model, x)
    torchsonic.set_spacing(model, 0.5)
    with torch.no_grad():
        kept = model(x)
    torch.testing.assert_close(kept, model(x).detach())


def test_forgotten_strides_are_warned_of():
    model = nn.Sequential(make_layer(2, stride=2), make_layer(2, (4, 3), seed=1))
    with pytest.warns(UserWarning, match="call infer_strides"):
        torchsonic.set_spacing(model, 2.0)


def test_a_layer_at_two_strides_is_refused():
    layer = make_layer(2, (3, 3))
    model = nn.Sequential(layer, nn.AvgPool2d(2), layer)
    with pytest.raises(ValueError, match="called at strides"):
        torchsonic.infer_strides(model, torch.zeros(1, 3, 8, 8, dtype=torch.float64))
    assert layer.input_stride == (1.0, 1.0)


def test_errors_name_the_layer_and_the_remedy():
    with pytest.raises(ValueError, match="this Linear has no layer that uses the spacing; resample"):
        torchsonic.set_spacing(nn.Linear(2, 2), 1.0)
    model = nn.Sequential(make_layer(2))
    with pytest.raises(ValueError, match="does not fit layer '0'"):
        torchsonic.set_spacing(model, (1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="positive"):
        torchsonic.set_spacing(model, -1.0)


@pytest.mark.parametrize("spacing", [-1.0, (1.0, float("nan")), torch.tensor([[1.0, 1.0], [1.0, -2.0]])])
def test_compiled_layers_refuse_an_impossible_spacing(spacing):
    torch._dynamo.reset()
    compiled = torch.compile(torchsonic.SonicConv2d(2, 3, num_modes=2), fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match="spacing must be positive and finite"):
        compiled(torch.randn(2, 2, 6, 5), spacing)
