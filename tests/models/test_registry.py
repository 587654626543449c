"""Every registered model is tested by being registered."""

import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import torchsonic
from torchsonic.functional import resample
from torchsonic.models import SonicNet, model_entry
from torchsonic.models.registry import OPERATORS
from torchsonic.testing import relative_error

NAMES = torchsonic.list_models()
SHALLOW = {
    "resnet50": {"depths": (1, 1, 1, 1)},
    "sonic_sequence": {"strides": (2, 1)},
    "sonic_": {"depths": (1, 1, 1, 1)},
    "vit_s16": {"depth": 2},
}
TABLE_1 = {"sonicnet": 0.072, "convnet": 0.153, "vit": 0.468, "s4nd": 0.186, "niff": 0.042, "gfnet": 0.415}


def small(name: str, **overrides):
    """The registered model with fewer blocks, so that the suite stays fast; every kind of part is still there."""
    start = next((start for start in SHALLOW if name.startswith(start)), None)
    overrides = {**SHALLOW.get(start, {}), **overrides}
    if name.startswith("sonicnet3d.paper"):
        overrides = {"num_modes": 24, **overrides}
    torch.manual_seed(0)
    return torchsonic.create_model(name, **overrides)


def samples(name: str, size: str, batch: int = 2) -> torch.Tensor:
    entry, _ = model_entry(name)
    axes = {
        1: {"usual": (64,), "fine": (96,), "odd": (65,)},
        2: {"usual": (64, 64), "fine": (96, 96), "odd": (65, 51)},
        3: {"usual": (8, 16, 16), "fine": (12, 24, 24), "odd": (7, 17, 13)},
    }[len(entry.input_size) - 1]
    return torch.randn(batch, entry.input_size[0], *axes[size])


@pytest.mark.parametrize("name", NAMES)
def test_forward_at_two_resolutions_and_an_odd_size(name):
    model = small(name).eval()
    for size in ("usual", "fine", "odd"):
        x = samples(name, size)
        with torch.no_grad():
            y = model(x)
        classes = model.arguments.get("num_classes", y.shape[1])
        expected = (2, classes, *x.shape[2:]) if model_entry(name)[0].task == "segmentation" else (2, classes)
        assert y.shape == expected
        assert torch.isfinite(y).all()
        assert y.std() > 1e-3
        torch.testing.assert_close(model(x[:1]), y[:1], rtol=1e-3, atol=1e-4)  # samples do not see each other


@pytest.mark.parametrize("name", NAMES)
def test_gradient_reaches_every_parameter(name):
    model = small(name)
    with torch.no_grad():  # blocks of ResNets start as their skips, which would hide the rest
        for p in model.parameters():
            p.add_(0.1 * (p == 0))
    y = model(samples(name, "odd"))
    (y * torch.randn_like(y)).sum().backward()
    silent = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    if len(model_entry(name)[0].input_size) == 2:  # along one axis a mode has no direction to turn to, and no width
        silent = [key for key in silent if not key.endswith(("raw_direction", "raw_transverse"))]
    assert not silent, silent
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_model_is_bit_equal(name, tmp_path):
    model = small(name, num_classes=5)
    model(samples(name, "usual"))  # batch norms learn their statistics
    model.eval().save_pretrained(tmp_path)
    state = torch.random.get_rng_state()
    loaded = torchsonic.from_pretrained(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert type(loaded) is type(model)
    assert not loaded.training
    for (key, old), (key_loaded, new) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert key == key_loaded
        assert torch.equal(old, new), key
    x = samples(name, "odd")
    with torch.no_grad():
        assert torch.equal(model(x), loaded(x))


@pytest.mark.parametrize("name", NAMES)
def test_a_spacing_is_heard_or_refused(name):
    model = small(name, **({"zero_init_last": False} if name.startswith("resnet50") else {})).eval()
    x = samples(name, "usual")
    assert model.takes_spacing == any(part in name for part in ("sonic", "s4nd", "orbit"))
    if not model.takes_spacing:
        with pytest.raises((ValueError, TypeError), match="spacing"):
            model(x, spacing=0.5)
        return
    with torch.no_grad():
        told, untold = model(x, spacing=0.5), model(x)
        set_before = torchsonic.set_spacing(model, 0.5)(x)
    assert not torch.allclose(told, untold, rtol=1e-2)
    torch.testing.assert_close(set_before, told, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in NAMES if "sonic" in n])
def test_layers_know_the_strides_before_them(name):
    model = small(name)
    found = copy.deepcopy(model)
    entry, _ = model_entry(name)
    axes = len(entry.input_size) - 1
    torchsonic.infer_strides(found, torch.zeros(1, entry.input_size[0], *[64 if axes == 2 else 16] * axes))
    for (key, layer), (_, inferred) in zip(
        torchsonic.nn.spaced_layers(model), torchsonic.nn.spaced_layers(found), strict=True
    ):
        assert layer.input_stride == inferred.input_stride, key


# Tracing takes long for every block, however narrow. Of models that differ in widths, depths and axes alone, one is
# traced, and none that puts together what others have.
ALIKE = {
    "sonic_small": "sonic_tiny",
    "sonic_base": "sonic_tiny",
    "resnet50_sonic.paper_size": "the stem of resnet50_sonic.paper, the layers of resnet50_sonic",
    "resnet50_sonic.hybrid": "resnet50_sonic with the blocks of sonicnet2d.hybrid",
    "sonicnet3d.paper_size": "sonicnet3d",
    "sonicnet3d.light": "sonicnet2d.light",
    "sonicunet2d": "sonicunet3d",
}
TRACED = [n for n in NAMES if "sonic" in n and n not in ALIKE]


def traced(name: str):
    """The registered model with one block of each kind."""
    if name == "sonic_tiny":
        return small(name, widths=(8, 16), depths=(1, 1))
    if name.startswith("sonicunet"):
        return small(name, widths=(8, 16), num_modes=(4, 8))
    if name == "sonic_sequence":
        return small(name, width=8)
    return small(name, **({"width": 8} if name.startswith("resnet50") else {"depth": 1}))


def test_classifiers_differ_in_widths_and_depths_alone():
    arguments = [small(name).arguments for name in ("sonic_tiny", "sonic_small", "sonic_base")]
    rest = [{key: value for key, value in one.items() if key not in ("widths", "depths")} for one in arguments]
    assert rest[0] == rest[1] == rest[2]


@pytest.mark.parametrize("name", TRACED)
def test_compiled_model_gives_the_same_output(name):
    """Told a spacing; the test of several sizes is told none."""
    torch._dynamo.reset()
    model = traced(name).eval()
    x = samples(name, "usual")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert relative_error(compiled(x, 0.75), model(x, 0.75)) < 1e-5


# A local kernel is resampled to the spacing of the grid, which makes one more graph where a stride divides the size.
@pytest.mark.parametrize(
    ("name", "options", "train"),
    [
        ("sonic_tiny", {"widths": (8, 16), "depths": (1, 1)}, True),
        ("resnet50_sonic", {"width": 8, "depths": (1, 1, 1, 1)}, False),
        ("sonicnet2d.light", {"width": 8, "depth": 2, "num_modes": 4}, True),
        ("sonicnet3d", {"width": 8, "depth": 2, "num_modes": 4}, False),
        ("synthshape_sonicnet", {"width": 8, "depth": 1}, True),
        ("sonicunet2d", {"widths": (8, 16), "num_modes": (4, 8)}, True),
    ],
)
def test_five_sizes_need_at_most_two_graphs(name, options, train):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    entry, _ = model_entry(name)
    torch.manual_seed(0)
    model = torchsonic.create_model(name, **options).train(train)
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for size in (20, 21, 23, 24, 27):
        x = torch.randn(2, entry.input_size[0], *[size] * (len(entry.input_size) - 1))
        with torch.set_grad_enabled(train):
            y, expected = compiled(x), model(x)
        assert relative_error(y, expected) < 1e-4
        if train:
            weight, parameters = torch.randn_like(y), list(model.parameters())
            grads = [torch.autograd.grad(t, parameters, weight) for t in (y, expected)]
            scale = max(g.abs().max() for g in grads[1])
            for a, b in zip(*grads, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * scale)
    assert counter.frame_count <= 2


# Machine code takes half a minute to make; that of layers along any number of axes is held to the same in tests/nn.
@pytest.mark.slow
def test_model_compiled_to_machine_code_gives_the_same_output_and_gradients():
    torch._dynamo.reset()
    model, x = small("sonic_tiny", widths=(8,), depths=(1,)), samples("sonic_tiny", "usual")
    compiled = torch.compile(model, fullgraph=True)
    results = []
    for run in (model, compiled):
        model.zero_grad()
        y = run(x)
        y.square().mean().backward()
        results.append((y.detach(), [p.grad.clone() for p in model.parameters()]))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-4, atol=1e-5)
    for a, b in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-5 + 1e-3 * a.abs().max().item())


@pytest.mark.parametrize(("name", "millions"), TABLE_1.items())
def test_parameter_counts_are_those_of_table_1(name, millions):
    model = torchsonic.create_model(f"synthshape_{name}")
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 3) == millions


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("resnet50", 25.56),
        ("resnet50_dilated", 25.56),
        ("resnet50_gfnet", 15.72),
        ("resnet50_s4nd", 16.67),
        ("resnet50_sonic.paper", 1.34),
        ("resnet50_sonic.paper_size", 1.34),
        ("sonicnet3d.paper", 2.59),
        ("sonicnet3d.paper_size", 2.59),
        ("synthshape_sonicnet.paper", 0.07),
        ("vit_s16", 22.05),
    ],
)
def test_parameter_counts_of_the_large_models(name, millions):
    with torch.device("meta"):
        model = torchsonic.create_model(name)
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == millions


@pytest.mark.parametrize("operator", list(OPERATORS))
def test_operators_keep_their_own_initial_weights_in_a_resnet(operator):
    """A rival whose filters are drawn too small starts dead, and loses for no fault of its own."""
    torch.manual_seed(0)
    model = torchsonic.create_model("resnet50", operator=operator, depths=(1, 1, 1, 1), image_size=64)
    fresh = OPERATORS[operator](256, 256, stride=1, grid=4)
    placed = model.layer3[0].conv2
    for key, value in fresh.state_dict().items():
        if value.is_floating_point() and value.numel() > 100 and operator not in ("conv", "dilated"):
            assert placed.state_dict()[key].std().item() == pytest.approx(value.std().item(), rel=0.25, abs=1e-6), key
    heard = {}
    for name in ("layer1", "layer2", "layer3", "layer4"):
        getattr(model, name)[0].bn2.register_forward_hook(
            lambda _, args, y, name=name: heard.update({name: (args[0].std().item(), y.std().item())})
        )
    model(resample(torch.randn(8, 3, 16, 16), 64))
    for name, (before, behind) in heard.items():
        assert before > 5e-3, name  # well above the norm's epsilon, or its scale is lost
        assert behind == pytest.approx(1, abs=0.2), name


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("resnet50")])
def test_fresh_networks_have_moderate_logits_and_gradients(name):
    torch.manual_seed(0)
    model = torchsonic.create_model(name, num_classes=10)
    with torch.no_grad():
        assert model.eval()(torch.randn(4, 3, 64, 64)).abs().max() < 1e3
    y = model.train()(torch.randn(4, 3, 64, 64))
    torch.nn.functional.cross_entropy(y, torch.arange(4)).backward()
    assert torch.stack([p.grad.norm() for p in model.parameters()]).norm() < 100


def test_options_of_operators_are_checked_and_heard():
    shallow = {"depths": (1, 1, 1, 1)}
    with pytest.raises(ValueError, match="pass spacing to the model"):
        torchsonic.create_model("resnet50_sonic", operator_options={"spacing": 3.0}, **shallow)
    with pytest.raises(ValueError, match="grid must be one of"):
        torchsonic.create_model("resnet50", grid="bogus", **shallow)
    with pytest.raises(ValueError, match="grid='input' given, but stem='conv' uses the input's pixels; use"):
        torchsonic.create_model("resnet50_sonic.paper", grid="input", **shallow)
    with pytest.raises(ValueError, match="neither the stem nor operator 'conv' uses it"):
        torchsonic.create_model("resnet50", spacing=2.0, **shallow)
    model = torchsonic.create_model("resnet50_niff", operator_options={"hidden": (6, 3)}, **shallow)
    assert model.layer1[0].conv2.real[0].out_features == 6
    zeros = {"padding_mode": "zeros"}
    model = torchsonic.create_model("resnet50_sonic", stem="deep", operator_options=zeros, **shallow)
    assert model.conv1.sonic.padding_mode == model.layer4[0].conv2.padding_mode == "zeros"
    model = torchsonic.create_model("resnet50_sonic", operator_options={"num_modes": [8, 9, 10, 11]}, **shallow)
    assert [getattr(model, f"layer{i}")[0].conv2.num_modes for i in (1, 2, 3, 4)] == [8, 9, 10, 11]


def test_initial_modes_reach_over_the_grid_of_their_stage():
    """On a grid of 4 x 4 samples a mode of 64 would be a mean."""
    shallow = {"depths": (1, 1, 1, 1), "image_size": 128}
    resnet = torchsonic.create_model("resnet50_sonic", **shallow)
    assert [getattr(resnet, f"layer{i}")[0].conv2.field for i in (1, 2, 3, 4)] == [32, 16, 8, 4]
    classifier = torchsonic.create_model("sonic_tiny", **shallow)
    assert [getattr(classifier, f"stage{i}")[-1].mixer.field for i in range(4)] == [32, 16, 8, 4]
    last = classifier.stage3[-1].mixer.modes()
    assert (last.scale / last.pole.real.abs()).max() <= 4 * 32 * 1.001  # in pixels of the image
    chosen = {"operator_options": {"field": [9, 8, 7, 6], "num_modes": 5}, **shallow}
    for model, layer in (
        (torchsonic.create_model("resnet50_sonic", **chosen), "layer4.0.conv2"),
        (torchsonic.create_model("sonic_tiny", **chosen), "stage3.1.mixer"),
    ):
        assert (model.get_submodule(layer).field, model.get_submodule(layer).num_modes) == (6, 5)
    with pytest.raises(ValueError, match="pass spacing to the network, not in operator_options"):
        torchsonic.create_model("sonic_tiny", operator_options={"spacing": 2.0})


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SonicClassifier", {"widths": [8, 16], "depths": [1, 1], "num_classes": 3}),
        ("ResNet", {"operator": "sonic", "stem": "sonic", "width": 8, "depths": [1, 1, 1, 1], "num_classes": 3}),
    ],
)
def test_models_saved_before_there_were_deep_stems_are_built_as_they_were(name, arguments):
    """What is saved are the arguments that were given, so a default must not change what is built."""
    model = torchsonic.models.PretrainedModel.known[name](**arguments)
    stem = model.stem if name == "SonicClassifier" else model.conv1
    assert type(stem) is torchsonic.models.SonicStem
    assert stem.stride == (4, 4)
    assert [key for key, _ in stem.named_children()] == ["sonic"]


def test_what_a_caller_does_to_arguments_stays_with_him():
    torchsonic.create_model("resnet50_dilated").arguments["operator_options"]["dilation"][3] = 64
    assert torchsonic.create_model("resnet50_dilated").layer4[0].conv2.dilation == (4, 4)


@pytest.mark.parametrize("name", ["sonic_tiny", "vit_s16", "resnet50", "synthshape_convnet", "sonicnet2d"])
def test_wrong_input_is_named(name):
    model = small(name).eval()
    with pytest.raises(ValueError, match="expects 3 channels, got 4"):
        model(torch.randn(1, 4, 64, 64))
    with pytest.raises(ValueError, match=r"expects \(batch, channel, 2 axes\)"):
        model(torch.randn(3, 64, 64))
    with pytest.raises(TypeError, match="floating-point"):
        model(torch.zeros(1, 3, 64, 64, dtype=torch.long))
    with pytest.raises(TypeError, match=r"weights of torch.float32, but x is torch.float64; pass x.float\(\)"):
        model(torch.randn(1, 3, 64, 64, dtype=torch.float64))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("name", ["orbit_tiny", "sonic_tiny", "sonic_sequence"])
def test_narrow_classifiers_differ_between_images(name, width):
    """A norm of single channels and a mean over the image would leave nothing of it."""
    options = {
        "orbit_tiny": {"widths": (2, width), "strides": (1, 2), "num_modes": (2, 2)},
        "sonic_tiny": {"widths": (4, width), "depths": (1, 1), "norm": "group", "stem": "linear"},
        "sonic_sequence": {"width": width, "strides": (2, 1), "form": "pre", "norm": "group"},
    }[name]
    torch.manual_seed(0)
    if width == 1 and name != "orbit_tiny":
        with pytest.raises(ValueError, match=r"at least two channels .* use norm='batch' or a larger width"):
            torchsonic.create_model(name, num_classes=4, in_channels=1, **options)
        return
    model = torchsonic.create_model(name, num_classes=4, in_channels=1, **options).eval()
    with torch.no_grad():
        features = model.forward_features(torch.randn(6, 1, *[32] * model.num_axes))
        assert model.forward_head(features, pre_logits=True).std(0).max() > 1e-3


@pytest.mark.parametrize("bad", [-1, 2.5, "3"])
def test_a_wrong_number_of_classes_is_named(bad):
    with pytest.raises((ValueError, TypeError), match="num_classes must be"):
        small("sonic_tiny", num_classes=bad)


def test_wrong_names_are_refused_with_the_nearest_valid_one():
    with pytest.raises(ValueError, match="did you mean 'resnet50_sonic'"):
        torchsonic.create_model("resnet50_sonik")
    with pytest.raises(ValueError, match=r"unknown preset 'papr'.*did you mean 'paper'"):
        torchsonic.create_model("resnet50_sonic.papr")
    with pytest.raises(TypeError, match="no argument 'num_clases'; did you mean 'num_classes'"):
        torchsonic.create_model("sonic_tiny", num_clases=3)
    with pytest.raises(ValueError, match="unknown operator 'sonick'"):
        torchsonic.create_model("resnet50", operator="sonick")
    with pytest.raises(ValueError, match="unknown backbone"):
        torchsonic.create_model("synthshape_convnet", backbone="cnn")


def test_names_can_be_filtered():
    assert torchsonic.list_models("synthshape_*", presets=False) == sorted(
        f"synthshape_{n}" for n in [*TABLE_1, "orbitnet"]
    )
    assert "resnet50_sonic.paper" not in torchsonic.list_models(presets=False)


def test_a_registered_name_is_not_given_twice():
    from torchsonic.models.registry import MODELS

    with pytest.raises(ValueError, match="already registered"):
        MODELS.add("resnet50", MODELS["resnet50"])


def test_sonicnet_refuses_what_it_cannot_build():
    for bad in (
        {"depth": 0},
        {"head_kernel": 2},
        {"mlp_ratio": -1},
        {"spatial_dims": 4},
        {"norm": "layer"},
        {"form": "mid"},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            SonicNet(1, 2, **bad)


@pytest.mark.parametrize(
    ("name", "options", "margins"),
    [
        ("sonicnet2d", {"depth": 2}, [(8, 8), (8, 8)]),
        ("sonicnet2d.light", {"depth": 2, "spacing": (3.0, 1.0)}, [(8 / 3, 8), (4 / 3, 4)]),
        ("sonicnet3d", {"depth": 1, "padding": (1, 2, 3)}, [(1, 2, 3)]),
        ("sonicnet3d", {"depth": 1, "padding": None}, [None]),
        ("synthshape_sonicnet", {"depth": 1}, [(8, 8)]),
    ],
)
def test_networks_for_images_see_a_margin_of_zeros(name, options, margins):
    layers = [layer for _, layer in torchsonic.nn.sonic_layers(torchsonic.create_model(name, **options))]
    assert {layer.padding_mode for layer in layers} == {"zeros"}
    assert [layer.padding for layer in layers] == margins


def test_wrapping_networks_and_classifiers_have_no_margin():
    for name, options in (("sonicnet2d", {"padding_mode": "circular"}), ("sonicnet3d.paper", {}), ("sonic_tiny", {})):
        with torch.device("meta"):
            model = torchsonic.create_model(name, **options)
        for _, layer in torchsonic.nn.sonic_layers(model):
            assert (layer.padding_mode, layer.padding) == ("circular", None)
    with pytest.raises(ValueError, match="'circular' has no margin"):
        SonicNet(1, 2, padding=4, padding_mode="circular")


def test_checkpointing_changes_neither_gradients_nor_statistics():
    """Batch norms meet the batch a second time in the backward pass, and must not learn from it again."""
    for name in ("sonic_tiny", "resnet50_sonic", "sonicnet2d"):
        plain, frugal = small(name), small(name)
        if name == "sonicnet2d":
            frugal.blocks.checkpointing = True
        else:
            frugal.set_grad_checkpointing()
        x = samples(name, "usual")
        for model in (plain, frugal):
            for _ in range(2):
                model(x).square().mean().backward()
        for a, b in zip(plain.parameters(), frugal.parameters(), strict=True):
            torch.testing.assert_close(b.grad, a.grad)
        for (key, a), (_, b) in zip(plain.named_buffers(), frugal.named_buffers(), strict=True):
            assert torch.equal(a, b), key


def test_checkpointing_allows_several_backward_passes_through_one_graph():
    for name in ("sonic_tiny", "sonicnet2d"):
        model = small(name)
        if name == "sonicnet2d":
            model.blocks.checkpointing = True
        else:
            model.set_grad_checkpointing()
        y = model(samples(name, "usual")).square().mean()
        buffers = [buffer.clone() for buffer in model.buffers()]
        first, second = (torch.autograd.grad(y, list(model.parameters()), retain_graph=True) for _ in range(2))
        for a, b in zip(first, second, strict=True):
            torch.testing.assert_close(b, a)
        assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))
