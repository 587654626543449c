"""Changes happen in millimetres, by the strength and the chance they were given, and image and label move together."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.lab.data.nifti import make_arrays
from torchsonic.lab.data.draws import number_generator
from torchsonic.lab.data.labels import IGNORE
from torchsonic.lab.data.volumes.augmentation import Augmentation, Change, change_intensity, mirror, motion
from torchsonic.lab.data.volumes.patches import cut_moved

THICK, EVEN = (10.0, 1.5, 1.2), (1.0, 1.0, 1.0)
STRENGTHS = {"rotation": "angle", "scale": "scale", "gamma": "gamma", "contrast": "contrast"}
STRENGTHS |= {"brightness": "brightness", "noise": "noise", "shift": "shift"}
NOTHING = Augmentation(mirror=(), rotation=0, scale=1, gamma=1, contrast=1, brightness=0, noise=0, shift=0)


def draws(augmentation, count=300):
    return [augmentation.draw(number_generator(0, number, purpose=1)) for number in range(count)]


def generator():
    return number_generator(0, 0, purpose=1)


def test_a_change_belongs_to_its_random_numbers():
    assert draws(Augmentation(), 20) == draws(Augmentation(), 20)
    assert len(set(draws(Augmentation(chance=1.0), 20))) == 20


def test_without_strength_nothing_happens():
    image, label = make_arrays()
    for change in draws(replace(NOTHING, chance=1.0), 20):
        assert motion(change, EVEN, scale=True) is None
        np.testing.assert_array_equal(change_intensity(image[None], change, generator()), image[None])
        assert mirror(image[None], label, change.flips)[1] is label


@pytest.mark.parametrize(("name", "value"), STRENGTHS.items())
def test_each_change_has_its_own_random_numbers(name, value):
    """Switching one off leaves the others as they were."""
    weak = {"rotation": 0.0, "brightness": 0.0, "noise": 0.0, "shift": 0.0}.get(name, 1.0)
    for with_it, without in zip(draws(Augmentation()), draws(Augmentation(**{name: weak})), strict=True):
        rest = Change() if name not in STRENGTHS else getattr(Change(), value)
        assert replace(with_it, **{value: rest}) == without


def test_changes_stay_within_their_strengths_and_happen_by_chance():
    augmentation = Augmentation(chance=0.3)
    changes = draws(augmentation, 1000)
    for name, value in STRENGTHS.items():
        values = np.array([getattr(change, value) for change in changes])
        at_rest = getattr(Change(), value)
        assert 0.24 < np.mean(values != at_rest) < 0.36, name
        limit = math.radians(augmentation.rotation) if name == "rotation" else getattr(augmentation, name)
        if at_rest == 1.0:
            assert np.abs(np.log(values)).max() <= math.log(limit) + 1e-9
            assert abs(np.log(values).mean()) < 0.05 * math.log(limit)
        else:
            assert np.abs(values).max() <= limit
    flips = np.array([[axis in change.flips for axis in range(3)] for change in changes])
    assert (np.abs(flips.mean(0) - 0.5) < 0.05).all()
    assert {change.flips for change in draws(Augmentation(mirror=(2,)))} == {(), (2,)}


@pytest.mark.parametrize("spacing", [THICK, EVEN, (1.0, 3.0, 1.1)])
def test_turning_keeps_lengths_in_millimetres(spacing):
    steps = np.diag(spacing)
    for change in draws(Augmentation(chance=1.0), 50):
        matrix = motion(change, spacing, scale=False)
        physical = steps @ matrix @ np.linalg.inv(steps)
        np.testing.assert_allclose(physical @ physical.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(physical) == pytest.approx(1)


def test_thick_slices_are_turned_within_themselves_and_cubes_in_every_plane():
    changes = draws(Augmentation(chance=1.0), 60)
    for change in changes:
        matrix = motion(change, THICK, scale=True)
        np.testing.assert_array_equal(matrix[0], (1, 0, 0))
        np.testing.assert_array_equal(matrix[:, 0], (1, 0, 0))
    still = [int(np.argmax(np.diag(motion(change, EVEN, scale=False)))) for change in changes]
    assert set(still) == {0, 1, 2}


def test_turns_about_any_direction_take_nothing_from_the_other_changes():
    usual, free = draws(Augmentation()), draws(Augmentation(rotation_axes="any", chance=1.0, rotation=180.0))
    assert [change.flips for change in free] == [change.flips for change in usual]
    axes = np.array([change.axis for change in free])
    assert (np.abs(axes.mean(0)) < 0.1).all()
    np.testing.assert_allclose((axes**2).mean(0), 1 / 3, atol=0.06)
    for change in free[:20]:
        matrix = motion(change, EVEN, scale=False)
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(matrix @ np.array(change.axis), change.axis, atol=1e-12)
        assert np.trace(matrix) == pytest.approx(1 + 2 * math.cos(change.angle))


def test_a_quarter_turn_is_that_of_the_array():
    image, label = make_arrays((4, 9, 9), EVEN)
    change = Change(angle=math.pi / 2)
    matrix = motion(change, (5.0, 1.0, 1.0), scale=False)
    moved, moved_label = cut_moved(image[None], label, (0, 0, 0), (4, 9, 9), matrix)
    np.testing.assert_allclose(moved[0], np.rot90(image, -1, axes=(1, 2)), rtol=1e-4)
    np.testing.assert_array_equal(moved_label, np.rot90(label, -1, axes=(1, 2)))


@pytest.mark.parametrize("spacing", [EVEN, (2.5, 1.5, 1.0)])
def test_scaled_anatomy_is_larger_by_the_factor(spacing):
    shape = tuple(int(48 / d) for d in spacing)
    places = np.stack(np.meshgrid(*[np.arange(n) * d for n, d in zip(shape, spacing, strict=True)], indexing="ij"), -1)
    middle = (np.array(shape) - 1) / 2 * spacing
    distance = np.linalg.norm(places - middle, axis=-1)
    label = (distance < 10).astype(np.int16)
    matrix = motion(Change(scale=1.4), spacing, scale=True)
    image, moved = cut_moved(distance[None].astype(np.float32), label, (0, 0, 0), shape, matrix)
    fine = np.array(spacing) < 2 * min(spacing)
    expected = np.linalg.norm((places - middle) / np.where(fine, 1.4, 1.0), axis=-1)
    off_tip = expected > 3  # linear interpolation cannot follow the tip of a cone
    np.testing.assert_allclose(image[0][off_tip], expected[off_tip], atol=0.2)
    assert moved.sum() / label.sum() == pytest.approx(1.4 ** fine.sum(), rel=0.1)


def test_what_turns_in_from_outside_is_not_labelled():
    image, label = make_arrays((4, 12, 12), EVEN)
    matrix = motion(Change(angle=math.pi / 4), (5.0, 1.0, 1.0), scale=False)
    _, moved = cut_moved(image[None], label, (0, 0, 0), (4, 12, 12), matrix)
    assert (moved[:, 0, 0] == IGNORE).all()
    assert (moved[:, 6, 6] != IGNORE).all()


def test_mirroring_moves_image_and_label_and_twice_is_none():
    image, label = make_arrays()
    once = mirror(image[None], label, (0, 2))
    np.testing.assert_array_equal(once[0][0], image[::-1, :, ::-1])
    np.testing.assert_array_equal(once[1], label[::-1, :, ::-1])
    twice = mirror(*once, (0, 2))
    np.testing.assert_array_equal(twice[0][0], image)


def test_intensities_change_by_what_was_drawn():
    image = np.stack([make_arrays()[0], -3 * make_arrays(seed=1)[0]])
    axes = (1, 2, 3)
    mean, deviation = image.mean(axes), image.std(axes)
    bright = change_intensity(image, Change(brightness=0.3), generator())
    np.testing.assert_allclose((bright - image).mean(axes), 0.3 * deviation, rtol=1e-3)
    strong = change_intensity(image, Change(contrast=1.7), generator())
    np.testing.assert_allclose(strong.mean(axes), mean, rtol=1e-4)
    np.testing.assert_allclose(strong.std(axes), 1.7 * deviation, rtol=1e-4)
    noisy = change_intensity(image, Change(noise=0.2), generator())
    np.testing.assert_allclose((noisy - image).std(axes), 0.2 * deviation, rtol=0.05)
    np.testing.assert_array_equal(noisy, change_intensity(image, Change(noise=0.2), generator()))


def test_gamma_bends_the_histogram_and_keeps_order_mean_and_deviation():
    image = make_arrays()[0][None]
    bent = change_intensity(image, Change(gamma=1.4), generator())
    assert bent.dtype == np.float32
    np.testing.assert_allclose([bent.mean(), bent.std()], [image.mean(), image.std()], rtol=1e-4)
    order = np.argsort(image.ravel(), kind="stable")
    assert (np.diff(bent.ravel()[order]) >= -1e-3).all()
    assert np.abs(bent - image).max() > 0.1 * image.std()
    low, high = image.min(), image.max()
    plain = ((image - low) / (high - low)) ** 1.4
    expected = (plain - plain.mean()) / plain.std() * image.std() + image.mean()
    np.testing.assert_allclose(bent, expected, rtol=1e-3)


def test_a_constant_patch_stays_finite():
    flat = np.full((1, 3, 4, 5), 7.0, np.float32)
    change = Change(gamma=1.3, contrast=1.2, brightness=0.1, noise=0.1)
    np.testing.assert_allclose(change_intensity(flat, change, generator()), 7.0)


@pytest.mark.parametrize(
    "bad",
    [
        {"mirror": (3,)},
        {"mirror": (0, 0)},
        {"scale": 0.8},
        {"gamma": 0.0},
        {"noise": -1.0},
        {"chance": 1.5},
        {"shift": 0.6},
    ],
)
def test_bad_settings_name_themselves(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Augmentation(**bad)
