"""Scenes and perturbations of the released protocol, held to the facts about the script."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from torchsonic.lab.data.synthetic import PERTURBATIONS, RELEASED_PERTURBATIONS, ReleasedShapes
from torchsonic.lab.data.synthetic.released import _candidates
from torchsonic.lab.data.synthetic.shapes import KINDS

SIZE = (64, 64)


@pytest.fixture(scope="module")
def scenes():
    return ReleasedShapes().samples(range(96))


def change(name, image, label, level, seed=0):
    return RELEASED_PERTURBATIONS[name].apply(image, label, level, torch.Generator().manual_seed(seed), 0)


def extents(kind, count=40):
    draw = np.random.default_rng(0)
    for _ in range(count):
        for covered in _candidates(kind, SIZE, draw):
            rows, columns = np.flatnonzero(covered.any(1)), np.flatnonzero(covered.any(0))
            yield covered, rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
            break


def test_a_scene_has_one_of_each_kind_unless_there_is_no_room(scenes):
    counts = torch.stack([(scenes[1] == kind).flatten(1).any(1) for kind in range(1, len(KINDS))], 1).sum(1)
    assert counts.max() == 5
    assert (counts == 5).float().mean() > 0.8


@pytest.mark.parametrize(
    ("kind", "heights", "widths"),
    [
        ("circle", (13, 63), (13, 63)),
        ("square", (3, 10), (3, 10)),
        ("triangle", (4, 10), (5, 13)),
        ("cross", (10, 24), (10, 24)),
        ("star", (7, 25), (8, 25)),
    ],
)
def test_objects_are_as_large_as_the_facts_say(kind, heights, widths):
    for _, height, width in extents(kind):
        assert heights[0] <= height <= heights[1]
        assert widths[0] <= width <= widths[1]
        assert kind not in ("square", "cross") or height == width


def test_triangles_narrow_downwards_and_bars_are_thin():
    for covered, height, width in extents("triangle"):
        rows = covered.sum(1)[np.flatnonzero(covered.any(1))]
        assert (np.diff(rows) <= 0).all()
        assert rows[0] == width
        assert height == int((width - width % 2) * math.sqrt(3) / 2) or height == int(width * math.sqrt(3) / 2)
    for covered, height, _ in extents("cross"):
        arm, bar = height // 2, covered.sum(1)[np.flatnonzero(covered.any(1))[0]]
        assert max(1, arm // 4) <= bar <= arm // 2


def test_images_are_noisy_base_colours_on_black_clipped_to_one(scenes):
    image, label = scenes
    assert (image.min(), image.max()) == (0, 1)
    ground = image.movedim(1, -1)[label == 0]
    # Half of the noise on black is clipped away; the rest is the positive half of a normal distribution.
    assert ground[ground > 0].square().mean().sqrt().item() == pytest.approx(0.2, rel=0.02)
    assert (ground == 0).float().mean().item() == pytest.approx(0.5, abs=0.02)


def test_samples_depend_on_their_number_and_the_seed_alone(scenes):
    data = ReleasedShapes()
    image, label = data.samples([7, 3])
    assert torch.equal(image[0], scenes[0][7])
    assert torch.equal(label[1], scenes[1][3])
    assert not torch.equal(ReleasedShapes(seed=1).samples([7])[0], image[:1])


def test_levels_are_the_papers():
    assert {n: p.levels for n, p in RELEASED_PERTURBATIONS.items()} == {n: p.levels for n, p in PERTURBATIONS.items()}


def test_noise_is_clipped_and_leaves_labels(scenes):
    image, label = scenes
    noisy, same = change("noise", image, label, 0.3)
    assert noisy.min() >= 0
    assert noisy.max() <= 1
    assert same is label
    middle = (image > 0.45) & (image < 0.55)
    assert (noisy - image)[middle].std().item() == pytest.approx(0.27, abs=0.02)  # clipped at 0.5 to either side


@pytest.mark.parametrize("level", [15, 30, 45])
def test_rotation_turns_all_images_one_way_with_zeros_outside(scenes, level):
    image, label = scenes
    angle = math.radians(level)
    matrix = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
    grid = F.affine_grid(matrix.expand(len(image), 2, 3), list(image.shape), align_corners=False)
    turned, moved = change("rotation", image, label, level)
    torch.testing.assert_close(turned, F.grid_sample(image, grid, align_corners=False))
    nearest = F.grid_sample(label[:, None].float(), grid, mode="nearest", align_corners=False)[:, 0].long()
    assert (moved != nearest).float().mean() < 1e-3  # ties are rounded in float32


@pytest.mark.parametrize(("level", "size"), [(0.75, 48), (1.5, 96), (1.1, 70), (1.2, 77)])
def test_rescaling_is_cropped_or_padded_and_told_as_it_was_resized(scenes, level, size):
    image, label = (part[:4] for part in scenes)
    resized = F.interpolate(image, (size, size), mode="bilinear", align_corners=False)
    told, told_label = RELEASED_PERTURBATIONS["rescaling"].told(image, label, level, None, 0)
    assert torch.equal(told, resized)
    assert told_label.shape == (4, size, size)
    shown, moved = change("rescaling", image, label, level)
    if size > 64:
        start = (size - 64) // 2
        window = slice(start, start + 64)
        assert torch.equal(shown, resized[:, :, window, window])
        assert torch.equal(moved, told_label[:, window, window])
    else:
        assert torch.equal(shown[:, :, 8:56, 8:56], resized)
        assert shown[:, :, :8].sum() == 0
        assert torch.equal(moved[:, 8:56, 8:56], told_label)


def test_translations_share_one_shift_which_is_a_few_pixels_on_average(scenes):
    image, label = (part[:24] for part in scenes)
    ramp = torch.arange(64.0).expand(24, 1, 64, 64)
    shifts = []
    for seed in range(300):
        moved = change("translation", ramp, label, 10, seed)[0]
        steps = (moved - ramp)[:, 0, 32, 20:44]
        assert steps.std() < 1e-4
        shifts.append(abs(steps.mean().item()))
    assert np.mean(shifts) == pytest.approx(1.0, abs=0.1)  # 2.1 and 3.1 px at 20 and 30 %
    first, second = (change("translation", image, label, 30, seed) for seed in (0, 0))
    assert torch.equal(first[0], second[0])


@pytest.mark.parametrize(("level", "pixels"), [(2, 0.05), (4, 0.10), (6, 0.15)])
def test_distortion_displaces_pixels_by_noise_of_a_twentieth_of_a_pixel(scenes, level, pixels):
    ramp = torch.arange(64.0).expand(24, 1, 64, 64)
    moved = change("distortion", ramp, scenes[1][:24], level)[0][:, 0, 4:60, 4:60]
    # The script's grid reaches from edge to edge, a 64th wider than the centres of pixels.
    expected = (torch.linspace(-1, 1, 64) * 32 + 31.5)[4:60]
    assert (moved - expected).std().item() == pytest.approx(pixels, rel=0.03)
    assert (moved - expected).mean().abs() < 1e-3


def test_combined_is_all_five_in_order(scenes):
    image, label = (part[:8] for part in scenes)
    for level in (10, 20, 30):
        generator, shown = torch.Generator().manual_seed(4), (image, label)
        for name, strength in (
            ("distortion", level / 5),
            ("rescaling", {10: 1.0, 20: 1.1, 30: 1.2}[level]),
            ("rotation", level / 2),
            ("translation", level / 2),
            ("noise", 0.005 * level),
        ):
            shown = RELEASED_PERTURBATIONS[name].apply(*shown, strength, generator, 0)
        found = change("combined", image, label, level, seed=4)
        assert all(torch.equal(a, b) for a, b in zip(found, shown, strict=True))
