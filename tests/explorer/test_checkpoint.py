"""Modes of saved models, as the explorer shows them."""

import pytest
import torch

import torchsonic
from tests.explorer.serving import SETTING
from torchsonic.explorer import Session, open_checkpoint
from torchsonic.explorer.filters import kernel_of, mode_of, relative_difference
from torchsonic.explorer.knobs import RefusedError


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
        rebuilt = mode_of(layer.values(index)).modes
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
    shown = kernel_of(checkpoint.layers[0].operator.between([1], [2]), (16, 16), 1.0)[0]
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


@pytest.mark.parametrize(
    ("channel", "words"), [(10_000, "must be from 0 to"), (1.5, "must be a whole number from 0 to")]
)
def test_channels_that_are_not_there_are_refused(checkpoint, channel, words):
    with pytest.raises(ValueError, match=f"Input channel {words}"):
        Session(checkpoint).view({**SETTING, "filter": "layer", "layer": 0, "input": channel, "output": 0})


def test_a_model_of_volumes_is_refused_with_a_reason(tmp_path):
    torchsonic.create_model("sonicnet3d", in_channels=1, num_classes=2, width=8).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"two-dimensional Sonic layers, but its .* are 3-D; torchsonic explain shows"):
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


LIMITS = [{}, {"band_order": 2}, {"magnitude": 0.7}, {"magnitude": 2.0, "soft": True}]


def save_layer(folder, **options):
    """A folder with one two-dimensional layer, and the layer."""
    torch.manual_seed(0)
    arguments = {"in_channels": 2, "out_channels": 3, "num_modes": 5, "spatial_dims": 2, **options}
    model = torchsonic.models.SonicLayers({"one": arguments})
    return model.save_pretrained(folder), model["one"]


@pytest.mark.parametrize("limits", LIMITS)
def test_layers_with_limits_filter_with_them(tmp_path, limits):
    folder, layer = save_layer(tmp_path, limits=limits)
    shown = open_checkpoint(folder).layers[0]
    kernel = kernel_of(shown.operator.between([1], [2]), (16, 16), 1.0)[0]
    assert relative_difference(kernel, layer.kernel(16, centred=True)[2, 1].detach()) < 1e-4
    assert ("limits" in shown.note) == bool(limits)
    view = Session(open_checkpoint(folder)).view({**SETTING, "filter": "layer", "layer": 0, "input": 1, "output": 2})
    assert view["sonic"]["difference"] < 1e-4


@pytest.mark.parametrize("limits", LIMITS)
def test_modes_of_the_paper_s_variant_are_drawn_as_it_applies_them(tmp_path, limits):
    folder, layer = save_layer(tmp_path, variant="paper", field=192, limits=limits)
    checkpoint = open_checkpoint(folder)
    kernels = torch.roll(layer.mode_kernels(192)[:, 0].detach(), (96, 96), (1, 2))[:, 72:120, 72:120]
    for picture, index in zip(checkpoint.layers[0].thumbnails([3, 1]), (3, 1), strict=True):
        assert relative_difference(picture, kernels[index]) < 1e-4


def test_the_paper_s_variant_is_no_filter_for_every_grid(tmp_path):
    session = Session(open_checkpoint(save_layer(tmp_path, variant="paper")[0]))
    (told,) = session.start()["layers"]
    assert not told["exact"]
    assert "paper's notes" in told["note"]
    with pytest.raises(RefusedError, match=r"layers\.one cannot be used as a filter"):
        session.view({**SETTING, "filter": "layer", "layer": 0, "input": 0, "output": 0})
    assert len(session.sheet({"layer": 0, "page": 0})["modes"]) == 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_checkpoints_of_other_dtypes_are_shown(tmp_path, dtype):
    torch.manual_seed(0)
    model = torchsonic.models.SonicLayers({"one": {"in_channels": 2, "out_channels": 3, "spatial_dims": 2}})
    session = Session(open_checkpoint(model.to(dtype).save_pretrained(tmp_path)))
    assert session.sheet({"layer": 0, "page": 0})["modes"]
    view = session.view({**SETTING, "filter": "layer", "layer": 0, "input": 1, "output": 2})
    assert view["sonic"]["difference"] < 1e-4


def test_a_layer_of_one_mode_shows_its_own_response(tmp_path):
    """Its symbol has gain, mixing and a mirror image, which the response of the mode alone has not."""
    folder, layer = save_layer(tmp_path, num_modes=1)
    view = Session(open_checkpoint(folder)).view({**SETTING, "filter": "layer", "layer": 0, "input": 1, "output": 2})
    axis = (torch.arange(192) + 0.5) * (2 * SETTING["highest"] / 192) - SETTING["highest"]
    omega = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)
    expected = float(layer.response(omega)[..., 2, 1].abs().max().detach())
    assert view["response"]["peak"] == pytest.approx(expected, rel=1e-4)


def test_weights_that_are_no_numbers_are_refused_by_name(tmp_path):
    model = torchsonic.models.SonicLayers({"one": {"in_channels": 2, "out_channels": 3, "spatial_dims": 2}})
    model["one"].raw_transverse.data[0] = torch.nan
    with pytest.raises(ValueError, match=r"layers\.one has modes that are not finite \(transverse, gain\)"):
        open_checkpoint(model.save_pretrained(tmp_path))
