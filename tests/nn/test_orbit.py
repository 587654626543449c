"""Layers that turn with the image."""

import math

import pytest
import torch

import torchsonic
from torchsonic import Group, make_group, testing
from torchsonic.export import ExportConfig, export_model
from torchsonic.functional import resample
from torchsonic.nn import (
    OrbitBatchNorm,
    OrbitBlock,
    OrbitDropout,
    OrbitMix,
    OrbitNorm,
    OrbitPool,
    SonicOrbitConv2d,
    SonicOrbitConv3d,
    SpacedSequential,
)

PLANE = ["C1", "C3", "C4", "C8", "D1", "D4", "D6"]
SPACE = {
    "C4": 4, "C4v": 8, "C4h": 8, "D4": 8, "D3h": 12, "T": 12, "Td": 24, "Th": 24, "O": 24, "Oh": 48, "I": 60, "Ih": 120,
}  # fmt: skip
CASES = [(name, 2) for name in PLANE] + [(name, 3) for name in SPACE]
LAYERS = {2: SonicOrbitConv2d, 3: SonicOrbitConv3d}
SHORT = {"field": 1.0, "bank": {"shortest_decay": 0.4, "width_to_length": 1.0}}


def make_orbit(name: str, num_axes: int, fields=(2, 3), *, lift=False, seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    order = len(make_group(name, num_axes))
    channels = fields[0] if lift else fields[0] * order
    options = {"num_modes": 3, "spacing": (1.0, 0.7, 1.4)[:num_axes], **options}
    layer = LAYERS[num_axes](channels, fields[1] * order, group=name, lift=lift, dtype=dtype, **options)
    with torch.no_grad():
        if layer.bias is not None:
            layer.bias.normal_()
    return layer


class TestGroup:
    @pytest.mark.parametrize(("name", "num_axes"), CASES)
    def test_tables_describe_the_matrices(self, name, num_axes):
        group = make_group(name, num_axes)
        size = SPACE[name] if num_axes == 3 else int(name[1:]) * (2 if name[0] == "D" else 1)
        assert len(group) == size
        product = torch.einsum("sij,tjk->stik", group.matrices, group.matrices)
        torch.testing.assert_close(group.matrices[group.products], product)
        torch.testing.assert_close(group.matrices[group.inverses], group.matrices.mT)
        reflected = bool((group.matrices.det() < 0).any())
        assert reflected == (name[-1] in "dhv" or (num_axes == 2 and name[0] == "D"))

    def test_axis_is_what_it_turns_about(self):
        for axis in range(3):
            group = make_group("C5", 3, axis=axis)
            assert (group.matrices[:, axis, axis] == 1).all()

    def test_own_groups(self):
        quarter = [[0, -1], [1, 0]]
        assert len(Group.generate([quarter])) == 4
        with pytest.raises(ValueError, match="not a group"):
            Group([[[1, 0], [0, 1]], quarter])
        with pytest.raises(ValueError, match="identity"):
            Group([quarter])
        with pytest.raises(ValueError, match="orthogonal"):
            Group([[[1, 0], [0, 1]], [[2, 0], [0, 1]]])
        with pytest.raises(ValueError, match="more than 1000"):
            Group.generate([[[0.6, -0.8], [0.8, 0.6]]])

    @pytest.mark.parametrize(
        ("name", "num_axes"), [("C7", 2), ("C16", 2), ("C100", 2), ("D12", 2), ("C9h", 3), ("I", 3)]
    )
    def test_single_precision_gives_the_exact_group(self, name, num_axes):
        exact = make_group(name, num_axes)
        for group in (Group(exact.matrices.float()), Group.generate(exact.matrices[1:4].float())):
            assert len(group) == len(exact)
            products = group.matrices[:, None] @ group.matrices
            torch.testing.assert_close(group.matrices[group.products], products, rtol=0, atol=1e-13)

    def test_groups_have_up_to_1000_elements(self):
        large = make_group("C300", 2)  # the largest takes seconds
        assert torch.equal(large.products, torch.arange(300)[:, None].add(torch.arange(300)) % 300)
        for name, num_axes in (("C1001", 2), ("D600", 2), ("D300h", 3)):
            with pytest.raises(ValueError, match=f"group '{name}' has more than 1000 elements, the most"):
                make_group(name, num_axes)

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: Group(torch.zeros(0, 2, 2)), r"matrices must be a list of matrices .*, got \(0, 2, 2\)"),
            (lambda: Group([[[1, 0], [0]]]), r"matrices must be a list of matrices .*, got \[\[\[1, 0\], \[0\]\]\]"),
            (lambda: Group.generate([]), r"generators must be a list of matrices .*, got \[\]"),
            (lambda: Group.generate([torch.eye(2), torch.eye(3)]), "generators must be a list of matrices"),
            (lambda: Group.generate([[[math.nan, 1], [0, 1]]]), "generators must be orthogonal.*by nan"),
            (lambda: Group.generate([[[2, 0], [0, 1]]]), "generators must be orthogonal.*by 3"),
            (lambda: Group(torch.cat([make_group("C4", 2).matrices] * 2)), "one occurs twice"),
            (lambda: make_group("C4", 3, axis=1.0), r"axis must be one of \(0, 1, 2\), got 1\.0"),
            (lambda: make_group("C4", 2, axis=1), r"axis must be one of \(0,\), got 1"),
            (lambda: make_group(8, 2), "group must be a name such as 'C8', got 8"),
        ],
    )
    def test_impossible_groups_are_named(self, build, message):
        with pytest.raises((TypeError, ValueError), match=message):
            build()

    @pytest.mark.parametrize("layer", [OrbitPool("C8"), OrbitDropout("C8"), lambda x: OrbitNorm(x.shape[1], "C8")(x)])
    def test_layers_that_take_a_group_refuse_its_name(self, layer):
        with pytest.raises(TypeError, match=r"must be a torchsonic.Group, got 'C8'.*layer\.group"):
            layer(torch.randn(1, 16, 4, 4))

    @pytest.mark.parametrize("channels", [8, 24])
    @pytest.mark.parametrize("build", [OrbitNorm, OrbitBatchNorm, lambda c, group: OrbitMix(c, 8, group)])
    def test_layers_refuse_other_channels_than_theirs(self, build, channels):
        layer = build(16, make_group("C8", 2))
        with pytest.raises(ValueError, match=rf"expects 16 channels, got {channels} in shape \(2, {channels}, 4, 4\)"):
            layer(torch.randn(2, channels, 4, 4))

    @pytest.mark.parametrize(("name", "num_axes"), [("O", 2), ("C4v", 2), ("D2v", 3), ("C0", 2), ("X", 3), ("C4", 1)])
    def test_unknown_names_are_refused(self, name, num_axes):
        with pytest.raises(ValueError, match="group"):
            make_group(name, num_axes)


@pytest.mark.parametrize(("name", "num_axes"), CASES)
@pytest.mark.parametrize("lift", [False, True])
def test_symbol_turns(name, num_axes, lift):
    testing.assert_symbol_turns(make_orbit(name, num_axes, (1, 2), lift=lift, limits={"band_order": 2}))


@pytest.mark.parametrize(("name", "num_axes"), [("C8", 2), ("D4", 2), ("C4v", 3), ("Oh", 3)])
@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("lift", [False, True])
def test_array_turns_exactly(name, num_axes, odd, lift):
    layer = make_orbit(name, num_axes, (1, 1), lift=lift, num_modes=2, padding=2, padding_mode="zeros", spacing=1.0)
    size = [n + odd for n in (6, 8, 4)[:num_axes]]
    x = torch.randn(1, layer.in_channels, *size, dtype=torch.float64)
    given = "image" if lift else "fields"
    testing.assert_turns_with_array(
        layer, layer.group, x, spacing=(1.0, 0.6, 0.9)[:num_axes], given=given, result="fields"
    )


@pytest.mark.parametrize(("name", "num_axes"), [("C8", 2), ("D3", 2), ("C3v", 3)])
@pytest.mark.parametrize("lift", [False, True])
def test_fields_turn_by_any_angle(name, num_axes, lift):
    layer = make_orbit(name, num_axes, (1, 1), lift=lift, num_modes=2, spacing=1.0, **SHORT)
    size = (41, 44, 32)[:num_axes]
    given = "image" if lift else "fields"
    testing.assert_turns_in_space(
        layer, layer.group, size, layer.in_channels, spacing=(1.0, 0.9, 1.1)[:num_axes], given=given, result="fields"
    )


def test_laws_refuse_what_they_cannot_judge():
    def conv(x, spacing):
        return torch.nn.functional.conv2d(x, torch.ones(1, 1, 3, 3).to(x).triu())

    x = torch.randn(1, 1, 8, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"of Group\(C5: .*, only the identity permutes .* use assert_turns_in_space"):
        testing.assert_turns_with_array(conv, make_group("C5", 2), x)
    group = make_group("C4", 2)
    with pytest.raises(ValueError, match="given must be one of fields, image, got 'field'"):
        testing.assert_turns_with_array(conv, group, x, given="field")
    with pytest.raises(ValueError, match="result must be one of fields, image, numbers, got 'logits'"):
        testing.assert_turns_in_space(conv, group, (24, 24), 1, result="logits")
    with pytest.raises(ValueError, match="result must be one of image, numbers, got 'fields'"):
        testing.assert_storages_agree(conv, x, result="fields")
    with pytest.raises(AssertionError, match="array turned"):
        testing.assert_turns_with_array(conv, group, x)


def test_laws_judge_single_precision_by_its_own_rounding():
    layer = torchsonic.SonicOrbitConv2d(4, 4, num_modes=2, group="C4")
    testing.assert_symbol_turns(layer)
    testing.assert_turns_with_array(layer, "C4", torch.randn(1, 4, 8, 7), given="fields", result="fields")
    testing.assert_storages_agree(torchsonic.SonicConv2d(1, 2, num_modes=4), torch.randn(1, 1, 8, 7))


def test_laws_say_what_is_wrong_with_their_arguments():
    layer = torchsonic.SonicOrbitConv2d(4, 4, num_modes=2, group="C4")
    x = torch.randn(1, 1, 8, 8)
    with pytest.raises(TypeError, match=r"orbit layer such as SonicOrbitConv2d, got SonicConv2d; .*turns_with_array"):
        testing.assert_symbol_turns(torchsonic.SonicConv2d(8, 8))
    with pytest.raises(ValueError, match="acts on 2 axes, but there are 3"):
        testing.assert_turns_in_space(layer, make_group("C4", 2), (24, 24, 24), 4)
    with pytest.raises(ValueError, match=r"channels of given='fields' must be a multiple of the 4 elements .* got 1"):
        testing.assert_turns_with_array(layer, "C4", x, given="fields")
    with pytest.raises(ValueError, match=r"channels of result='fields' must be a multiple of the 4 elements .* got 1"):
        testing.assert_turns_with_array(lambda x, spacing: x, "C4", x, result="fields")
    with pytest.raises(ValueError, match=r"got shape \(1, 1\); use result='numbers'"):
        testing.assert_turns_with_array(lambda x, spacing: x.mean((2, 3)), "C4", x)
    with pytest.raises(ValueError, match=r"got shape \(1, 1\); use result='numbers'"):
        testing.assert_storages_agree(lambda x, **told: x.mean((2, 3)), x)
    with pytest.raises(ValueError, match="spacing needs 1 or 2 values"):
        testing.assert_turns_with_array(layer, "C4", x, spacing=(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match=r"at least 24 samples per axis, .* got \(4, 40\)"):
        testing.assert_turns_in_space(layer, "C4", (4, 40), 4)
    with pytest.raises(ValueError, match=r"at least 24 samples per axis, .* got \(4, 4\)"):
        testing.assert_orientation_is_exact(torchsonic.SonicConv2d(1, 1), (4, 4), 1, torch.eye(2))


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_laws_refuse_a_model_that_ignores_its_input(constant):
    def model(x, **told):
        return constant * (1 + 1e-16 * x)

    x = torch.randn(1, 1, 8, 8, dtype=torch.float64)
    layer = torchsonic.SonicOrbitConv2d(4, 4, num_modes=2, group="C4")
    torch.nn.init.zeros_(layer.mix_out)
    for law in (
        lambda: testing.assert_symbol_turns(layer),
        lambda: testing.assert_turns_with_array(model, "C4", x),
        lambda: testing.assert_turns_in_space(model, "C4", (24, 24), 1),
        lambda: testing.assert_storages_agree(model, x),
        lambda: testing.assert_orientation_is_exact(model, (24, 24), 1, torch.eye(2)),
    ):
        with pytest.raises(AssertionError, match="the same for an input of zeros"):
            law()


@pytest.mark.parametrize("broken", ["direction", "mixing", "bias"])
def test_a_broken_layer_is_caught(broken, monkeypatch):
    layer = make_orbit("C4", 2, (1, 1), num_modes=2, spacing=1.0, **SHORT)
    if broken == "direction":
        right = type(layer)._shape
        monkeypatch.setattr(
            layer, "_shape", lambda *a: (s := right(layer, *a))._replace(direction=s.direction.roll(1, 1))
        )
    else:
        right_mixing = type(layer).mixing

        def wrong(dtype):
            mix_in, mix_out, bias = right_mixing(layer, dtype)
            if broken == "bias":
                return mix_in, mix_out, torch.arange(4.0, dtype=dtype)
            return mix_in, mix_out * torch.linspace(1, 2, mix_out.shape[1], dtype=dtype)[:, None], bias

        monkeypatch.setattr(layer, "mixing", wrong)
    x = torch.randn(1, 4, 8, 8, dtype=torch.float64)
    with pytest.raises(AssertionError, match="array turned"):
        testing.assert_turns_with_array(layer, layer.group, x, given="fields", result="fields")
    with pytest.raises(AssertionError, match="field turned"):
        testing.assert_turns_in_space(layer, layer.group, (40, 40), 4, given="fields", result="fields")
    if broken != "bias":
        with pytest.raises(AssertionError, match="symbol turned"):
            testing.assert_symbol_turns(layer)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("name", "num_axes"), [("C3", 2), ("D4", 2), ("C2v", 3)])
class TestHoldsTheLawsOfSonicLayers:
    def test_equals_dense_reference_with_gradients(self, name, num_axes, dtype):
        layer = make_orbit(name, num_axes, (1, 1), dtype=dtype, bias=False)
        testing.assert_matches_dense(layer, (5, 6, 4)[:num_axes], 0.8)
        testing.assert_shift_equivariant(layer, (5, 6, 4)[:num_axes], 0.8)

    def test_orders_agree(self, name, num_axes, dtype):
        testing.assert_orders_agree(make_orbit(name, num_axes, (1, 1), dtype=dtype), (5, 6, 4)[:num_axes], 0.8)

    def test_one_field_gives_one_output_on_every_grid(self, name, num_axes, dtype):
        grids = [(9, 9, 9), (12, 10, 9)]
        testing.assert_resolution_invariant(
            make_orbit(name, num_axes, (1, 1), dtype=dtype), [g[:num_axes] for g in grids]
        )


def test_gradients_are_those_of_finite_differences():
    layer = make_orbit("C3", 2, (1, 1), num_modes=2)
    x = torch.randn(1, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    torch.autograd.gradcheck(run, (x, *[p.detach().clone().requires_grad_() for p in layer.parameters()]))


def test_variance_is_kept():
    torch.manual_seed(0)
    layer = SonicOrbitConv2d(64, 64, num_modes=16, group="C8", bias=False)
    y = layer(torch.randn(4, 64, 48, 48))
    assert 0.6 < y.var().item() < 1.6


def test_parts_of_networks_commute_with_the_group():
    group = make_group("D4", 2)
    torch.manual_seed(0)
    network = SpacedSequential(
        OrbitBlock(3, 16, num_modes=2, group="D4", lift=True, spacing=1.0),
        OrbitDropout(group, 0.5).eval(),
        OrbitBlock(16, 24, num_modes=2, group="D4"),
        OrbitNorm(24, group, num_groups=3),
        OrbitBlock(24, 24, num_modes=2, group="D4", norm="batch"),
        OrbitMix(24, 16, group),
    ).double()
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.1 * torch.randn_like(p))
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    testing.assert_turns_with_array(network, group, x, result="fields")
    for kind in ("max", "mean", "norm"):
        testing.assert_turns_with_array(SpacedSequential(*network, OrbitPool(group, kind)), group, x)


def test_dropout_drops_whole_fields_and_keeps_the_mean():
    group = make_group("C4", 2)
    torch.manual_seed(0)
    y = OrbitDropout(group, 0.25)(torch.ones(200, 12, 3, 3))
    fields = y.unflatten(1, (3, 4)).flatten(2)
    assert (fields == fields[..., :1]).all()
    assert sorted(y.unique().tolist()) == pytest.approx([0, 1 / 0.75])
    assert abs(y.mean().item() - 1) < 0.1


def test_dropout_needs_no_space():
    group = make_group("C4", 2)
    y = OrbitDropout(group, 0.5)(torch.ones(20, 8)).unflatten(1, (2, 4))
    assert (y == y[..., :1]).all()
    with pytest.raises(ValueError, match=r"p must be in \[0, 1\), got 'a'"):
        OrbitDropout(group, "a")


def test_modes_are_dropped_with_their_orbits():
    layer = make_orbit("C4", 2, (1, 1), num_modes=2, mode_dropout=0.5)
    x = torch.randn(1, 4, 8, 8, dtype=torch.float64)

    def model(x, spacing):
        torch.manual_seed(1)
        return layer(x, spacing=spacing)

    testing.assert_turns_with_array(model, layer.group, x, given="fields", result="fields")


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", ["orbitnet2d", "orbitnet3d"])
def test_segmentation_networks_turn_with_the_array(name, stride):
    torch.manual_seed(0)
    model = torchsonic.create_model(name, width=2, num_modes=2, stride=stride).eval()
    group = model.features.group
    size = (9, 10) if group.num_axes == 2 else (6, 7, 6)
    x = torch.randn(1, model.in_channels, *size)
    with torch.no_grad():
        testing.assert_turns_with_array(model, group, x, spacing=(1.0, 0.8, 0.9)[: len(size)], tolerance=1e-4)


@pytest.mark.parametrize(("name", "spacing"), [("orbitnet2d", (5.0, 1.0)), ("orbitnet3d", (10.0, 1.4, 1.4))])
def test_networks_for_thick_slices_turn_with_the_array(name, spacing):
    torch.manual_seed(0)
    model = torchsonic.create_model(name, width=1, depth=2, num_modes=2, stride=2, spacing=spacing).double().eval()
    size = (4, 22, 24)[-len(spacing) :]  # larger than the margin along the fine axes
    x = torch.randn(1, model.in_channels, *size, dtype=torch.float64)
    with torch.no_grad():
        testing.assert_turns_with_array(model, model.features.group, x, spacing=spacing)


def test_a_margin_of_one_number_is_equally_wide_along_all_axes():
    layer = make_orbit("C4", 2, (1, 1), num_modes=2, padding=6, padding_mode="zeros", spacing=(4.0, 1.0))
    assert layer.padding == (1.5, 6)
    x = torch.randn(1, 4, 9, 14, dtype=torch.float64)
    testing.assert_turns_with_array(layer, layer.group, x, spacing=(4.0, 1.0), given="fields", result="fields")


@pytest.mark.parametrize("strides", [(1, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_classifiers_turn_about_the_centre(strides, padding_mode):
    torch.manual_seed(0)
    options = {"widths": (2, 3), "strides": strides, "num_modes": (2, 2), "group": "D4", "padding_mode": padding_mode}
    options |= {"padding": None} if padding_mode == "circular" else {}
    model = torchsonic.create_model("orbit_tiny", in_channels=1, num_classes=5, **options).double().eval()
    with torch.no_grad():
        x = torch.randn(1, 1, 9, 12, dtype=torch.float64)
        testing.assert_turns_with_array(model, model.features.group, x, result="numbers")


@pytest.mark.parametrize("standardise", [False, True])
def test_strided_layers_give_one_field_whatever_the_sampling_of_the_input(standardise):
    """Details that only the finer output grid can hold change nothing else, not even the scale."""
    layer = make_orbit("C4", 2, (1, 1), spacing=1.0, stride=2, standardise=standardise)
    x = torch.randn(2, 4, 9, 13, dtype=torch.float64)
    coarse, fine = layer(x), layer(resample(x, (19, 25), centred=True), spacing=(9 / 19, 13 / 25))
    assert fine.shape[2:] == (10, 13)
    torch.testing.assert_close(resample(fine, coarse.shape[2:], centred=True), coarse, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("size", "out_size"), [((8, 12), (4, 6)), ((9, 10), (5, 5)), ((6, 7), (9, 14)), ((9, 6), (4, 9))]
)
def test_layers_sample_other_grids_about_the_same_centre(size, out_size):
    """A layer's field on another grid is its own field, resampled about the centre, and the gradients agree."""
    layer = make_orbit("C4", 2, (1, 1), spacing=1.0)
    x = torch.randn(1, 4, *size, dtype=torch.float64, requires_grad=True)
    coarse = tuple(map(min, size, out_size))
    wave = resample(x, coarse, centred=True)
    expected = resample(layer(resample(wave, size, centred=True)), out_size, centred=True)
    actual = layer(x, output_size=out_size)
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)
    grad = torch.randn_like(actual)
    wanted, found = (torch.autograd.grad(y, [x, *layer.parameters()], grad) for y in (expected, actual))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"in_channels": 7},
            "multiple of the 8 elements of group C8, got 7; for ordinary channels, .*, pass lift=True",
        ),
        ({"in_channels": "8"}, "in_channels must be an integer, got '8'"),
        ({"out_channels": "8"}, "out_channels must be an integer, got '8'"),
        ({"out_channels": 9}, "out_channels must be a multiple of the 8"),
        ({"group": "O"}, "group must be one of C{n} and D{n}"),
        ({"group": make_group("O", 3)}, "acts on 3 axes, but there are 2"),
        ({"variant": "paper"}, "variant must be 'exact'"),
        ({"axis": 2}, "axis must be one of"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    arguments = {"in_channels": 8, "out_channels": 8, **arguments}
    with pytest.raises((TypeError, ValueError), match=message.replace("{", r"\{").replace("}", r"\}")):
        SonicOrbitConv2d(arguments.pop("in_channels"), arguments.pop("out_channels"), **arguments)


@pytest.mark.parametrize(
    "wrong", [{"widths": (2, 2)}, {"strides": (1,)}, {"widths": (), "strides": (), "num_modes": ()}]
)
def test_a_network_needs_one_value_per_block(wrong):
    with pytest.raises(ValueError, match="widths, strides and num_modes must have one value per block, got "):
        torchsonic.create_model("orbit_tiny", **wrong)


@pytest.mark.parametrize("num_groups", [0, -1])
def test_a_norm_has_at_least_one_group(num_groups):
    with pytest.raises(ValueError, match=f"num_groups must be at least 1, got {num_groups}"):
        OrbitNorm(16, make_group("C8", 2), num_groups=num_groups)


def test_weights_of_another_group_are_refused():
    weights = SonicOrbitConv2d(8, 8, num_modes=4, group="C8").state_dict()
    with pytest.raises(RuntimeError, match="group='C8'"):
        SonicOrbitConv2d(8, 8, num_modes=4, group="D4").load_state_dict(weights)


def test_weights_of_another_group_with_as_many_elements_are_refused():
    """Whatever it is called; a name counts only if it is that of the very group."""
    groups = [Group(make_group("D2", 2).matrices), Group(make_group("D2", 2).matrices, name="C4"), "C4"]
    weights = SonicOrbitConv2d(4, 4, group=Group(make_group("C4", 2).matrices)).state_dict()
    for group in groups:
        with pytest.raises(RuntimeError, match="pass the same Group that the weights were trained with"):
            SonicOrbitConv2d(4, 4, group=group).load_state_dict(weights)
    SonicOrbitConv2d(4, 4, group=Group(make_group("C4", 2).matrices.float())).load_state_dict(weights)
    about = make_group("C4", 3, axis=2)
    with pytest.raises(RuntimeError, match="group='C4'"):
        SonicOrbitConv3d(4, 4, group=about).load_state_dict(SonicOrbitConv3d(4, 4, group="C4").state_dict())


OWN = [Group.generate([[[0.6, 0.8], [0.8, -0.6]]]), make_group("C3", 2), Group(make_group("C4", 2).matrices.float())]


@pytest.mark.parametrize("group", OWN)
def test_a_network_is_saved_with_its_own_group(tmp_path, group):
    torch.manual_seed(0)
    model = torchsonic.create_model("orbitnet2d", group=group, width=2, depth=1, num_modes=2).eval()
    again = torchsonic.from_pretrained(model.save_pretrained(tmp_path))
    assert torch.equal(again.features.group.matrices, group.matrices)
    x = torch.randn(1, model.in_channels, 8, 9)
    assert torch.equal(again(x), model(x))


def test_a_backbone_is_saved_with_its_own_group(tmp_path):
    options = {"group": OWN[0], "num_modes": 2}
    model = torchsonic.create_model(
        "synthshape_orbitnet", width=4, depth=1, head_norm="channel", backbone_options=options
    )
    again = torchsonic.from_pretrained(model.save_pretrained(tmp_path))
    assert len(again.backbone.features.group) == 2


def test_a_saved_group_that_is_none_is_refused(tmp_path):
    model = torchsonic.create_model("orbitnet2d", group=OWN[0], width=2, depth=1, num_modes=2)
    config = model.save_pretrained(tmp_path) / "config.json"
    config.write_text(config.read_text().replace("0.6", "0.7"))
    with pytest.raises(torchsonic.PretrainedError, match="matrices must be orthogonal"):
        torchsonic.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["orbitnet2d", "orbitnet3d", "orbit_tiny"])
def test_networks_compile_as_one_graph_and_are_exported(name, tmp_path):
    sizes = {"widths": (2, 2), "strides": (1, 2), "num_modes": (2, 2)}
    depth = 1 if name == "orbitnet3d" else 2
    sizes = sizes if name == "orbit_tiny" else {"width": 2, "depth": depth, "num_modes": 2, "group": "C4"}
    sizes |= {"norm": "batch"} if name == "orbit_tiny" else {}
    model = torchsonic.create_model(name, num_classes=2, **sizes).eval()
    size = (8, 6, 8) if name == "orbitnet3d" else (12, 10)
    x = torch.randn(1, model.in_channels, *size)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    config = ExportConfig(to="pt2", size=size, dynamic=("batch",))
    assert export_model(model, tmp_path / "model.pt2", config, timed_seconds=0.0).error < 1e-4


@pytest.mark.parametrize(("name", "spatial_dims"), [("D6", 2), ("C4v", 3), ("Ih", 3)])
def test_groups_have_numbers_whatever_the_default_device(name, spatial_dims):
    """As in a new process that loads a saved network, which is built without numbers first."""
    from torchsonic.spectral import groups

    groups._named.cache_clear()
    with torch.device("meta"):
        found = torchsonic.make_group(name, spatial_dims)
        again = torchsonic.Group(found.matrices)
    assert found.matrices.device.type == again.products.device.type == "cpu"
    groups._named.cache_clear()
