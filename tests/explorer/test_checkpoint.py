"""Modes of saved models, as the explorer shows them."""

import pytest
import torch

import torchsonic
from tests.explorer.serving import SETTING
from torchsonic.explorer import Session, open_checkpoint
from torchsonic.explorer.filters import entry_of, kernel_of, mode_of
from torchsonic.explorer.sampling import relative_difference


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("runs") / "sonicnet"
    torchsonic.create_model("synthshape_sonicnet").save_pretrained(folder / "model")
    return folder


@pytest.fixture(scope="module")
def checkpoint(run_folder):
    return open_checkpoint(run_folder)


def test_a_run_and_its_model_are_the_same(run_folder, checkpoint):
    other = open_checkpoint(run_folder / "model")
    assert [layer.name for layer in checkpoint.layers] == [layer.name for layer in other.layers]
    assert all(torch.equal(a.modes.scale, b.modes.scale) for a, b in zip(checkpoint.layers, other.layers, strict=True))


def test_sliders_take_a_mode_as_it_is(checkpoint):
    layer = checkpoint.layers[1]
    for index in (0, 7):
        rebuilt = mode_of(layer.values(index))
        for name in ("direction", "scale", "pole", "transverse", "gain"):
            stored = getattr(layer.modes, name)[index]
            assert torch.allclose(getattr(rebuilt, name)[0], stored, rtol=1e-4, atol=1e-5), name


def test_thumbnails_are_the_kernels_of_their_modes(checkpoint):
    layer = checkpoint.layers[0]
    shown = layer.thumbnails([3, 5])
    for picture, index in zip(shown, (3, 5), strict=True):
        alone = kernel_of(mode_of(layer.values(index)), (192, 192), layer.unit)[0, 72:120, 72:120]
        assert relative_difference(picture, alone) < 1e-3


def test_an_entry_of_a_layer_is_its_kernel(run_folder, checkpoint):
    model = torchsonic.from_pretrained(run_folder / "model")
    layer = dict(model.named_modules())[checkpoint.layers[0].name]
    expected = layer.kernel(16, centred=True)[2, 1].detach()
    shown = kernel_of(entry_of(checkpoint.layers[0].modes, 1, 2), (16, 16), 1.0)[0]
    assert relative_difference(shown, expected) < 1e-4


def test_the_sheet_is_sorted_and_complete(checkpoint):
    session = Session(checkpoint)
    first = session.sheet({"layer": 0, "page": 0})
    pages = [first] + [session.sheet({"layer": 0, "page": page}) for page in range(1, first["pages"])]
    modes = [mode for page in pages for mode in page["modes"]]
    assert sorted(mode["mode"] for mode in modes) == list(range(checkpoint.layers[0].num_modes))
    shares = [mode["share"] for mode in modes]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0, abs=1e-4)


def test_a_trained_layer_filters_the_same_on_every_grid(checkpoint):
    view = Session(checkpoint).view({**SETTING, "filter": "layer", "layer": 2, "input": 1, "output": 3})
    assert view["sonic"]["difference"] < 1e-4 < view["gfnet"]["difference"]


def test_channels_that_are_not_there_are_refused(checkpoint):
    with pytest.raises(ValueError, match="Input channel must be from 0 to"):
        Session(checkpoint).view({**SETTING, "filter": "layer", "layer": 0, "input": 10_000, "output": 0})


def test_a_model_of_volumes_is_refused_with_a_reason(tmp_path):
    torchsonic.create_model("sonicnet3d", in_channels=1, num_classes=2, width=8).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"two-dimensional Sonic layers, but its .* are 3-D"):
        open_checkpoint(tmp_path)


def test_a_model_without_sonic_layers_is_refused(tmp_path):
    torchsonic.create_model("synthshape_convnet").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="it has no Sonic layer"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("gain", ["power", "dc", "free"])
def test_strength_counts_the_power_of_a_mode_whatever_its_gain(tmp_path, gain):
    arguments = {"in_channels": 2, "out_channels": 3, "num_modes": 5, "spatial_dims": 2, "gain": gain}
    model = torchsonic.models.SonicLayers({"one": arguments})
    if gain == "free":
        model["one"].log_gain.data += torch.randn(5)
    layer = open_checkpoint(model.save_pretrained(tmp_path)).layers[0]
    n = 256  # the mean power over a fine grid of the reference cell
    omega = torchsonic.functional.frequency_grid((n, n), 1.0)
    response = torchsonic.functional.mode_response(omega, *layer.modes[:4])
    power = layer.modes.gain.square() * response.abs().square().mean((1, 2))
    mixing = layer.modes.mix_in.abs().square().sum(1) * layer.modes.mix_out.abs().square().sum(0)
    assert torch.allclose(layer.strength, (mixing * power).sqrt(), rtol=0.2)


def test_layers_with_limits_are_refused_by_name(tmp_path):
    arguments = {"in_channels": 2, "out_channels": 3, "num_modes": 5, "spatial_dims": 2, "band_limit": 2}
    folder = torchsonic.models.SonicLayers({"one": arguments}).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="limits of this layer"):
        open_checkpoint(folder)
