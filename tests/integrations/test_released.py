"""Weights of the released code become layers that compute the same, or are refused by name."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

import torchsonic
from tests.integrations.released_layers import USUAL, released_operator, released_state
from torchsonic.cli import main
from torchsonic.integrations.released import Choices, ConversionError, convert_file
from torchsonic.testing import relative_error

KINDS = [("rms", 2), ("dc", 2), ("dc", 3), ("free", 2), ("free", 3)]
DC = ["--generation", "dc", "--standardise", "sample"]


def saved(tmp_path, state, name="weights.pth"):
    path = tmp_path / name
    torch.save(state, path)
    return path


def choices_for(generation, axes=2, **options):
    options.setdefault("standardise", USUAL[generation])
    return Choices(generation=generation if axes == 2 else None, **options)


def uneven_input(*size):
    """Channels of different mean and size, so that every way to standardise gives something else."""
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    shape = (1, 3, *[1] * len(size))
    return x * torch.tensor([0.3, 1.0, 4.0]).reshape(shape) + torch.tensor([2.0, 0.0, -1.0]).reshape(shape)


@pytest.mark.parametrize(("generation", "axes"), KINDS)
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("way", ["usual", "none"])
def test_converted_layers_compute_what_the_formulas_say(tmp_path, generation, axes, odd, way):
    state = released_state(generation, axes, modes=24)
    steps = (0.8, 1.3, 2.0)[:axes]
    x = uneven_input(*((6, 5, 7)[:axes] if odd else (5, 4, 6)[-axes:]))
    way = USUAL[generation] if way == "usual" else way
    choices = choices_for(generation, axes, spacing=steps[::-1], standardise=way)
    layers = convert_file(saved(tmp_path, state), choices).layers
    expected, response = released_operator(state, x, generation, steps, standardise=way)
    assert relative_error(layers(x), expected) < 1e-10
    if generation != "rms":  # the limit was met, else it is not tested
        assert response.abs().max() > (4.9 if generation == "dc" else 10)


@pytest.mark.parametrize(("generation", "axes"), KINDS)
def test_the_way_of_standardising_is_asked_for_because_another_one_is_another_layer(tmp_path, generation, axes):
    state = released_state(generation, axes, modes=24)
    path, x = saved(tmp_path, state), uneven_input(*(6, 6, 6)[:axes])
    with pytest.raises(ConversionError, match=rf"normalize_input=False.*else to '{USUAL[generation]}'"):
        convert_file(path, choices_for(generation, axes, standardise=None))
    expected, _ = released_operator(state, x, generation, (1.0,) * axes)
    for way in {"channel", "sample", "none"} - {USUAL[generation]}:
        wrong = convert_file(path, choices_for(generation, axes, standardise=way)).layers(x)
        assert relative_error(wrong, expected) > 0.1


def test_other_spacings_masks_and_standardisation_agree_too(tmp_path):
    state = released_state("free", 2, mask=True)
    x = torch.randn(2, 3, 6, 7, dtype=torch.float64)
    path = saved(tmp_path, state)
    conversion = convert_file(path, Choices(standardise="channel", band_order=2))
    expected, _ = released_operator(state, x, "free", (0.5, 1.5), order=2, standardise="channel")
    assert relative_error(conversion.layers(x, spacing=(1.5, 0.5)), expected) < 1e-10
    assert "Bmask" in conversion.text()


def test_log_alpha_stands_for_damping_and_gain(tmp_path):
    state = released_state("free", 2)
    old = dict(state)
    old["log_alpha"] = torch.nn.functional.softplus(old.pop("alpha_raw")).log()
    old["log_dc_gain"] = state["log_dc_gain"] = old["log_alpha"]
    del old["log_dc_gain"]
    x = torch.randn(1, 3, 6, 6, dtype=torch.float64)
    layers = convert_file(saved(tmp_path, old), choices_for("free")).layers
    assert relative_error(layers(x), released_operator(state, x, "free", (1.0, 1.0))[0]) < 1e-10


@pytest.mark.parametrize("kind", ["none", "half"])
def test_a_missing_bandwidth_is_asked_for(tmp_path, kind):
    state = released_state("free", 2, bandwidth=False)
    path = saved(tmp_path, state)
    with pytest.raises(ConversionError, match=r"log_bandwidth is missing, which is ambiguous"):
        convert_file(path, choices_for("free"))
    layers = convert_file(path, choices_for("free", missing_bandwidth=kind)).layers
    if kind == "half":
        state["log_bandwidth"] = torch.zeros(5, dtype=torch.float64)
    x = torch.randn(1, 3, 6, 5, dtype=torch.float64)
    assert relative_error(layers(x), released_operator(state, x, "free", (1.0, 1.0))[0]) < 1e-10


def test_the_command_writes_a_folder_that_loads_and_says_what_it_did(tmp_path, capsys):
    weights = {f"encoder.0.sonic.{name}": value for name, value in released_state("dc", dtype=torch.float32).items()}
    weights |= {f"encoder.1.{name}": value for name, value in released_state("dc", dtype=torch.float32).items()}
    weights["head.weight"] = torch.randn(2, 4)
    wrapped = {"epoch": 3, "state_dict": {f"module.{name}": value for name, value in weights.items()}}
    out = tmp_path / "ours"
    assert main(["convert", str(saved(tmp_path, wrapped)), "--out", str(out), *DC]) == 0
    text = capsys.readouterr().out
    assert "encoder.0.sonic: generation dc, 2-D, 3 -> 4 channels, 5 modes" in text
    assert "head.weight (2, 4)" in text
    layers = torchsonic.from_pretrained(out)
    assert list(layers) == ["encoder.0.sonic", "encoder.1"]
    single = {
        name.removeprefix("encoder.1."): v.double() for name, v in weights.items() if name.startswith("encoder.1.")
    }
    x = torch.randn(1, 3, 8, 8)
    assert relative_error(layers["encoder.1"](x), released_operator(single, x.double(), "dc", (1.0, 1.0))[0]) < 1e-5
    assert load_file(out / "other.safetensors")["head.weight"].equal(weights["head.weight"])
    report = json.loads((out / "conversion.json").read_text())
    assert report["not_mapped"] == {"head.weight": [2, 4]}
    assert main(["convert", str(tmp_path / "weights.pth"), "--out", str(out), *DC]) == 1
    assert "not empty" in capsys.readouterr().err


def test_safetensors_give_the_same_layers(tmp_path):
    state = released_state("free", 3)
    save_file(state, tmp_path / "weights.safetensors")
    first = convert_file(tmp_path / "weights.safetensors", choices_for("free", 3)).layers.state_dict()
    second = convert_file(saved(tmp_path, state), choices_for("free", 3)).layers.state_dict()
    assert all(value.equal(second[name]) for name, value in first.items())


def change(name, value):
    return lambda state: state.__setitem__(name, value)


NAN = torch.tensor([1.0, float("nan"), 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("generation", "spoil", "text"),
    [
        ("dc", change("gamma", torch.zeros(5)), "gamma is not a parameter of a released layer"),
        ("dc", lambda state: state.pop("rho"), "rho is missing"),
        ("dc", change("alpha", torch.zeros(4)), r"alpha has shape \(4,\), expected \(5,\)"),
        ("dc", change("B_im", torch.zeros(5, 2)), r"B_im has shape \(5, 2\), expected \(5, 3\)"),
        ("dc", change("C_re", torch.zeros(5)), r"C_re has shape \(5,\); a mixing matrix"),
        ("dc", change("tau_raw", NAN), "tau_raw has 1 values that are not finite"),
        ("dc", change("scale_raw", torch.zeros(5, dtype=torch.int64)), "scale_raw is torch.int64"),
        ("dc", change("rho", torch.tensor(1.0).to(torch.float8_e5m2)), "rho is torch.float8_e5m2; save it as"),
        ("dc", change("log_tau", torch.zeros(5)), "belong to different generations"),
        ("dc", change("alpha", torch.full((5,), -40.0)), r"alpha gives \|Re a\| <= .* for mode 0, 1, 2, 3, 4"),
        ("free", change("log_scale", torch.full((5,), 200.0)), "log_scale gives a value beyond float32"),
        ("free", change("log_tau", torch.full((5,), 800.0)), "log_tau gives a value beyond float32"),
        ("free", change("beta", torch.full((5,), 3e38)), "beta gives a value beyond float32"),
        ("free", change("log_dc_gain", torch.full((5,), 21.0)), "log_dc_gain gives a gain above"),
        ("free", change("log_bandwidth", torch.full((5,), -30.0)), "log_bandwidth gives a cutoff"),
        ("free", change("log_alpha", torch.zeros(5)), "log_alpha stands for alpha_raw and log_dc_gain"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, generation, spoil, text):
    state = released_state(generation)
    spoil(state)
    with pytest.raises(ConversionError, match=text):
        convert_file(saved(tmp_path, state), choices_for(generation))


def test_a_direction_of_no_length_and_every_other_problem_of_a_file_are_named_at_once(tmp_path):
    first, second = released_state("dc"), released_state("dc")
    first["vx"][2] = first["vy"][2] = 0
    del second["C_im"]
    state = {f"a.{k}": v for k, v in first.items()} | {f"b.{k}": v for k, v in second.items()}
    with pytest.raises(ConversionError) as caught:
        convert_file(saved(tmp_path, state), choices_for("dc"))
    assert "a.vx gives no direction for mode 2" in str(caught.value)
    assert "b.C_im is missing" in str(caught.value)


def test_ambiguous_and_contradicted_generations_are_refused(tmp_path):
    with pytest.raises(ConversionError, match="vx is ambiguous"):
        convert_file(saved(tmp_path, released_state("rms")))
    with pytest.raises(ConversionError, match="theta_v belongs to generation 'free'"):
        convert_file(saved(tmp_path, released_state("free")), choices_for("dc"))
    with pytest.raises(ConversionError, match="vz: generation 'rms' has no forward pass in 3-D"):
        convert_file(saved(tmp_path, released_state("dc", 3)), Choices(generation="rms"))


class Hostile:
    """Would make a folder if it were unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("plain", [False, True])
def test_nothing_in_a_file_is_executed(tmp_path, plain):
    path, trace = tmp_path / "weights.pth", tmp_path / "trace"
    content = {"state_dict": released_state("dc"), "extra": Hostile(trace)}
    if plain:
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path)
    reason = "$" if plain else r": it asks for (posix|nt)\.mkdir$"  # a newer pickle is not even looked into
    with pytest.raises(ConversionError, match=f"is not loaded{reason}"):
        convert_file(path, choices_for("dc"))
    assert not trace.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"no weights at all"])
@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_broken_files_are_refused(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConversionError, match=name):
        convert_file(tmp_path / name)


def test_files_without_sonic_layers_say_what_they_hold(tmp_path):
    with pytest.raises(ConversionError, match=r"contains no Sonic layer.*fc\.weight"):
        convert_file(saved(tmp_path, {"fc.weight": torch.zeros(2, 2)}))
    with pytest.raises(ConversionError, match="contains a list"):
        convert_file(saved(tmp_path, [torch.zeros(2)]))
    with pytest.raises(ConversionError, match="it has nothing"):
        convert_file(saved(tmp_path, {}))
    with pytest.raises(ConversionError, match=r"B_re must be dense and not quantised"):
        convert_file(saved(tmp_path, {**released_state("dc"), "B_re": torch.eye(5).to_sparse()}))
    with pytest.raises(ConversionError, match="several state dicts"):
        convert_file(saved(tmp_path, {"model": released_state("dc"), "net": released_state("dc")}))


@pytest.mark.parametrize("name", ["../../etc/x", "keys"])
def test_names_that_no_layer_can_have_are_refused(tmp_path, name):
    state = {f"{name}.{leaf}": value for leaf, value in released_state("dc").items()}
    with pytest.raises(ConversionError, match=f"weights.pth: layer names must not contain .*'{name}'"):
        convert_file(saved(tmp_path, state), choices_for("dc"))


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"band_order": 2}, "band_order=2 is for layers with"),
        ({"missing_bandwidth": "half"}, "missing_bandwidth='half'"),
    ],
)
def test_choices_that_no_layer_asks_for_are_refused(tmp_path, choices, words):
    with pytest.raises(ConversionError, match=words):
        convert_file(saved(tmp_path, released_state("dc")), choices_for("dc", **choices))


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"spacing": (1.0, -2.0)}, r"spacing must be positive and finite, got \(1.0, -2.0\)"),
        ({"spacing": ()}, "spacing must be positive"),
        ({"band_order": 0}, "band_order must be at least 1, got 0"),
        ({"generation": "first"}, "generation must be one of None, rms, dc, free, got 'first'"),
        ({"standardise": "batch"}, "standardise must be one of"),
        ({"missing_bandwidth": "all"}, "missing_bandwidth must be one of"),
    ],
)
def test_choices_without_meaning_are_refused(choices, words):
    with pytest.raises(ValueError, match=words):
        Choices(**choices)


def test_a_mask_may_be_of_bools(tmp_path):
    state = released_state("free", 2, mask=True)
    state["Bmask"] = state["Bmask"] > 0.5
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)
    layers = convert_file(saved(tmp_path, state), choices_for("free")).layers
    state["Bmask"] = state["Bmask"].double()
    assert relative_error(layers(x), released_operator(state, x, "free", (1.0, 1.0))[0]) < 1e-10


def test_a_small_file_cannot_fill_the_memory(tmp_path):
    state = {**released_state("dc"), "head.weight": torch.zeros(1).expand(10**7, 10**7)}
    path = saved(tmp_path, state)
    assert path.stat().st_size < 1 << 16
    with pytest.raises(ConversionError, match=r"head\.weight repeat numbers and are larger than the whole file"):
        convert_file(path, choices_for("dc"))


def test_one_tensor_under_many_names_is_refused(tmp_path):
    shared = torch.zeros(1 << 16)
    path = saved(tmp_path, {**released_state("dc"), **{f"head.{n}": shared for n in range(50)}})
    assert path.stat().st_size < 10 * shared.nbytes
    with pytest.raises(ConversionError, match="its tensors share numbers and would fill 13 MB"):
        convert_file(path, choices_for("dc"))


def test_wide_numbers_beside_narrow_ones_stay_what_they_are_or_are_refused(tmp_path):
    state = released_state("dc", dtype=torch.float32)
    expected = convert_file(saved(tmp_path, state), choices_for("dc")).layers
    long = {**state, **{name: state[name].double() * 1e300 for name in ("vx", "vy")}}
    found = convert_file(saved(tmp_path, long), choices_for("dc")).layers
    torch.testing.assert_close(found.state_dict(), expected.state_dict())
    with pytest.raises(ConversionError, match=r"mix_out would exceed the range of torch\.float32"):
        convert_file(saved(tmp_path, {**state, "C_re": state["C_re"].double() * 1e300}), choices_for("dc"))


def test_tensors_that_cannot_be_copied_are_named_before_anything_is_written(tmp_path, capsys):
    path = saved(tmp_path, {**released_state("dc"), "head.phase": torch.zeros(3, dtype=torch.complex128)})
    assert main(["convert", str(path), "--out", str(tmp_path / "ours"), *DC]) == 1
    assert "head.phase is torch.complex128, which safetensors cannot store" in capsys.readouterr().err
    assert not (tmp_path / "ours").exists()
