"""Settings of the nnU-Net trainers come from variables and a file, and mistakes are named."""

import inspect
import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

import torchsonic
from torchsonic.integrations.nnunet_settings import (
    NETWORK,
    ORBIT,
    PREFIX,
    Settings,
    complete_network,
    network_arguments,
    read_settings,
)

PAGE = Path(__file__).parents[2] / "docs" / "nnunet.md"
TOML = 'epochs = 3\npatch_size = [40, 56, 40]\noptimiser = "adamw"\nlearning_rate = 1\ncheckpointing = true\n'


def read(**variables):
    return read_settings({f"{PREFIX}{name.upper()}": value for name, value in variables.items()})


def test_nothing_given_is_nnunets_own():
    settings, given = read_settings({"PATH": "/bin", "nnUNet_raw": "raw"})
    assert settings == Settings()
    assert not given
    assert (settings.epochs, settings.iterations, settings.val_iterations) == (1000, 250, 50)


def test_variables_are_read_by_type():
    settings, given = read(width="24", stride="1,2,2", learning_rate="3e-3", norm="Channel", checkpointing="true")
    assert settings == Settings(width=24, stride=(1, 2, 2), learning_rate=3e-3, norm="channel", checkpointing=True)
    assert given == {"width", "stride", "learning_rate", "norm", "checkpointing"}


@pytest.mark.parametrize(("name", "text"), [("settings.toml", TOML), ("settings.json", None)])
def test_a_file_gives_settings_and_variables_win(tmp_path, name, text):
    path = tmp_path / name
    values = {"epochs": 3, "patch_size": [40, 56, 40], "optimiser": "adamw", "learning_rate": 1, "checkpointing": True}
    path.write_text(text or json.dumps(values))
    settings, given = read(config=str(path), epochs="5")
    assert settings == Settings(
        epochs=5, patch_size=(40, 56, 40), optimiser="adamw", learning_rate=1.0, checkpointing=True
    )
    assert isinstance(settings.learning_rate, float)
    assert given == set(values)


def test_none_takes_back_what_the_file_says_but_is_a_norm(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text('{"seed": 1, "norm": "group", "width": null}')
    settings, _ = read(config=str(path), seed="none", norm="none")
    assert settings == Settings(seed=None, norm="none", width=None)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"widht": "8"}, "TORCHSONIC_NNUNET_WIDHT is not a setting; did you mean TORCHSONIC_NNUNET_WIDTH?"),
        ({"width": "wide"}, "TORCHSONIC_NNUNET_WIDTH must be an integer, got 'wide'"),
        ({"width": "0"}, "TORCHSONIC_NNUNET_WIDTH must be at least 1, got 0"),
        ({"epochs": "none"}, "TORCHSONIC_NNUNET_EPOCHS must be an integer, got 'none'"),
        ({"norm": "layer"}, "TORCHSONIC_NNUNET_NORM must be one of group, channel, batch, instance, none, got 'layer'"),
        ({"learning_rate": "nan"}, "TORCHSONIC_NNUNET_LEARNING_RATE must be positive, got nan"),
        ({"weight_decay": "-1"}, "TORCHSONIC_NNUNET_WEIGHT_DECAY must not be negative, got -1.0"),
        ({"patch_size": "40,0,40"}, "TORCHSONIC_NNUNET_PATCH_SIZE must be positive integers, got 40,0,40"),
        ({"local_kernel": "4"}, "TORCHSONIC_NNUNET_LOCAL_KERNEL must be a positive odd number, got 4"),
        ({"seed": "-1"}, "TORCHSONIC_NNUNET_SEED must be from 0 to 2^32 - 1, got -1"),
        ({"checkpointing": "maybe"}, "TORCHSONIC_NNUNET_CHECKPOINTING must be true or false, got 'maybe'"),
        ({"config": "no/such.toml"}, "TORCHSONIC_NNUNET_CONFIG: cannot read no/such.toml"),
    ],
)
def test_mistakes_in_variables_are_named(variables, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        read(**variables)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "width =", "is not valid TOML"),
        ("a.json", "[1]", "must contain names and values, got a list"),
        ("a.yaml", "width: 8", "must name a .toml or .json file"),
        ("a.toml", "depht = 2", "depht is not a setting; did you mean depth?"),
        ("a.toml", "depth = 2.5", "depth in "),
        ("a.toml", "depth = true", "must be an integer, got True"),
        ("a.toml", "[network]\ndepth = 2", "network is not a setting"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, name, text, words):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        read(config=str(path))
    assert str(path) in str(caught.value)


def test_code_is_checked_as_variables_are():
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        Settings(depth=0)


@pytest.mark.parametrize("preset", ["default", "light", "paper", "paper_size"])
def test_the_network_is_the_presets_with_what_was_set(preset):
    arguments = network_arguments(Settings(preset=preset, width=8, norm="channel"), 3, hybrid=False)
    name = "sonicnet3d" if preset == "default" else f"sonicnet3d.{preset}"
    expected = torchsonic.create_model(name, width=8, norm="channel")
    assert arguments.pop("class") == "SonicNet"
    made = torchsonic.models.SonicNet(1, 4, spatial_dims=3, **arguments)
    assert {n: p.shape for n, p in made.named_parameters()} == {n: p.shape for n, p in expected.named_parameters()}
    assert made.blocks[0].stride == expected.blocks[0].stride
    own = set(inspect.signature(torchsonic.models.SonicNet).parameters)
    assert set(arguments) == own - {"in_channels", "num_classes", "spatial_dims", "spacing"}  # no default left open


def test_volumes_have_a_u_shaped_network_by_default_and_images_have_not():
    arguments = network_arguments(Settings(norm="channel", padding_mode="circular"), 3, hybrid=True)
    own = set(inspect.signature(torchsonic.models.SonicUNet).parameters)
    assert set(arguments) - {"class"} == own - {"in_channels", "num_classes", "spatial_dims", "spacing"}
    assert (arguments["class"], arguments["norm"], arguments["padding"]) == ("SonicUNet", "channel", None)
    assert network_arguments(Settings(), 2, hybrid=False)["class"] == "SonicNet"
    assert network_arguments(Settings(depth=2), 3, hybrid=False)["class"] == "SonicNet"  # as it always was


def test_plans_of_older_versions_name_no_class_and_no_margin():
    assert complete_network({"width": 8, "padding_mode": "zeros"}) == {
        "class": "SonicNet",
        "width": 8,
        "padding_mode": "zeros",
        "padding": None,
    }


def test_every_setting_of_the_network_reaches_it():
    changed = Settings(
        preset="light",
        width=8,
        depth=2,
        num_modes=6,
        stride=(1, 2),
        norm="instance",
        form="pre",
        variant="paper",
        padding_mode="reflect",
        field=12.0,
        head_kernel=3,
        local_kernel=5,
        checkpointing=True,
    )
    plain, made = (network_arguments(s, 2, hybrid=True) for s in (Settings(), changed))
    assert all(made[name] != plain.get(name) for name in NETWORK - {"preset", "group"})
    orbit = Settings(width=4, depth=2, num_modes=3, stride=(1, 2), padding_mode="reflect", field=9.0, group="D4")
    plain, turning = (network_arguments(s, 2, orbit=True) for s in (Settings(), replace(orbit, checkpointing=True)))
    assert all(turning[name] != plain[name] for name in ORBIT)
    assert turning["class"] == "OrbitNet"
    assert json.loads(json.dumps(made)) == made
    paper = network_arguments(Settings(preset="paper"), 3, hybrid=False)
    assert paper["checkpointing"], "what is not given is the preset's"


def test_what_fits_no_configuration_is_refused():
    with pytest.raises(ValueError, match="preset=paper does not fit a 2-D configuration"):
        network_arguments(Settings(preset="paper"), 2, hybrid=False)
    with pytest.raises(ValueError, match="stride must be one number or 2, got 1,2,2"):
        network_arguments(Settings(stride=(1, 2, 2)), 2, hybrid=False)


def test_the_page_lists_every_setting_with_its_default():
    rows = dict(re.findall(r"^\| `([a-z_]+)` \|([^|]*)\|", PAGE.read_text(), flags=re.MULTILINE))
    shown = {f.name: "" if f.default is None else f"{f.default}".lower() for f in fields(Settings)}
    assert {name: text.strip() for name, text in rows.items()} == shown
