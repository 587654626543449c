"""Whole networks that are told how the axes of their input lie in space."""

import copy
import itertools
import warnings

import pytest
import torch
from torch import nn

import torchsonic
from tests.turns import TIES, turn_about
from torchsonic.export import ExportConfig, export_model, load_exported
from torchsonic.nn import SonicBlock, SpacedSequential
from torchsonic.nn.network_orientation import OrientedNetwork
from torchsonic.spectral.orientation import Storage, split_affine
from torchsonic.testing import assert_orientation_is_exact, assert_storages_agree, relative_error
from torchsonic.testing.orientation import all_storages

STEPS = (2.0, 1.0, 0.6)
SMALL = {"widths": (4, 4), "num_modes": (4, 4)}
IMAGES = {
    "sonicnet2d": {"width": 4, "num_modes": 4},
    "sonicnet2d.light": {"width": 4, "num_modes": 4, "stride": (1, 2), "head_kernel": 3, "padding_mode": "circular"},
    "sonicunet2d.hybrid": {**SMALL, "spacing": (1.0, 2.5)},
    "orbitnet2d": {"width": 2, "depth": 2, "num_modes": 2},
    "synthshape_sonicnet": {"width": 8, "depth": 2, "head": "text"},
    "synthshape_orbitnet": {"width": 2, "depth": 2},
}
VOLUMES = {
    "sonicunet3d": {**SMALL, "local_kernel": 3, "spacing": (2.0, 1.0, 0.7)},
    "sonicnet3d": {"width": 4, "depth": 2, "num_modes": 4, "stride": (1, 2, 2), "head_kernel": 3, "local_kernel": 3},
    "orbitnet3d": {"width": 2, "depth": 2, "num_modes": 2, "group": "C4"},
}
CLASSIFIERS = {
    "sonic_tiny": {"widths": (4, 8), "depths": (1, 1), "norm": "group"},
    "orbit_tiny": {"widths": (2, 2), "strides": (1, 2), "num_modes": (2, 2)},
    "resnet50_sonic": {"stem": "deep"},
}
TILT = torch.linalg.matrix_exp(torch.tensor([[0.0, 0.2, 0], [-0.2, 0, 0.3], [0, -0.3, 0]], dtype=torch.float64))
QUARTER = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


def make(name, **options):
    torch.manual_seed(0)
    return torchsonic.create_model(name, **options).double().eval()


def volume(batch=1, size=(9, 7, 6)):
    return torch.randn(batch, 1, *size, dtype=torch.float64)


@pytest.mark.parametrize("name", [*IMAGES, *VOLUMES])
def test_every_way_to_store_an_image_gives_one_answer(name):
    model = make(name, **IMAGES.get(name, {}), **VOLUMES.get(name, {}))
    x = volume() if name in VOLUMES else torch.randn(2, 3, 15, 18, dtype=torch.float64)
    with torch.no_grad():
        assert_storages_agree(model, x, spacing=STEPS[: x.dim() - 2])


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_way_to_store_an_image_gives_one_class(name):
    model = make(name, num_classes=3, **CLASSIFIERS[name])
    x = torch.randn(1, 3, 33, 24, dtype=torch.float64)
    with torch.no_grad():
        assert_storages_agree(model, x, spacing=(1.0, 0.8), result="numbers")
        assert_storages_agree(model.forward_features, x, spacing=(1.0, 0.8))
        storage = Storage((1, 0), (True, False))
        told = {"spacing": (0.8, 1.0), "orientation": storage.matrix()}
        last, levels = model.forward_intermediates(storage.apply(x), **told)
        expected, plain = model.forward_intermediates(x, spacing=(1.0, 0.8))
        for found, wanted in zip([last, *levels], [expected, *plain], strict=True):
            assert relative_error(found, storage.apply(wanted)) < 1e-12


@pytest.mark.parametrize(("axis", "degrees"), TIES)
def test_every_way_to_store_a_volume_gives_one_answer_between_two_axes(axis, degrees):
    model, x = make("sonicunet3d", **VOLUMES["sonicunet3d"]), volume()
    turn = turn_about(axis, degrees)
    with torch.no_grad():
        expected = model(x, spacing=STEPS, orientation=turn)
        for storage in list(all_storages(3))[::5]:
            steps = [STEPS[axis] for axis in storage.order]
            found = model(storage.apply(x), spacing=steps, orientation=turn @ storage.matrix())
            assert relative_error(found, storage.apply(expected)) < 1e-12


def test_single_precision_agrees_too():
    model = make("sonicunet3d", **VOLUMES["sonicunet3d"]).float()
    with torch.no_grad():
        assert_storages_agree(model, volume().float(), spacing=STEPS, tolerance=1e-4)


def test_gradients_agree():
    model = make("sonicnet3d", **VOLUMES["sonicnet3d"]).train()
    x = volume().requires_grad_()
    weight = torch.randn(1, 4, 9, 7, 6, dtype=torch.float64)
    expected = torch.autograd.grad((model(x, spacing=STEPS) * weight).sum(), [x, *model.parameters()])
    storage = Storage((2, 0, 1), (True, False, True))
    y = model(storage.apply(x), spacing=[STEPS[axis] for axis in storage.order], orientation=storage.matrix())
    found = torch.autograd.grad((y * storage.apply(weight)).sum(), [x, *model.parameters()])
    assert all(relative_error(a, b) < 1e-10 for a, b in zip(found, expected, strict=True))


def test_an_oblique_array_is_exact_where_nothing_counts_voxels():
    bank = {"field": 4.0, "padding_mode": "circular", "standardise": False, "norm": "none"}
    model = make("sonicnet2d", in_channels=1, width=4, depth=2, num_modes=4, **bank)
    for part in model.modules():  # smooth: its harmonics stay below the grid's
        if isinstance(part, nn.GELU):
            part.forward = torch.tanh
    turn = torch.linalg.matrix_exp(torch.tensor([[0.0, 0.3], [-0.3, 0.0]], dtype=torch.float64))
    layer = torchsonic.SonicConv2d(1, 3, num_modes=4, field=4.0, dtype=torch.float64)
    with torch.no_grad():
        assert_orientation_is_exact(layer, (64, 72), 1, turn, spacing=(1.0, 0.8))
        for given in (turn @ QUARTER, (turn @ QUARTER).float(), (turn @ QUARTER).tolist()):
            assert_orientation_is_exact(layer, (72, 72), 1, given)
        assert_orientation_is_exact(model, (64, 72), 1, turn, spacing=(1.0, 0.8), width=4.0, tolerance=1e-3)


def test_samples_may_differ_in_orientation_and_spacing_and_so_in_size():
    model = make("sonicunet3d", **VOLUMES["sonicunet3d"])
    x = volume(4, (8, 6, 6))
    storages = [Storage((0, 1, 2), (False,) * 3), Storage((1, 0, 2), (True, False, False))]
    storages += [Storage((0, 2, 1), (False, True, True)), Storage((0, 1, 2), (True, True, False))]
    turns = torch.stack([storage.matrix() @ tilt for storage, tilt in zip(storages, [TILT, TILT.mT] * 2, strict=True)])
    steps = torch.tensor([STEPS, STEPS[::-1], (1.0, 1.0, 1.0), (1.0, 0.7, 0.7)], dtype=torch.float64)
    with torch.no_grad():
        whole = model(x, spacing=steps, orientation=turns)
        alone = [model(x[i : i + 1], spacing=steps[i], orientation=turns[i]) for i in range(4)]
    assert relative_error(whole, torch.cat(alone)) < 1e-12
    net = make("sonicnet3d", **VOLUMES["sonicnet3d"])
    with torch.no_grad():
        whole = net(x, spacing=steps, orientation=turns)
        alone = [net(x[i : i + 1], spacing=steps[i], orientation=turns[i]) for i in range(4)]
        shared = net(x, spacing=STEPS, orientation=turns)
        assert relative_error(shared[2:3], net(x[2:3], spacing=STEPS, orientation=turns[2])) < 1e-12
    assert relative_error(whole, torch.cat(alone)) < 1e-12


def test_an_affine_matrix_is_spacing_and_orientation():
    model = make("sonicnet3d", **VOLUMES["sonicnet3d"])
    x = volume(2)
    affines = torch.eye(4, dtype=torch.float64).repeat(2, 1, 1)
    affines[:, :3, :3] = torch.stack([TILT * torch.tensor(STEPS), TILT.mT.flip(0) * torch.tensor(STEPS[::-1])])
    affines[:, :3, 3] = 40.0
    spacing, orientation = split_affine(affines, 3)
    with torch.no_grad():
        assert torch.equal(model(x, affine=affines), model(x, spacing=spacing, orientation=orientation))
        one = model(x, affine=affines[0].float().numpy())
        assert relative_error(one, model(x, spacing=STEPS, orientation=TILT)) < 1e-6


def containers():
    convs = [nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 4, 3, padding=1, stride=(1, 2, 1))]
    yield torchsonic.replace_convs(nn.Sequential(*convs), num_modes=3)
    options = {"num_modes": 3, "spatial_dims": 3, "local_kernel": 3}
    yield SpacedSequential(SonicBlock(1, 4, stride=(1, 2, 2), **options), SonicBlock(4, 2, **options))
    yield make("sonicunet3d", **VOLUMES["sonicunet3d"])


@pytest.mark.parametrize("index", range(3))
def test_models_that_pass_on_only_x_are_told_beforehand(index):
    model = list(containers())[index].double().eval()
    torchsonic.infer_strides(model, volume(size=(8, 8, 8)))
    x = volume()
    with torch.no_grad():
        expected = torchsonic.set_spacing(model, STEPS)(x)
        told = copy.deepcopy(model)
        for storage in list(all_storages(3))[::5]:
            steps = [STEPS[axis] for axis in storage.order]
            torchsonic.set_spacing(torchsonic.set_orientation(told, storage.matrix()), steps)
            assert relative_error(told(storage.apply(x)), storage.apply(expected)) < 1e-12
            torchsonic.set_orientation(torchsonic.set_spacing(told, STEPS), None)
            torchsonic.set_orientation(torchsonic.set_spacing(told, steps), storage.matrix())
            assert relative_error(copy.deepcopy(told)(storage.apply(x)), storage.apply(expected)) < 1e-12
            torchsonic.set_orientation(told, None)
        assert torch.equal(torchsonic.set_spacing(told, STEPS)(x), expected)


def test_a_spacing_told_in_the_call_is_along_the_axes_of_the_input():
    torch.manual_seed(0)
    model = SpacedSequential(SonicBlock(1, 4, num_modes=3, spatial_dims=3)).double().eval()
    x = volume()
    with torch.no_grad():
        expected = model(x, STEPS)
        for storage in list(all_storages(3))[::5]:
            torchsonic.set_orientation(model, storage.matrix())
            steps = [STEPS[axis] for axis in storage.order]
            stored = storage.apply(x)
            for found in (
                model(stored, steps),
                model(stored, spacing=torch.tensor([steps], dtype=torch.float64)),
                model(stored, spacing=steps),
            ):
                assert relative_error(found, storage.apply(expected)) < 1e-12
        with pytest.raises(TypeError, match="by position"):
            model(x=stored)
        with pytest.raises(
            ValueError, match=r"was told its orientation by set_orientation; call set_orientation\(model, N"
        ):
            model(stored, orientation=TILT)
        torchsonic.set_orientation(model, None)
        assert torch.equal(model(x=x, spacing=STEPS), expected)


class Forwarding(nn.Module):
    """Passes whatever it is given on to a network."""

    def __init__(self):
        super().__init__()
        self.network = make("sonicunet2d", in_channels=1, num_classes=2, **SMALL)

    def forward(self, x, *positional, **named):
        return self.network(x, *positional, **named)


class Naming(Forwarding):
    def forward(self, x, spacing=None, affine=None):
        return self.network(x, spacing, affine=affine)


def test_an_orientation_in_the_call_is_refused_if_it_was_told_before():
    x, affine = torch.randn(1, 1, 12, 8, dtype=torch.float64), torch.eye(3)
    for model in (Forwarding(), Naming()):
        torchsonic.set_orientation(model, QUARTER)
        message = rf"{type(model).__name__} was told its orientation by set_orientation; .*, here affine="
        with pytest.raises(ValueError, match=message):
            model(x, affine=affine)
    with pytest.raises(ValueError, match=message):
        model(x, None, affine)


def test_a_wrapper_is_told_the_spacing_along_the_axes_of_its_input():
    storage = Storage((1, 0), (False, True))
    x = torch.randn(1, 1, 12, 8, dtype=torch.float64)
    forwarding, naming = Forwarding(), Naming()
    with torch.no_grad():
        expected = storage.apply(naming(x, (2.0, 0.6)))
        for model in (forwarding, naming):
            torchsonic.set_orientation(model, storage.matrix())
            assert relative_error(model(storage.apply(x), spacing=(0.6, 2.0)), expected) < 1e-12
        assert relative_error(naming(storage.apply(x), (0.6, 2.0)), expected) < 1e-12
        with pytest.raises(TypeError, match=r"forward has no name for an argument behind .*spacing="):
            forwarding(storage.apply(x), (0.6, 2.0))


class WithCount(OrientedNetwork):
    """A network whose result is more than a tensor."""

    def __init__(self):
        super().__init__()
        self.layer = torchsonic.SonicConv2d(1, 2, num_modes=3)

    def _forward(self, x, spacing=None):
        return {"logits": self.layer(x, spacing), "levels": 1}


def test_results_may_hold_more_than_tensors_whatever_the_orientations():
    model, x = WithCount().double(), torch.randn(2, 1, 8, 6, dtype=torch.float64)
    turns = torch.stack([torch.eye(2, dtype=torch.float64), QUARTER])
    found = model(x, orientation=turns)
    assert found["levels"] == 1
    alone = [model(x[i : i + 1], orientation=turns[i])["logits"] for i in range(2)]
    assert relative_error(found["logits"], torch.cat(alone)) < 1e-12


def test_samples_told_beforehand_may_differ_if_their_sizes_agree():
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), torchsonic.SonicConv2d(2, 2, num_modes=3)).double()
    x = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    turns = torch.stack([torch.eye(2, dtype=torch.float64), QUARTER])
    alone = torch.cat([torchsonic.set_orientation(model, turns[i])(x[i : i + 1]) for i in range(2)])
    assert relative_error(torchsonic.set_orientation(model, turns)(x), alone) < 1e-12
    with pytest.raises(ValueError, match="no common size"):
        model(torch.randn(2, 1, 8, 6, dtype=torch.float64))
    with pytest.raises(ValueError, match="2 matrices for a batch of 3"):
        model(torch.randn(3, 1, 8, 8, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore:the model has strides")  # behind the last layer
@pytest.mark.parametrize("name", ["sonicnet2d", "sonicunet2d.hybrid", "orbitnet2d", "orbit_tiny"])
def test_samples_told_beforehand_may_differ_in_size_in_a_network(name):
    model, x = make(name, **{**IMAGES, **CLASSIFIERS}[name]), torch.randn(2, 3, 18, 24, dtype=torch.float64)
    turns = torch.stack([turn_about((1, 0, 0), degrees)[1:, 1:] for degrees in (30, 110)])
    steps = torch.tensor([[2.0, 1.0], [0.8, 1.2]], dtype=torch.float64)
    with torch.no_grad():
        plain, spaced = model(x, orientation=turns), model(x, spacing=steps, orientation=turns)
        torchsonic.set_orientation(model, turns)
        assert relative_error(model(x), plain) < 1e-12
        assert relative_error(model(x, spacing=steps), spaced) < 1e-12
        assert relative_error(torchsonic.set_spacing(model, steps)(x), spaced) < 1e-12


def test_an_input_that_is_no_tensor_is_named():
    model = make("sonicnet2d", in_channels=1, width=4, depth=1)
    wrong = torch.randn(1, 1, 8, 6).numpy()
    for told in ({"orientation": torch.eye(2)}, {"affine": torch.eye(3)}, {}):
        with pytest.raises(TypeError, match=r"^SonicNet expects a tensor, got ndarray"):
            model(wrong, **told)
    with pytest.raises(TypeError, match=r"^SonicNet expects a tensor, got ndarray"):
        torchsonic.set_orientation(model, QUARTER)(wrong)
    with pytest.raises(TypeError, match="no tensor, but a ndarray"):
        SonicBlock(1, 2, num_modes=3)(wrong, orientation=QUARTER)


def test_an_orientation_of_one_image_is_not_lost():
    """Layers take an image without a batch, which networks cannot rearrange."""
    model, x = WithCount(), torch.randn(1, 8, 6)
    for call in (lambda: model(x, orientation=QUARTER), lambda: torchsonic.set_orientation(model, QUARTER)(x)):
        with pytest.raises(ValueError, match=r"WithCount expects \(batch, channel, 2 axes\), got shape"):
            call()


def test_what_a_call_is_told_wins_over_what_a_network_assumes():
    model = make("sonicnet3d", **VOLUMES["sonicnet3d"])
    x = volume()
    with torch.no_grad():
        plain, tilted = model(x), model(x, orientation=TILT)
        torchsonic.set_orientation(model, TILT)
        assert torch.equal(model(x), tilted)
        assert relative_error(model(x, orientation=torch.eye(3)), plain) < 1e-12
        # A second call has cached responses.
        assert torch.equal(model(x), tilted)
        assert torch.equal(torchsonic.set_orientation(model, None)(x), plain)
    assert relative_error(tilted, plain) > 1e-3


@pytest.mark.parametrize("name", [*IMAGES, *VOLUMES, *CLASSIFIERS])
def test_an_empty_batch_gives_an_empty_result(name):
    model = make(name, **{**IMAGES, **VOLUMES, **CLASSIFIERS}[name])
    x = volume(2) if name in VOLUMES else torch.randn(2, 3, 32, 32, dtype=torch.float64)
    axes = x.dim() - 2
    told = {"orientation": torch.eye(axes), "affine": torch.eye(axes + 1), "spacing": torch.ones(axes)}
    with torch.no_grad():
        shape = (0, *model(x).shape[1:])
        for key, value in told.items():
            assert model(x[:0], **{key: value.expand(0, *value.shape)}).shape == shape
        turns = torch.eye(axes).expand(0, axes, axes)
        assert model(x[:0], spacing=torch.ones(0, axes), orientation=turns).shape == shape


def test_checkpointing_changes_nothing():
    models = [make("sonicnet3d", **VOLUMES["sonicnet3d"], checkpointing=on).train() for on in (False, True)]
    told = {"spacing": STEPS, "orientation": TILT.flip(0)}
    x = volume()
    grads = [torch.autograd.grad(m(x, **told).square().sum(), [*m.parameters()]) for m in models]
    assert all(relative_error(a, b) < 1e-12 for a, b in zip(*grads, strict=True))


def test_compiled_networks_are_told_too():
    model = make("sonicnet2d", in_channels=1, width=4, depth=2, num_modes=3).float()
    x, turn = torch.randn(1, 1, 8, 6), QUARTER @ torch.linalg.matrix_exp(0.1 * (QUARTER - QUARTER.mT))
    expected = model(x, spacing=(1.0, 0.5), orientation=turn)
    compiled = torch.compile(model, backend="aot_eager")
    assert relative_error(compiled(x, spacing=(1.0, 0.5), orientation=turn), expected) < 1e-5
    torchsonic.set_orientation(model, turn)
    whole = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert relative_error(whole(x, spacing=(1.0, 0.5)), expected) < 1e-5


TURNS = {"stored": QUARTER, "oblique": QUARTER @ torch.linalg.matrix_exp(0.1 * (QUARTER - QUARTER.mT))}


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("spacing_input", ["no", "batch"])
def test_an_exported_network_keeps_its_orientation(tmp_path, spacing_input, turn):
    local = 3 if spacing_input == "no" else 0
    model = make("sonicnet2d", in_channels=1, width=4, depth=2, num_modes=3, padding=None, local_kernel=local).float()
    torchsonic.set_orientation(model, TURNS[turn])
    config = ExportConfig(to="pt2", size=(12, 10), spacing_input=spacing_input, dynamic=("batch",))
    path = tmp_path / "model.pt2"
    assert export_model(model, path, config, timed_seconds=0.0).error < 1e-4  # checked against it
    told = torch.tensor(load_exported(path, "pt2").metadata["orientation"], dtype=torch.float64)
    torch.testing.assert_close(told, TURNS[turn], rtol=0, atol=1e-12)


def test_an_oriented_network_is_exported_with_a_dynamic_size(tmp_path):
    options = {"width": 2, "depth": 1, "num_modes": 2, "padding": None, "padding_mode": "circular"}
    model = torchsonic.set_orientation(make("sonicnet2d", in_channels=1, **options).float(), TURNS["oblique"])
    config = ExportConfig(to="pt2", size=(12, 10), dynamic=("batch", "size"))
    assert export_model(model, tmp_path / "model.pt2", config, timed_seconds=0.0).error < 1e-4


def test_orientations_of_samples_fix_the_batch_of_an_export(tmp_path):
    model = make("sonicnet2d", in_channels=1, width=2, depth=1, num_modes=2).float()
    torchsonic.set_orientation(model, torch.stack([QUARTER, QUARTER.mT]))
    config = ExportConfig(to="pt2", size=(8, 8), batch=2, dynamic=("batch",))
    with pytest.raises(ValueError, match=r"told 2 orientations, one per sample.*leave them out, or tell one"):
        export_model(model, tmp_path / "model.pt2", config)


@pytest.mark.parametrize(("kind", "to"), [("batch", "pt2"), ("sample", "pt2"), ("batch", "onnx")])
def test_an_exported_network_may_take_the_orientation_as_an_input(tmp_path, kind, to):
    """Around the storage that it was told; parts that are tied to axes keep that one."""
    pytest.importorskip("onnxruntime") if to == "onnx" else None
    local = 3 if kind == "batch" else 0
    options = {"width": 4, "depth": 1, "num_modes": 3, "padding": None, "padding_mode": "circular"}
    model = make("sonicnet2d", in_channels=1, local_kernel=local, **options).float()
    torchsonic.set_orientation(model, TURNS["oblique"])
    config = ExportConfig(to=to, size=(12, 10), batch=2, orientation_input=kind, dynamic=("batch",))
    path = tmp_path / f"model.{to}"
    assert export_model(model, path, config, timed_seconds=0.0).error < 1e-4
    x, exported = torch.randn(2, 1, 12, 10), load_exported(path, to)
    turns = torch.stack([QUARTER, TURNS["oblique"].mT @ QUARTER @ QUARTER]).float()
    answers = []
    for turn in (turns,) if kind == "sample" else turns:
        with torch.no_grad():
            expected = model(x, orientation=turn)
        answers.append(exported(x, turn))
        assert relative_error(answers[-1], expected) < 1e-5
    assert kind == "sample" or relative_error(*answers) > 1e-3
    with pytest.raises(ValueError, match=r"orientation must be float32 of shape \(.*2, 2\)"):
        exported(x, turns[0, 0])


def test_an_even_margin_allows_orientations_of_samples_as_an_input(tmp_path):
    """It does not follow the orientation, so a dynamic batch has one margin; an uneven one says why it cannot."""
    options = {"width": 4, "depth": 1, "num_modes": 3}
    config = ExportConfig(to="pt2", size=(12, 10), orientation_input="sample", dynamic=("batch",))
    model = make("sonicnet2d", in_channels=1, **options).float()
    assert export_model(model, tmp_path / "model.pt2", config, timed_seconds=0.0).error < 1e-4
    uneven = make("sonicnet2d", in_channels=1, padding=(2, 3), **options).float()
    with pytest.raises(ValueError, match="not equally wide along all axes, and so follows the orientation"):
        export_model(uneven, tmp_path / "model.pt2", config)


def test_synthshape_networks_may_take_the_orientation_as_an_input(tmp_path):
    """Their forward, which also takes a window, says so."""
    model = make("synthshape_sonicnet", width=4, depth=1, backbone_options={"num_modes": 2}, head_norm="channel")
    config = ExportConfig(to="pt2", size=(12, 10), orientation_input="batch")
    assert export_model(model.float(), tmp_path / "model.pt2", config, timed_seconds=0.0).error < 1e-4


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: nn.Sequential(torchsonic.SonicConv2d(1, 2, num_modes=2)),
            "takes no orientation in a call; leave it out",
        ),
        (
            lambda: torchsonic.set_orientation(SonicBlock(1, 2, num_modes=2), QUARTER),
            "once set_orientation has rearranged",
        ),
        (lambda: torchsonic.create_model("resnet50", in_channels=1, depths=(1, 1, 1, 1)), "would ignore it"),
        (lambda: torchsonic.SonicConv2d(1, 2, num_modes=2, padding=(2, 3), padding_mode="zeros"), "not equally wide"),
    ],
)
def test_what_cannot_take_an_orientation_as_an_input_says_so(tmp_path, build, message):
    config = ExportConfig(to="pt2", size=(12, 10), orientation_input="batch")
    with pytest.raises(ValueError, match=message):
        export_model(build(), tmp_path / "model.pt2", config)


def test_strides_are_inferred_along_the_axes_of_the_layers():
    convs = [nn.Conv2d(1, 2, 3, padding=1, stride=(2, 1)), torchsonic.SonicConv2d(2, 2, num_modes=3)]
    model = torchsonic.set_orientation(nn.Sequential(*convs), QUARTER)
    assert torchsonic.infer_strides(model, torch.randn(1, 1, 12, 8))[1].input_stride == (2, 1)


def test_the_order_of_telling_does_not_matter():
    x = torch.randn(1, 1, 12, 8, dtype=torch.float64)
    results = []
    tell = {
        "strides": lambda model: torchsonic.infer_strides(model, x),
        "spacing": lambda model: torchsonic.set_spacing(model, (3.0, 0.5)),
        "orientation": lambda model: torchsonic.set_orientation(model, QUARTER),
    }
    for order in itertools.permutations(tell):
        torch.manual_seed(0)
        convs = [nn.Conv2d(1, 2, 3, padding=1, stride=(2, 1)), torchsonic.SonicConv2d(2, 2, num_modes=3)]
        model = nn.Sequential(*convs).double().eval()
        with warnings.catch_warnings(action="ignore"):  # that strides should be known first
            for name in order:
                tell[name](model)
        results.append(model(x))
    assert all(torch.equal(result, results[0]) for result in results)


def test_a_spacing_told_beforehand_is_along_the_axes_of_the_input():
    model, x = make("sonicnet2d", in_channels=1, width=4, depth=2, num_modes=3), torch.randn(1, 1, 8, 6).double()
    with torch.no_grad():
        expected = model(x, spacing=(2.0, 1.0), orientation=QUARTER)
        torchsonic.set_spacing(model, (2.0, 1.0))
        assert relative_error(model(x, orientation=QUARTER), expected) < 1e-12
        torchsonic.set_orientation(model, QUARTER)
        assert relative_error(model(x), expected) < 1e-12
        assert relative_error(model(x, orientation=QUARTER), expected) < 1e-12


def test_layers_are_not_replaced_in_a_model_that_was_told_an_orientation():
    layers = [torchsonic.SonicConv2d(1, 2, num_modes=3), nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)]
    model = torchsonic.set_orientation(nn.Sequential(*layers), QUARTER)
    with pytest.raises(ValueError, match=r"set_orientation\(model, None\) first"):
        torchsonic.replace_convs(model)
    assert type(torchsonic.replace_convs(torchsonic.set_orientation(model, None))[2]) is torchsonic.SonicConv2d


def test_what_was_told_does_not_change_with_the_callers_tensor():
    turns, steps = torch.eye(2, dtype=torch.float64)[None].repeat(2, 1, 1), torch.ones(2, 2, dtype=torch.float64)
    model = SpacedSequential(torchsonic.SonicConv2d(1, 2, num_modes=3)).double()
    model[0].set_orientation(turns)
    torchsonic.set_spacing(model, steps)
    x = torch.randn(2, 1, 8, 6, dtype=torch.float64)
    expected = model(x)
    turns.neg_()
    steps.mul_(3)
    assert torch.equal(model(x), expected)
    assert torch.equal(model.told_spacing, torch.ones(2, 2))


def test_saving_forgets_the_orientation(tmp_path):
    model = torchsonic.set_orientation(make("sonicnet2d", in_channels=1, width=4, depth=1), QUARTER)
    x = torch.randn(1, 1, 8, 6, dtype=torch.float64)
    loaded = torchsonic.from_pretrained(model.save_pretrained(tmp_path))
    with torch.no_grad():
        assert relative_error(loaded(x, orientation=QUARTER), model(x)) < 1e-12


def sheared():
    affine = torch.eye(4)
    affine[1, 2] = 0.2
    return affine


def moved():
    affine = torch.eye(4)
    affine[0, 3] = -40.0
    return affine


SKEW = torch.tensor([[1.0, 0.2, 0.0], [0.0, 0.98, 0.0], [0.0, 0.0, 1.0]])
BAD = {
    "lengths": ({"orientation": 2 * torch.eye(3)}, "orthogonal, but its columns have lengths 2, 2, 2;.*affine="),
    "angle": ({"orientation": SKEW}, "orthogonal, but columns 0 and 1 are 78.5 degrees apart; resample"),
    "one of several": ({"orientation": torch.stack([torch.eye(3), SKEW])}, "columns 0 and 1 are 78.5 degrees apart"),
    "zeros": ({"orientation": torch.zeros(3, 3)}, "its columns have lengths 0, 0, 0"),
    "complex": ({"orientation": TILT + 0j}, "orientation must be real numbers, got torch.complex128"),
    "complex list": ({"orientation": [[1, 0, 0], [0, 1j, 0], [0, 0, 1]]}, "orientation must be real numbers"),
    "shape": ({"orientation": torch.eye(2)}, r"must have shape \(3, 3\)"),
    "count": ({"orientation": torch.eye(3).expand(3, 3, 3)}, "^orientation has 3 matrices for a batch of 2"),
    "batch": ({"orientation": torch.stack([torch.eye(3), TILT.float(), TILT.mT.float()])}, "3 matrices for a batch of"),
    "affine shape": ({"affine": torch.eye(3)}, r"must have shape \(4, 4\)"),
    "affine count": ({"affine": torch.eye(4).expand(3, 4, 4)}, "^affine has 3 matrices for a batch of 2"),
    "transposed": (
        {"affine": moved().mT},
        r"last row of affine must be \(0, 0, 0, 1\).*, pass affine.T",
    ),
    "negative": ({"affine": -torch.eye(4)}, r"last row of affine must be \(0, 0, 0, 1\).*flipped or scaled, so write"),
    "meta": (
        {"orientation": torch.eye(3, device="meta")},
        "must be a dense tensor .*, got one on the meta device; pass",
    ),
    "sparse": (
        {"affine": torch.eye(4).to_sparse()},
        "affine must be a dense .*, got one of layout torch.sparse_coo; p",
    ),
    "shear": ({"affine": sheared()}, r"sheared: array axes 1 and 2 are 11.3 degrees.*resample"),
    "no length": ({"affine": torch.diag(torch.tensor([1.0, 1.0, 0.0, 1.0]))}, "column 2 of affine is zero, so axis 2"),
    "twice": ({"affine": torch.eye(4), "spacing": 1.0}, "either affine or the other two"),
    "words": ({"orientation": "RAS"}, "must be numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_named(name):
    told, message = BAD[name]
    model = make("sonicnet3d", **VOLUMES["sonicnet3d"])
    with pytest.raises((ValueError, TypeError), match=message):
        model(volume(2), **told)


@pytest.mark.parametrize("name", ["synthshape_convnet", "synthshape_s4nd", "synthshape_gfnet", "resnet50"])
def test_networks_that_would_ignore_it_say_so(name):
    model = torchsonic.create_model(name)
    x = torch.randn(1, 3, 32, 32)
    tell = {
        "orientation was given": lambda: model(x, orientation=QUARTER),
        "affine was given": lambda: model(x, affine=torch.eye(3)),
        "set_orientation was called": lambda: torchsonic.set_orientation(model, None),
    }
    for words, call in tell.items():
        with pytest.raises(ValueError, match=f"{words}, but this .* would ignore it|S4ND cannot take an orientation"):
            call()


def test_orientations_of_no_sample_and_of_vmap_are_refused():
    layer, x = torchsonic.SonicConv2d(1, 2, num_modes=3), torch.randn(2, 1, 8, 6)
    for model in (layer, nn.Sequential(layer)):
        with pytest.raises(ValueError, match=r"orientation has no matrices, shape \(0, 2, 2\); pass one"):
            torchsonic.set_orientation(model, torch.zeros(0, 2, 2))
    with pytest.raises(TypeError, match=r"got one of torch.func.vmap; .* as one tensor \(batch, 2, 2\)"):
        torch.func.vmap(lambda image, turn: layer(image, orientation=turn))(x, torch.stack([QUARTER, QUARTER.mT]))


def test_matrices_may_be_lists_of_anything():
    model, x = make("sonicnet3d", **VOLUMES["sonicnet3d"]), volume(2)
    affine = torch.eye(4, dtype=torch.float64)
    affine[:3, :3] = TILT
    with torch.no_grad():
        expected = model(x, affine=affine)
        for matrices in ([affine, affine], (affine.numpy(),) * 2, [affine.tolist()] * 2, [affine, affine.numpy()]):
            assert relative_error(model(x, affine=matrices), expected) < 1e-12
        assert relative_error(model(x, spacing=1.0, orientation=[TILT[0], TILT[1], TILT[2]]), expected) < 1e-12


def test_mistakes_with_oriented_containers_are_named():
    layers = [nn.Conv2d(1, 2, 3, padding=1, stride=(2, 1)), torchsonic.SonicConv2d(2, 2, num_modes=3)]
    model, x = torchsonic.set_orientation(nn.Sequential(*layers), QUARTER), torch.randn(2, 1, 8, 8)
    for wrong in (x[0], x[None], "image"):
        with pytest.raises(ValueError, match=r"expects \(batch, channel, 2 axes\), got"):
            model(wrong)
    with pytest.raises(TypeError, match=r"by position, model\(x\)"):
        model(input=x)
    torchsonic.set_orientation(model, torch.stack([torch.eye(2), QUARTER.float()]))
    with pytest.raises(ValueError, match=r"different sizes, \[\(4, 8\), \(8, 4\)\]; call the model once per"):
        model(x)
    layers[1].set_orientation(torch.stack([torch.eye(2), QUARTER.float()]))
    for wrong in (x[0], torch.cat([x, x])):
        with pytest.raises(ValueError, match="orientation has 2 matrices for a batch of"):
            layers[1](wrong.repeat(*[1] * (wrong.dim() - 3), 2, 1, 1))
    chain = torchsonic.set_orientation(SpacedSequential(SonicBlock(1, 2, num_modes=3)), QUARTER)
    with pytest.raises(ValueError, match="told its orientation by set_orientation"):
        chain(x, orientation=QUARTER)
    network = torchsonic.set_orientation(make("sonicnet2d", in_channels=1, width=4, depth=1), QUARTER)
    with pytest.raises(ValueError, match=r"expects \(batch, channel, 2 axes\)"):
        network(x[0])


def test_blocks_are_told_beside_the_spacing():
    block = SonicBlock(2, 3, num_modes=3, spatial_dims=3, local_kernel=3, mlp_ratio=2, norm="channel").double()
    x = torch.randn(2, 2, 5, 6, 4, dtype=torch.float64)
    assert_storages_agree(block, x, spacing=STEPS)
    assert_storages_agree(SpacedSequential(block), x, spacing=STEPS)
    turns = torch.stack([TILT, TILT.flip(1)])
    whole = block(x, STEPS, orientation=turns)
    alone = [block(x[i : i + 1], STEPS, orientation=turns[i]) for i in range(2)]
    assert relative_error(whole, torch.cat(alone)) < 1e-12
    with pytest.raises(ValueError, match="S4ND cannot take an orientation"):
        torchsonic.baselines.S4ND(2, 2).set_orientation(QUARTER)


@pytest.mark.parametrize("middle", ["local", "stride", "pooling", "network"])
def test_a_chain_rearranges_its_input_like_a_network(middle):
    torch.manual_seed(0)
    part = {
        "local": lambda: nn.Conv2d(4, 4, 3, padding=1),
        "stride": lambda: SonicBlock(4, 4, num_modes=3, stride=(1, 2)),
        "pooling": lambda: nn.MaxPool2d(2),
        "network": lambda: torchsonic.create_model("sonicnet2d.light", in_channels=4, num_classes=4, width=4),
    }[middle]
    inner = SpacedSequential(part(), nn.ReLU())  # rearranged once, by the whole
    chain = SpacedSequential(SonicBlock(1, 4, num_modes=3), inner, SonicBlock(4, 2, num_modes=3)).double().eval()
    x = torch.randn(2, 1, 12, 8, dtype=torch.float64)  # strides that are told beforehand divide it
    turns = torch.stack([QUARTER, TURNS["oblique"].mT])
    with torch.no_grad():
        assert_storages_agree(chain, x, spacing=STEPS[:2])
        told = [chain(x[i : i + 1], STEPS[:2], orientation=turns[i]) for i in range(2)]
        if middle != "stride":  # sizes agree
            assert relative_error(chain(x, STEPS[:2], orientation=turns), torch.cat(told)) < 1e-12
        with warnings.catch_warnings(action="ignore"):  # of pooling, which is no layer with strides to be told
            torchsonic.set_spacing(chain, STEPS[:2])
        assert relative_error(chain(x[:1], orientation=turns[0]), told[0]) < 1e-12
        for i in range(2):
            torchsonic.set_orientation(chain, turns[i])
            assert relative_error(chain(x[i : i + 1]), told[i]) < 1e-12


def test_a_chain_without_sonic_layers_would_ignore_the_orientation():
    with pytest.raises(ValueError, match="orientation was given, but this SpacedSequential has no Sonic layer"):
        SpacedSequential(nn.Conv2d(1, 1, 3))(torch.randn(1, 1, 8, 8), orientation=QUARTER)


class Deaf(nn.Module):
    """Hears the spacing, but not the orientation."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, spacing=None, orientation=None):
        return self.layer(x, spacing)


def test_laws_catch_a_layer_that_does_not_listen():
    layer = torchsonic.SonicConv2d(1, 2, num_modes=4, field=4.0, dtype=torch.float64)
    x = torch.randn(1, 1, 7, 8, dtype=torch.float64)
    with pytest.raises(AssertionError, match="axes stored in the order"):
        assert_storages_agree(Deaf(layer), x)
    with pytest.raises(AssertionError, match="oblique grid"):
        assert_orientation_is_exact(Deaf(layer), (48, 48), 1, torch.linalg.matrix_exp(0.3 * (QUARTER - QUARTER.mT)))
