"""Layers that are told how the axes of an array lie in space."""

import itertools

import pytest
import torch

import torchsonic
from tests.layers import make_layer
from tests.turns import TIES, turn_about
from torchsonic.spectral.orientation import all_storages, as_orientation, split_affine, split_storage
from torchsonic.testing import relative_error

STEPS = (1.0, 0.6, 1.7)
LAYERS = {
    "circular": {},
    "margin": {"padding": 3, "padding_mode": "zeros", "spacing": (1.0, 0.5, 2.0)},
    "mirror": {"padding": 3, "padding_mode": "reflect"},
    "whole mirror": {"padding_mode": "reflect"},
    "limits": {"limits": {"band_order": 2, "magnitude": 2.0}},
    "dc": {"gain": "dc"},
}


def storages(num_axes: int):
    """All orders and flips of axes: how to rearrange an array, and its orientation."""
    for order in itertools.permutations(range(num_axes)):
        for signs in itertools.product((1.0, -1.0), repeat=num_axes):
            matrix = torch.zeros(num_axes, num_axes, dtype=torch.float64)
            for new, old in enumerate(order):
                matrix[old, new] = signs[new]
            yield order, [2 + axis for axis in range(num_axes) if signs[axis] < 0], matrix


def stored(x, order, flips):
    return x.permute(0, 1, *[2 + axis for axis in order]).flip(flips)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_every_way_to_store_an_array_gives_one_field(num_axes, kind):
    options = dict(LAYERS[kind])
    if "spacing" in options:
        options["spacing"] = options["spacing"][:num_axes]
    layer = make_layer(num_axes, **options)
    x = torch.randn(2, 3, *(5, 6, 4)[:num_axes], dtype=torch.float64, requires_grad=True)
    expected = layer(x, spacing=STEPS[:num_axes])
    weight = torch.randn_like(expected)
    grads = torch.autograd.grad((expected * weight).sum(), [x, *layer.parameters()])
    for order, flips, matrix in storages(num_axes):
        steps = [STEPS[axis] for axis in order]
        y = layer(stored(x, order, flips), spacing=steps, orientation=matrix)
        assert relative_error(y, stored(expected, order, flips)) < 1e-12
        found = torch.autograd.grad((y * stored(weight, order, flips)).sum(), [x, *layer.parameters()])
        assert all(relative_error(a, b) < 1e-10 for a, b in zip(found, grads, strict=True))


def test_samples_may_differ_in_orientation_and_spacing():
    layer = make_layer(3, padding=2, padding_mode="zeros")
    x = torch.randn(3, 3, 4, 4, 4, dtype=torch.float64)
    turns = torch.linalg.qr(torch.randn(3, 3, 3, dtype=torch.float64))[0]
    steps = torch.tensor([[1.0, 1.0, 1.0], [0.5, 1.0, 2.0], [1.0, 0.7, 0.7]])
    whole = layer(x, spacing=steps, orientation=turns)
    alone = [layer(x[i : i + 1], spacing=steps[i], orientation=turns[i]) for i in range(3)]
    assert relative_error(whole, torch.cat(alone)) < 1e-12


def test_turned_responses_are_kept_apart_in_evaluation():
    layer = make_layer(2).eval()
    x = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    flip = torch.diag(torch.tensor([-1.0, 1.0]))
    with torch.no_grad():
        plain, turned = layer(x), layer(x, orientation=flip)
        assert torch.equal(layer(x), plain)
        assert torch.equal(layer(x, orientation=flip), turned)
        layer.set_orientation(flip)
        assert torch.equal(layer(x), turned)
    assert not torch.allclose(plain, turned, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_compiled_layers_are_told_too(dtype):
    torch._dynamo.reset()
    layer = make_layer(2, num_modes=3, dtype=torch.float32)
    x = torch.randn(1, 3, 8, 6)
    turn = torch.linalg.qr(torch.randn(2, 2))[0].to(dtype)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert relative_error(compiled(x, orientation=turn), layer(x, orientation=turn)) < 1e-5
    assert relative_error(compiled(x, orientation=turn), layer(x, orientation=turn)) < 1e-5


@pytest.mark.parametrize("bad", [torch.diag(torch.tensor([1.0, 2.0])), torch.full((2, 2), torch.nan), torch.ones(2, 2)])
def test_compiled_layers_refuse_bad_orientations(bad):
    torch._dynamo.reset()
    layer = make_layer(2, num_modes=3, dtype=torch.float32)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for learning in (True, False):
        with pytest.raises(RuntimeError, match="orientation must be orthogonal"), torch.set_grad_enabled(learning):
            compiled(torch.randn(1, 3, 8, 6), orientation=bad)


def test_matrices_from_files_are_made_orthogonal():
    turn = torch.linalg.qr(torch.randn(5, 3, 3, dtype=torch.float64))[0]
    rough = turn + 1e-4 * torch.randn(5, 3, 3, dtype=torch.float64)
    left, _, right = torch.linalg.svd(rough)
    torch.testing.assert_close(as_orientation(rough, 3), left @ right, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("orientation", "message"),
    [
        (torch.tensor([[1.0, 0.0], [0.0, 2.0]]), "must be orthogonal"),
        (torch.eye(3), r"must have shape \(2, 2\)"),
        ([[float("nan"), 0.0], [0.0, 1.0]], "finite"),
    ],
)
def test_bad_orientations_are_named(orientation, message):
    with pytest.raises(ValueError, match=message):
        make_layer(2)(torch.randn(1, 3, 4, 4, dtype=torch.float64), orientation=orientation)


def test_the_papers_variant_cannot_be_told():
    with pytest.raises(ValueError, match="variant='paper'"):
        torchsonic.SonicConv2d(1, 1, variant="paper")(torch.randn(1, 1, 8, 8), orientation=torch.eye(2))


def test_affine_matrices_are_split_and_shear_is_refused():
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    affine = torch.eye(4, dtype=torch.float64)
    affine[:3, :3] = turn * torch.tensor([1.0, 0.5, 3.0], dtype=torch.float64)
    spacing, orientation = split_affine(affine, 3)
    torch.testing.assert_close(spacing[0], torch.tensor([1.0, 0.5, 3.0], dtype=torch.float64))
    torch.testing.assert_close(orientation[0], turn)
    affine[0, 1] += 0.2
    with pytest.raises(ValueError, match="sheared"):
        split_affine(affine, 3)


def test_storages_are_found_and_undone():
    x = torch.randn(1, 2, 3, 4, 5)
    for _, _, matrix in storages(3):
        storage, rest = split_storage(matrix)
        assert rest is None
        assert torch.equal(storage.undo(storage.apply(x)), x)
        torch.testing.assert_close(matrix @ storage.matrix(), torch.eye(3, dtype=torch.float64))
    tilted = torch.linalg.matrix_exp(0.2 * torch.tensor([[0.0, 1, 0], [-1, 0, 2], [0, -2, 0]], dtype=torch.float64))
    storage, rest = split_storage(tilted)
    assert storage.order == (0, 1, 2)
    assert rest is not None


@pytest.mark.parametrize(("axis", "degrees"), TIES)
@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_what_remains_is_the_same_for_every_storage_even_between_two_axes(axis, degrees, noise):
    turn = turn_about(axis, degrees)
    expected = split_storage(turn)[1]
    assert expected is not None
    for storage in all_storages(3):
        found = split_storage(turn @ storage.matrix() + noise * torch.randn(3, 3, dtype=torch.float64))
        torch.testing.assert_close(found[1], expected, rtol=0, atol=1e-14 + 10 * noise)
        assert torch.equal(storage.matrix() @ found[0].matrix(), split_storage(turn)[0].matrix())
    assert split_storage(expected)[0].order == (0, 1, 2)
    assert not any(split_storage(expected)[0].flips)
