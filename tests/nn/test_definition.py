import copy
import io

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

import torchsonic
from tests.layers import LAYERS, make_layer
from torchsonic.lab.training.optimiser import MovingAverage
from torchsonic.nn import HybridConv, LocalConv, SonicBlock, SpacedSequential

CHANGES = {
    "spacing": ((2.0, 0.5), r"spacing=\(2.0, 0.5\)"),
    "variant": ("paper", "variant='paper', standardise=True"),
    "gain": ("dc", "gain='dc'"),
    "padding_mode": ("zeros", "padding_mode='zeros'"),
    "standardise": ("sample", "standardise='sample'"),
    "limits": ({"magnitude": 2.0}, "limits={'magnitude': 2.0}"),
}


def weights_without(state):
    return {name: value for name, value in state.items() if not name.endswith("_extra_state")}


@pytest.mark.parametrize("name", CHANGES)
def test_weights_of_a_layer_built_otherwise_are_refused_with_what_to_pass(name):
    value, words = CHANGES[name]
    saved, other = make_layer(2, **{name: value}), make_layer(2, seed=1)
    before = copy.deepcopy(other.state_dict())
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=f"SonicConv2d: .*saved with {words}.*pass {words} to the constructor"):
            other.load_state_dict(saved.state_dict(), strict=strict)
    torch.testing.assert_close(other.state_dict(), before, rtol=0, atol=0)
    make_layer(2, seed=1, **{name: value}).load_state_dict(saved.state_dict())


def test_the_layer_of_a_network_is_named():
    build = lambda **options: nn.Sequential(nn.ReLU(), SonicBlock(3, 3, local_kernel=3, **options))  # noqa: E731
    with pytest.raises(RuntimeError, match=r"1\.operator\.sonic: .*\n.*1\.operator\.local: .*spacing=\(3\.0, 3\.0\)"):
        build().load_state_dict(build(spacing=3.0).state_dict())


def test_what_does_not_change_the_operator_is_not_compared():
    saved = make_layer(2, stride=2, field=9.0, mode_dropout=0.1, execution={"mode_chunk": 2})
    make_layer(2, seed=1).load_state_dict(saved.state_dict())
    told = make_layer(2, spacing=0.3)
    told.set_spacing(7.0)
    make_layer(2, spacing=0.3).load_state_dict(told.state_dict())


def test_the_place_behind_strides_is_not_compared():
    """Reference and told spacing move along with it, so that the weights mean the same."""
    blocks = [SonicBlock(3, 3, stride=3, spacing=0.1, norm="none") for _ in range(3)]
    state = nn.Sequential(*copy.deepcopy(blocks)).state_dict()
    chain = SpacedSequential(*blocks)
    chain.load_state_dict(state)
    assert chain[2].operator.network_spacing == (0.1, 0.1)
    torchsonic.infer_strides(chain, torch.randn(1, 3, 25, 25)).load_state_dict(state)


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_definitions_survive_files_casts_and_averages(num_axes):
    options = {"spacing": [0.1 * 3**d for d in range(num_axes)], "limits": {"band_order": 2}}
    layer = make_layer(num_axes, variant="paper", padding_mode="reflect", gain="free", **options)
    state = layer.state_dict()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    average = torch.optim.swa_utils.AveragedModel(layer, use_buffers=True)
    average.update_parameters(layer)
    mean = MovingAverage(layer, 0.5)
    mean.update(layer, 3)
    for found in (
        torch.load(file, weights_only=True),
        load(save(state)),
        {name: value.half() for name, value in state.items()},
        {name: value.bfloat16() for name, value in state.items()},
        {name: (value / 3 + value * 2 / 3).double() for name, value in state.items()},
        average.module.state_dict(),
        {**state, **mean.state_dict()},
        copy.deepcopy(layer).state_dict(),
    ):
        copy.deepcopy(layer).load_state_dict(found)
        with pytest.raises(RuntimeError, match="variant='paper'"):
            LAYERS[num_axes](3, 4, num_modes=6).load_state_dict(found, strict=False)


def test_weights_of_older_versions_load_with_one_warning():
    layers = [make_layer(2), HybridConv(3, 4), LocalConv(3, 4, spatial_dims=2)]
    model = nn.ModuleList(layers)
    old = weights_without(model.state_dict())
    with pytest.warns(FutureWarning, match="did not store spacing, padding_mode") as seen:
        assert model.load_state_dict(old) == ([], [])
    assert len(seen) == 1
    model.load_state_dict(old)


def test_weights_of_other_parts_need_no_definition():
    model = nn.Sequential(nn.Linear(2, 2), make_layer(2))
    part = {name: value for name, value in model.state_dict().items() if name.startswith("0.")}
    model.load_state_dict(part, strict=False)


def test_what_is_no_definition_is_named():
    layer = make_layer(2)
    with pytest.raises(RuntimeError, match="_extra_state is not the definition of a layer"):
        layer.load_state_dict({**layer.state_dict(), "_extra_state": torch.zeros(3, dtype=torch.uint8)})
    with pytest.raises(ValueError, match=r"pass spacing=\(2.0, 2.0\)"):
        layer.set_extra_state(make_layer(2, spacing=2.0).get_extra_state())


def test_a_layer_on_no_device_knows_its_definition():
    layer = LAYERS[2](3, 4, num_modes=6, spacing=0.5, device="meta")
    state = make_layer(2, spacing=0.5).state_dict()
    layer.load_state_dict(state, assign=True)
    with torch.device("meta"):
        assert not layer.get_extra_state().is_meta
