import copy
import warnings

import pytest
import torch

import torchsonic
from tests.layers import make_layer
from torchsonic.functional import ResponseLimits
from torchsonic.models import SonicLayers
from torchsonic.nn import Execution, HybridConv, SonicBlock
from torchsonic.nn.conv import make_sonic

OLD = {
    "band_limit": (2, "limits", {"band_order": 2}),
    "magnitude_limit": (1.5, "limits", {"magnitude": 1.5}),
    "order": ("modes", "execution", {"order": "modes"}),
    "mode_chunk": (2, "execution", {"mode_chunk": 2}),
    "recompute": (True, "execution", {"recompute": True}),
}


def test_a_third_positional_argument_is_refused_with_its_value():
    for build in (HybridConv, SonicBlock, lambda *given: make_sonic(*given, spatial_dims=2)):
        with pytest.raises(TypeError, match=r"takes no kernel size.* pass num_modes=5$"):
            build(3, 8, 5)


@pytest.mark.parametrize("option", ["kernel_size", "dilation", "groups"])
def test_options_of_convolutions_are_refused_with_the_reason(option):
    with pytest.raises(TypeError, match=f"SonicConv2d has no option '{option}', since .*; leave it out"):
        torchsonic.SonicConv2d(4, 4, **{option: 3})
    with pytest.raises(TypeError, match=r"SonicConv2d has no option 'kernel'$"):
        torchsonic.SonicConv2d(4, 4, kernel=3)


def test_fields_of_groups_may_be_none_for_their_defaults():
    layer = make_layer(2, limits={"band_order": None, "magnitude": None}, execution={"order": None, "recompute": None})
    assert layer.limits == ResponseLimits()
    assert layer.execution == Execution()
    with pytest.raises(ValueError, match=r"execution.recompute must be one of None, False, True, got 'yes'"):
        make_layer(2, execution={"recompute": "yes"})


def test_orders_of_older_versions_are_translated_where_a_layer_is_built():
    with pytest.warns(FutureWarning, match="order='modes-modes' is now 'modes'; pass that"):
        layer = make_layer(2, execution={"order": "modes-modes"})
    assert layer.order == "modes"
    x = torch.randn(1, 3, 9, 8, dtype=torch.float64)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))


def test_groups_are_their_mappings():
    x = torch.randn(1, 3, 9, 8, dtype=torch.float64)
    for given in ({"band_order": 2, "magnitude": 0.7, "soft": True}, ResponseLimits(2, 0.7, True)):
        layer = make_layer(2, limits=given)
        assert layer.limits == ResponseLimits(2, 0.7, True)
        assert (layer.band_limit, layer.magnitude_limit, layer.soft_limit) == (2, 0.7, True)
        assert "limits={'band_order': 2, 'magnitude': 0.7, 'soft': True}" in repr(layer)
    for given in ({"mode_chunk": 2}, Execution(mode_chunk=2)):
        chunked = make_layer(2, execution=given)
        assert chunked.execution == Execution("auto", 2, None)
        assert "execution={'mode_chunk': 2}" in repr(chunked)
        torch.testing.assert_close(chunked(x), make_layer(2)(x))
    chunked.mode_chunk = 3
    assert chunked.execution.mode_chunk == 3
    assert copy.deepcopy(chunked).execution == chunked.execution


@pytest.mark.parametrize("old", OLD)
def test_an_old_keyword_works_and_names_its_replacement_once(old):
    value, group, fields = OLD[old]
    with pytest.warns(FutureWarning, match=f"{old}= is deprecated; pass {group}=") as seen:
        layers = [make_layer(2, **{old: value}) for _ in range(2)]
    assert len(seen) == 1
    assert getattr(layers[0], group) == getattr(make_layer(2, **{group: fields}), group)
    assert getattr(layers[0], old) == value
    with pytest.raises(TypeError, match=f"{old}={value!r} .*{group}"):
        make_layer(2, **{old: value, group: fields})


def test_an_old_keyword_may_say_that_there_is_none():
    with pytest.warns(FutureWarning) as seen:
        layer = make_layer(2, band_limit=None, magnitude_limit=None, soft_limit=False, mode_chunk=None)
    assert "band_limit= is deprecated; leave it out" in [str(warning.message) for warning in seen]
    assert not layer.limits.active
    assert layer.execution == Execution()


def test_saved_layers_and_networks_know_the_old_keywords(tmp_path):
    arguments = {"in_channels": 2, "out_channels": 3, "num_modes": 4, "spatial_dims": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layers = SonicLayers({"one": {**arguments, "band_limit": 4, "magnitude_limit": 2.0, "mode_chunk": 2}})
        loaded = torchsonic.from_pretrained(layers.save_pretrained(tmp_path / "layers"))
        assert loaded["one"].limits == ResponseLimits(4, 2.0)
        assert loaded["one"].mode_chunk == 2
        network = torchsonic.create_model("sonicnet2d", width=4, depth=1, num_modes=2, mode_chunk=1, recompute=False)
        loaded = torchsonic.from_pretrained(network.save_pretrained(tmp_path / "network"))
        assert loaded.blocks[0].operator.execution == Execution("auto", 1, False)


def test_groups_of_a_saved_layer_are_plain_text(tmp_path):
    arguments = {"in_channels": 2, "out_channels": 3, "spatial_dims": 2, "limits": ResponseLimits(1, 0.5)}
    loaded = torchsonic.from_pretrained(SonicLayers({"one": arguments}).save_pretrained(tmp_path))
    assert loaded["one"].limits == ResponseLimits(1, 0.5)
