"""A saved model comes back whole, or not at all."""

import copy
import inspect
import json
import pickle
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import torchsonic
from torchsonic.models import PretrainedModel, SonicNet, SynthShapeNet
from torchsonic.models.pretrained import CONFIG_NAME, WEIGHTS_NAME
from torchsonic.models.sonicnet import MARGIN


@pytest.fixture
def model():
    return torchsonic.create_model("sonicnet2d", width=8, num_modes=8, depth=1, num_classes=3).eval()


@pytest.fixture
def folder(model, tmp_path):
    return model.save_pretrained(tmp_path / "saved")


def refuses(folder, match, **options):
    with pytest.raises(torchsonic.PretrainedError, match=match):
        torchsonic.from_pretrained(folder, **options)


def test_the_folder_holds_two_plain_files(folder):
    assert sorted(p.name for p in folder.iterdir()) == [CONFIG_NAME, WEIGHTS_NAME]
    config = json.loads((folder / CONFIG_NAME).read_text())
    assert config["class"] == "SonicNet"
    assert config["torchsonic"] == torchsonic.__version__
    assert config["arguments"]["num_classes"] == 3
    for path in folder.iterdir():
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(path.read_bytes())


def test_a_class_built_by_hand_is_saved_with_all_its_arguments(tmp_path):
    model = SonicNet(2, 5, width=8, depth=1, spacing=(2.0, 0.5), norm="channel").eval()
    loaded = SonicNet.from_pretrained(model.save_pretrained(tmp_path))
    x = torch.randn(1, 2, 8, 9)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))
    assert loaded.blocks[0].operator.reference_spacing == (2.0, 0.5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_come_back_bit_equal(model, tmp_path, dtype):
    loaded = torchsonic.from_pretrained(model.to(dtype).save_pretrained(tmp_path))
    for key, value in loaded.state_dict().items():
        assert torch.equal(value, model.state_dict()[key])
    assert all(parameter.dtype == dtype for parameter in loaded.parameters())


def test_saving_again_replaces_the_old_files(model, folder):
    with torch.no_grad():
        model.head[2].bias.fill_(7.0)
    model.save_pretrained(folder)
    assert torchsonic.from_pretrained(folder).head[2].bias.eq(7).all()


def test_a_failed_save_leaves_the_old_model(model, folder, monkeypatch):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torchsonic.models.model_folder.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_new_head_is_saved_as_it_is(tmp_path):
    model = torchsonic.create_model("sonic_tiny", depths=(1, 1, 1, 1), num_classes=10)
    model.reset_classifier(4)
    loaded = torchsonic.from_pretrained(model.save_pretrained(tmp_path))
    assert loaded.num_classes == 4
    assert loaded(torch.randn(1, 3, 64, 64)).shape == (1, 4)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.99])
@pytest.mark.parametrize("name", [CONFIG_NAME, WEIGHTS_NAME])
def test_a_truncated_file_is_refused(folder, name, part):
    path = folder / name
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    refuses(folder, name)


def test_one_flipped_bit_is_noticed(folder):
    path = folder / WEIGHTS_NAME
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refuses(folder, "damaged or was replaced.*verify=False")
    assert isinstance(torchsonic.from_pretrained(folder, verify=False), SonicNet)


@pytest.mark.parametrize("name", [CONFIG_NAME, WEIGHTS_NAME])
def test_a_renamed_file_is_named_in_the_error(folder, name):
    (folder / name).rename(folder / "my_file")
    refuses(folder, f"{name} is missing.*my_file.*renamed")


def test_a_foreign_file_is_refused(folder):
    state = {name: value.clone() for name, value in load_file(folder / WEIGHTS_NAME).items()}
    path = folder / WEIGHTS_NAME
    path.write_bytes(pickle.dumps({"weights": [1, 2, 3]}))
    refuses(folder, "not a valid safetensors file")
    save_file({**state, "stranger": torch.zeros(1)}, path)
    refuses(folder, "another model: 1 tensor is unexpected .stranger.", verify=False)
    lacking = dict(state)
    lacking.pop("head.2.bias")
    save_file(lacking, path)
    refuses(folder, "another model: 1 tensor is missing .head.2.bias.", verify=False)
    save_file({**state, "head.2.bias": torch.zeros(9)}, path)
    refuses(folder, r"head.2.bias is \(9,\), expected \(3,\)", verify=False)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"class": "os.system"}, "describes a 'os.system'"),
        ({"class": 3}, "not written by torchsonic"),
        ({"format": 99}, "format 99.*update torchsonic"),
        ({"arguments": [1]}, "does not contain the arguments"),
        ({"arguments": {"in_channels": 3, "num_classes": 3, "wings": 2}}, "does not accept the arguments.*wings"),
        ({"arguments": {"in_channels": -3, "num_classes": 3}}, "does not accept the arguments.*in_channels"),
        ({"arguments": {"in_channels": 3, "num_classes": 3, "width": -4}}, "does not accept the arguments"),
    ],
)
def test_a_tampered_configuration_is_refused(folder, change, match):
    path = folder / CONFIG_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    refuses(folder, match)


@pytest.mark.parametrize("text", ["{", "[]", '{"model_type": "bert"}', "[" * 100000, "\xff\xfe"])
def test_what_is_no_configuration_is_refused(folder, text):
    (folder / CONFIG_NAME).write_bytes(text.encode("latin-1"))
    refuses(folder, CONFIG_NAME)


def test_the_wrong_class_is_refused(folder):
    with pytest.raises(torchsonic.PretrainedError, match="describes a 'SonicNet', not SynthShapeNet"):
        SynthShapeNet.from_pretrained(folder)


def test_places_that_hold_no_model_are_refused(tmp_path):
    refuses(tmp_path, "the folder is empty")
    refuses(tmp_path / "nowhere", "there is no folder")
    (tmp_path / "file").write_text("x")
    refuses(tmp_path / "file", "is a file; pass the folder")


def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    model = SonicNet(1, 2, width=8, depth=1, spacing=(1.0, 1.0))
    model.arguments["spacing"] = {1.0, 2.0}
    with pytest.raises(TypeError, match="argument spacing="):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_changed_model_is_refused_when_it_is_saved(tmp_path):
    pruned = torchsonic.create_model("sonic_tiny", depths=(1, 1, 1, 1))
    pruned.prune_intermediate_layers([0])
    merged = torchsonic.create_model("resnet50_replk", depths=(1, 1, 1, 1)).eval()
    merged.layer1[0].conv2.merge()
    for model in (pruned, merged):
        with pytest.raises(ValueError, match=r"not what its arguments build .was it pruned, merged or edited"):
            model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_two_models_of_one_name_are_refused():
    with pytest.raises(TypeError, match=r"called ResNet is defined in torchsonic\.models\.resnet"):
        type("ResNet", (PretrainedModel,), {})


def test_a_file_is_no_place_to_save_in(model, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="is a file; pass a folder"):
        model.save_pretrained(tmp_path / "file")


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path):
    model = SonicNet(1, np.int64(3), width=8, depth=1, spacing=np.array([1.0, 2.0]), mode_dropout=np.float32(0.5))
    loaded = SonicNet.from_pretrained(model.save_pretrained(tmp_path))
    assert loaded.arguments == {**model.arguments, "num_classes": 3, "spacing": [1.0, 2.0]}


def test_a_model_whose_layers_were_moved_elsewhere_is_not_saved_as_what_it_was(model, tmp_path):
    layer = model.blocks[0].operator
    layer.set_spacing(3.0)
    model.save_pretrained(tmp_path)  # what a layer is told is no part of it
    layer.padding_mode = "reflect"
    with pytest.raises(ValueError, match=r"not what its arguments build.*blocks\.0\.operator\._extra_state"):
        model.save_pretrained(tmp_path)


def test_weights_of_layers_built_otherwise_are_refused(folder, tmp_path):
    other = SonicNet.from_pretrained(folder)
    arguments = {**other.arguments, "spacing": 2.0}
    SonicNet(**arguments).save_pretrained(tmp_path / "other")
    shutil.copy(tmp_path / "other" / WEIGHTS_NAME, folder)
    refuses(folder, r"another model: .*saved with spacing=\(2.0, 2.0\)", verify=False)


def test_folders_of_older_versions_load_without_a_word(folder, model):
    path = folder / WEIGHTS_NAME
    state = {name: value.clone() for name, value in load_file(path).items() if not name.endswith("_extra_state")}
    save_file(state, path)
    loaded = torchsonic.from_pretrained(folder, verify=False)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())


@pytest.mark.parametrize("name", ["sonicnet", "synthshape"])
def test_files_of_format_1_hold_what_was_passed_and_wrap_as_they_did(name, tmp_path):
    stored = Path(__file__).parent / "format_1" / name
    model = torchsonic.from_pretrained(stored)
    x = torch.linspace(-1, 1, 12).reshape(1, 1, 3, 4)
    with torch.no_grad():
        torch.testing.assert_close(
            model(x).flatten(), torch.tensor(json.loads((stored / "logits.json").read_text())), rtol=0, atol=1e-5
        )
    assert {layer.padding_mode for _, layer in torchsonic.nn.sonic_layers(model)} == {"circular"}
    assert torchsonic.from_pretrained(model.save_pretrained(tmp_path)).arguments == model.arguments


def test_files_hold_all_arguments_so_that_defaults_may_change(folder, model):
    config = json.loads((folder / CONFIG_NAME).read_text())
    assert config["format"] == 2
    assert set(config["arguments"]) == set(inspect.signature(SonicNet).parameters)
    assert (config["arguments"]["padding"], config["arguments"]["padding_mode"]) == (MARGIN, "zeros")
    shapes = torchsonic.create_model("synthshape_sonicnet").arguments["backbone_options"]
    assert (shapes["padding"], shapes["padding_mode"]) == (MARGIN, "zeros")


def test_weights_of_another_kind_of_number_are_refused(folder):
    state = load_file(folder / WEIGHTS_NAME)
    save_file({**state, "head.2.bias": torch.zeros(3, dtype=torch.int64)}, folder / WEIGHTS_NAME)
    refuses(folder, r"head.2.bias as torch.int64", verify=False)


def test_a_configuration_that_asks_for_the_moon_allocates_nothing(folder):
    path = folder / CONFIG_NAME
    config = json.loads(path.read_text())
    config["arguments"]["num_classes"] = 10**12
    path.write_text(json.dumps(config))
    refuses(folder, r"head.2.bias is \(3,\)|head.2.weight is")


def test_subclasses_that_pass_keywords_on_are_saved(tmp_path):
    class Heart(SonicNet):
        def __init__(self, in_channels: int, **options) -> None:
            super().__init__(in_channels, 4, **options)

    loaded = Heart.from_pretrained(Heart(1, width=8, depth=1).save_pretrained(tmp_path))
    assert loaded.arguments == {"in_channels": 1, "width": 8, "depth": 1}


def test_a_mistyped_path_does_not_ask_the_hub(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    refuses("runs/nothing", "there is no folder 'runs/nothing'; for a repository .* write hub:runs/nothing")


def test_a_run_is_loaded_by_its_folder(model, tmp_path):
    model.save_pretrained(tmp_path / "run" / "model")
    assert type(torchsonic.from_pretrained(tmp_path / "run")) is type(model)
    (tmp_path / "stopped" / "checkpoints").mkdir(parents=True)
    refuses(tmp_path / "stopped", "has not finished; run its command again")


def test_weights_have_the_permissions_of_the_umask(folder):
    assert (folder / WEIGHTS_NAME).stat().st_mode == (folder / CONFIG_NAME).stat().st_mode


def test_users_own_models_are_saved_too(tmp_path):
    class Tiny(PretrainedModel):
        def __init__(self, channels: int, *, names: tuple[str, ...] = ("a",)) -> None:
            super().__init__()
            self.layer = torchsonic.SonicConv1d(channels, channels)
            self.names = names

        def forward(self, x):
            return self.layer(x)

    model = Tiny(4, names=("left", "right"))
    loaded = Tiny.from_pretrained(model.save_pretrained(tmp_path))
    assert loaded.names == ["left", "right"]
    assert torch.equal(loaded.layer.mix_in, model.layer.mix_in)


def test_copies_remember_their_arguments(model):
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.arguments == model.arguments
    model.arguments["num_classes"] = 99
    assert copy.deepcopy(model).arguments["num_classes"] == 99


class FakeHub(types.ModuleType):
    """The two calls of the Hub, on a local folder."""

    def __init__(self, folder):
        super().__init__("huggingface_hub")
        self.folder, self.uploads = folder, []

    def hf_hub_download(self, repo, name, revision=None, token=None):
        if repo != "someone/model":
            raise OSError(f"404: {repo}")
        return str(self.folder / name)

    def HfApi(self, token=None):  # noqa: N802
        hub = self

        class Api:
            def create_repo(self, repo_id, private, exist_ok):
                hub.uploads.append((repo_id, private))

            def upload_folder(self, repo_id, folder_path, commit_message):
                hub.uploads.append(torchsonic.from_pretrained(folder_path))
                return "commit"

        return Api()


def test_the_hub_gives_and_takes_models(model, folder, monkeypatch):
    hub = FakeHub(folder)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert isinstance(torchsonic.from_pretrained("hub:someone/model"), SonicNet)
    refuses("hub:someone/else", "cannot be downloaded from the Hub: 404")
    refuses("hub:model", "'hub:model' names no repository of the Hugging Face Hub; write hub:owner/name")
    assert model.push_to_hub("someone/model", private=True) == "commit"
    assert hub.uploads[0] == ("someone/model", True)
    assert isinstance(hub.uploads[1], SonicNet)


def test_without_the_hub_package_the_error_names_the_extra(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refuses("hub:someone/model", r"torchsonic\[hub\]")
    with pytest.raises(ImportError, match=r"torchsonic\[hub\]"):
        model.push_to_hub("someone/model")


def test_files_that_do_not_name_the_options_of_orbits_have_those_of_their_time(tmp_path):
    before = {"num_modes": 6, "group": "C8", "padding": MARGIN, "standardise": False}
    model = torchsonic.create_model("synthshape_orbitnet", width=2, depth=1, backbone_options=before)
    path = model.save_pretrained(tmp_path) / CONFIG_NAME
    config = json.loads(path.read_text())
    config["arguments"]["backbone_options"] = {"num_modes": 6, "group": "C8"}
    path.write_text(json.dumps(config))
    assert torchsonic.from_pretrained(tmp_path).arguments == model.arguments


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("Shapes", {}, "did you mean 'shapes'"),
        (None, {}, "source must be a folder or the name of a packaged network, got None"),
        ("shapes", {"num_classes": 3}, "no argument 'num_classes': a network is loaded as it was saved"),
    ],
)
def test_wrong_arguments_of_loading_are_named(source, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        torchsonic.from_pretrained(source, **options)
    with pytest.raises(TypeError, match="from_pretrained loads packaged networks"):
        torchsonic.create_model("sonic_tiny", pretrained=True)
