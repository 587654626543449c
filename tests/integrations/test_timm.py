"""torchsonic's classifiers behave as timm's own."""

import json

import pytest
import torch

import torchsonic

timm = pytest.importorskip("timm", reason="timm is not installed")
from timm.optim import create_optimizer_v2  # noqa: E402

from tests.integrations.absent import import_without  # noqa: E402
from torchsonic.integrations.timm import registered  # noqa: E402

SHALLOW = {"depths": (1, 1, 1, 1)}


def make(name: str, **options):
    torch.manual_seed(0)
    small = {"vit_s16": {"depth": 3}, "orbit_tiny": {"widths": (2, 3, 2), "strides": (1, 2, 2), "num_modes": (2, 2, 2)}}
    return timm.create_model(name, **small.get(name, SHALLOW), **options)


def test_all_classifiers_are_there_and_timms_own_stay():
    assert {"resnet50_sonic", "resnet50_gfnet", "sonic_tiny", "vit_s16"} <= set(registered)
    assert set(registered) <= set(timm.list_models())
    assert timm.list_models("sonic_*") == ["sonic_base", "sonic_small", "sonic_tiny"]
    assert not isinstance(timm.create_model("resnet50"), torchsonic.models.ResNet)


def test_features_of_the_full_model_have_the_promised_channels_and_strides():
    model = timm.create_model("resnet50_sonic", num_classes=10, features_only=True).eval()
    features = model(torch.randn(1, 3, 64, 96))
    assert model.feature_info.channels() == [f.shape[1] for f in features] == [64, 256, 512, 1024, 2048]
    assert model.feature_info.reduction() == [64 // f.shape[2] for f in features] == [2, 4, 8, 16, 32]


@pytest.mark.parametrize("name", [name for name in registered if name != "orbit_tiny"])
def test_features_only_takes_indices_and_prunes_the_rest(name):
    model = make(name, features_only=True, out_indices=(0, 2)).eval()
    whole = make(name).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        features = model(x)
        final, levels = whole.forward_intermediates(x)
        torch.testing.assert_close(final, whole.forward_features(x))
        short = whole.forward_intermediates(x, indices=[0, 2], intermediates_only=True)
    for got, level, again in zip(features, (levels[0], levels[2]), short, strict=True):
        torch.testing.assert_close(got, level)
        torch.testing.assert_close(again, level)
    assert [f.shape[1] for f in features] == model.feature_info.channels()
    assert [64 // f.shape[2] for f in features] == model.feature_info.reduction()
    assert sum(p.numel() for p in model.parameters()) < sum(p.numel() for p in whole.parameters())


@pytest.mark.parametrize("name", registered)
def test_the_usual_interface(name):
    model = make(name, num_classes=10, in_chans=1, drop_rate=0.1, drop_path_rate=0.1).eval()
    x = torch.randn(2, 1, 64, 64)
    with torch.no_grad():
        features = model.forward_features(x)
        assert model(x).shape == (2, 10)
        torch.testing.assert_close(model.forward_head(features), model(x))
        assert model.forward_head(features, pre_logits=True).shape == (2, model.num_features)
        assert model.get_classifier().out_features == 10
        model.reset_classifier(3)
        assert model(x).shape == (2, 3)
        model.reset_classifier(0)
        assert model(x).shape == (2, model.num_features)
        model.reset_classifier(0, "")
        torch.testing.assert_close(model(x), features)
    config = timm.data.resolve_model_data_config(model)
    assert config["input_size"] == (3, 224, 224)
    if name == "orbit_tiny":
        assert model.default_cfg["first_conv"] is None
    else:
        first = model.get_submodule(model.default_cfg["first_conv"])
        assert isinstance(first, torch.nn.Conv2d)
        assert first.in_channels == 1
    assert model.default_cfg["classifier"] == "fc"


@pytest.mark.parametrize(
    ("options", "first"), [({}, "conv1.1"), ({"preset": "paper"}, "conv1"), ({"stem": "deep"}, None)]
)
def test_the_first_convolution_is_named_whatever_the_stem(options, first):
    assert make("resnet50_sonic", **options).default_cfg["first_conv"] == first


def test_orbits_have_one_level_that_turns_with_the_image():
    options = {"widths": (2, 3), "strides": (1, 1), "num_modes": (2, 2)}
    model = timm.create_model("orbit_tiny", features_only=True, **options).eval()
    x = torch.randn(1, 3, 20, 24)
    with torch.no_grad():
        (features,), (turned,) = model(x), model(x.mT.flip(3))
    assert model.feature_info.channels() == [features.shape[1]] == [6]
    torch.testing.assert_close(turned, features.mT.flip(3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet50_sonic", "sonic_tiny", "vit_s16", "orbit_tiny"])
def test_layer_decay_and_no_weight_decay_find_their_parameters(name):
    model = make(name)
    optimiser = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.7)
    assert sum(len(g["params"]) for g in optimiser.param_groups) == len(list(model.parameters()))
    assert len({g["lr_scale"] for g in optimiser.param_groups}) > (2 if name == "orbit_tiny" else 4)
    spared = {id(p) for g in optimiser.param_groups if g["weight_decay"] == 0 for p in g["params"]}
    named = dict(model.named_parameters())
    assert model.no_weight_decay()
    assert all(id(named[key]) in spared for key in model.no_weight_decay())


def test_presets_checkpointing_and_checkpoints(tmp_path):
    model = timm.create_model("resnet50_sonic", preset="paper")
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == 1.34
    model = make("sonic_tiny", num_classes=4)
    model.set_grad_checkpointing()
    model(torch.randn(1, 3, 64, 64)).sum().backward()
    model.save_pretrained(tmp_path)
    loaded = make("sonic_tiny", num_classes=4, checkpoint_path=str(tmp_path / "model.safetensors"))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    assert type(torchsonic.from_pretrained(tmp_path)).__name__ == "SonicClassifier"


def test_a_model_from_timm_hears_the_spacing():
    model = make("sonic_tiny").eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert not torch.allclose(model(x, spacing=0.5), model(x), rtol=1e-2)


def test_published_weights_are_not_promised():
    with pytest.raises(ValueError, match="no published weights for sonic_tiny"):
        timm.create_model("sonic_tiny", pretrained=True)


@pytest.mark.parametrize("indices", [(9,), (4,), (-5,), 17, 0, ()])
def test_levels_that_do_not_exist_are_refused(indices):
    with pytest.raises(ValueError, match="indices must select from"):
        make("sonic_tiny").forward_intermediates(torch.randn(1, 3, 64, 64), indices=indices)


def test_without_timm_the_error_names_the_extra(monkeypatch):
    said = import_without("timm", "torchsonic.integrations.timm", monkeypatch)
    assert 'pip install "torchsonic[timm]"' in said


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A classifier that comes with the package, as a run on photographs leaves it."""
    monkeypatch.setattr("torchsonic.models.model_folder.FOLDER", tmp_path)
    model = torchsonic.create_model("sonic_tiny", num_classes=3, widths=(4, 4, 8, 8), **SHALLOW).eval()
    model.save_pretrained(tmp_path / "photographs" / "model")
    settings = {"kind": "images", "format": 1, "torchsonic": "0.2.0", "model": "sonic_tiny", "image_size": 32}
    (tmp_path / "photographs" / "config.json").write_text(json.dumps(settings))
    return model


def test_a_tag_names_a_network_that_comes_along(trained):
    x = torch.randn(2, 3, 32, 32)
    model = timm.create_model("sonic_tiny.photographs", pretrained=True).eval()
    assert torch.equal(model(x), trained(x))
    assert (model.num_classes, model.pretrained_cfg["input_size"]) == (3, (3, 32, 32))
    other = timm.create_model("sonic_tiny.photographs", pretrained=True, num_classes=7).eval()
    assert other(x).shape == (2, 7)
    assert torch.equal(other.forward_features(x), trained.forward_features(x))
    untrained = timm.create_model("sonic_tiny.photographs").eval()
    assert untrained(x).shape == (2, 3)
    assert not torch.equal(untrained(x), trained(x))
    features = timm.create_model("sonic_tiny.photographs", pretrained=True, features_only=True)(x)
    assert [f.shape[1] for f in features] == [4, 4, 8, 8]


def test_the_packaged_classifier_of_photographs_is_among_timms():
    model = timm.create_model("resnet50_sonic.imagenette", pretrained=True).eval()
    x = torch.randn(1, 3, 64, 64)
    assert torch.equal(model(x, spacing=2.0), torchsonic.from_pretrained("imagenette")(x, spacing=2.0))


def test_what_does_not_fit_weights_that_come_along_is_refused(trained):
    with pytest.raises(
        ValueError, match=r"no published weights for sonic_tiny; .*has weights for sonic_tiny\.photographs"
    ):
        timm.create_model("sonic_tiny", pretrained=True)
    with pytest.raises(ValueError, match=r"no published weights for sonic_tiny\.imagenet"):
        timm.create_model("sonic_tiny.imagenet", pretrained=True)
    with pytest.raises(ValueError, match=r"no published weights for resnet50_sonic\.photographs; use checkpoint_path"):
        timm.create_model("resnet50_sonic.photographs", pretrained=True)
    with pytest.raises(ValueError, match="in_chans must be 3"):
        timm.create_model("sonic_tiny.photographs", pretrained=True, in_chans=1)
    with pytest.raises(TypeError, match="built as it was trained; leave out drop_rate"):
        timm.create_model("sonic_tiny.photographs", pretrained=True, drop_rate=0.1)
