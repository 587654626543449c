"""A patch is a function of its seed and number; it shows what was asked for, and nothing made up is labelled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.data.nifti import make_arrays
from torchsonic.lab.data.draws import number_generator
from torchsonic.lab.data.labels import IGNORE
from torchsonic.lab.data.volumes.collection import index_classes
from torchsonic.lab.data.volumes.patches import (
    centred_start,
    choose_start,
    cut,
    cut_moved,
    shows_foreground,
)

sizes = st.tuples(*[st.integers(1, 12)] * 3)


@given(sizes, sizes, st.integers(0, 1000))
def test_a_patch_lies_inside_or_round_the_volume(size, patch, number):
    generator = number_generator(0, number, purpose=1)
    label = np.arange(np.prod(size), dtype=np.int16).reshape(size)
    start = choose_start(size, patch, generator)
    image, cut_label = cut(label[None], label, start, patch)
    assert image.shape == (1, *patch)
    inside = cut_label != IGNORE
    assert inside.sum() == np.prod([min(n, p) for n, p in zip(size, patch, strict=True)])
    np.testing.assert_array_equal(image[0][inside], cut_label[inside])
    for s, n, p in zip(start, size, patch, strict=True):
        assert 0 <= s <= n - p if n >= p else s == -((p - n) // 2)


def test_beyond_the_border_the_outermost_voxels_go_on():
    image, label = make_arrays((3, 4, 5))
    patch = (6, 4, 9)
    start = centred_start(label.shape, patch)
    padded, padded_label = cut(image[None], label, start, patch)
    expected = np.pad(image, ((1, 2), (0, 0), (2, 2)), mode="edge")
    np.testing.assert_array_equal(padded[0], expected)
    expected = np.pad(label, ((1, 2), (0, 0), (2, 2)), constant_values=IGNORE)
    np.testing.assert_array_equal(padded_label, expected)


def test_a_patch_is_a_plain_piece_of_the_volume():
    image, label = make_arrays((8, 9, 10))
    cut_image, cut_label = cut(image[None], label, (1, 2, 3), (4, 5, 6))
    np.testing.assert_array_equal(cut_image[0], image[1:5, 2:7, 3:9])
    np.testing.assert_array_equal(cut_label, label[1:5, 2:7, 3:9])


def test_random_numbers_belong_to_seed_number_and_purpose():
    def draw(*key, purpose):
        return number_generator(*key, purpose=purpose).random(4).tolist()

    assert draw(0, 5, purpose=1) == draw(0, 5, purpose=1)
    others = [draw(1, 5, purpose=1), draw(0, 6, purpose=1), draw(0, 5, purpose=2)]
    assert all(other != draw(0, 5, purpose=1) for other in others)


@given(st.floats(0, 1), st.integers(0, 500), st.integers(1, 300))
def test_the_share_of_foreground_holds_in_any_run_of_samples(share, first, count):
    shown = sum(shows_foreground(number, share) for number in range(first, first + count))
    assert abs(shown - share * count) < 1 + 1e-6


def test_foreground_patches_show_every_class_alike_in_their_middle():
    label = np.zeros((20, 40, 40), np.int16)
    label[6:14, 8:30, 8:30] = 1
    label[9, 12, 13] = 2  # a class of a single voxel is shown as often
    places, patch = index_classes(label), (6, 10, 10)
    middles, anywhere = [], 0
    for number in range(400):
        start = choose_start(label.shape, patch, number_generator(0, number, purpose=1), places=places)
        middles.append(int(label[tuple(s + p // 2 for s, p in zip(start, patch, strict=True))]))
        start = choose_start(label.shape, patch, number_generator(0, number, purpose=1))
        anywhere += (cut(label[None], label, start, patch)[1] == 2).any()
    assert middles.count(0) == 0
    assert 160 < middles.count(2) < 240
    assert anywhere < 40


def test_a_foreground_voxel_at_the_border_is_in_the_patch():
    label = np.zeros((9, 12, 12), np.int16)
    label[0, 0, 11] = 1
    start = choose_start(label.shape, (4, 6, 6), number_generator(0, 0, purpose=1), places=index_classes(label))
    assert (cut(label[None], label, start, (4, 6, 6))[1] == 1).sum() == 1


@pytest.mark.parametrize("start", [(2, 3, 4), (-2, 6, 7)])
def test_no_motion_gives_the_straight_patch(start):
    image, label = make_arrays((9, 14, 15))
    straight = cut(image[None], label, start, (6, 9, 8))
    moved = cut_moved(image[None], label, start, (6, 9, 8), np.eye(3))
    np.testing.assert_allclose(moved[0], straight[0], rtol=1e-4)
    np.testing.assert_array_equal(moved[1], straight[1])


def test_a_moved_patch_agrees_with_an_independent_interpolation():
    ndimage = pytest.importorskip("scipy.ndimage", reason="scipy is not installed")
    image, label = make_arrays((9, 30, 28))
    start, patch = (2, 6, 5), (6, 14, 12)
    matrix = np.array([[0.9, 0.05, 0.0], [0.1, 0.8, -0.6], [0.0, 0.6, 0.85]])
    half = (np.array(patch) - 1) / 2
    offset = np.array(start) + half - matrix @ half
    expected = ndimage.affine_transform(image, matrix, offset, patch, order=1, mode="nearest")
    labels = ndimage.affine_transform(label + 1, matrix, offset, patch, order=0, mode="constant", cval=0) - 1
    moved = cut_moved(image[None], label, start, patch, matrix)
    np.testing.assert_allclose(moved[0][0], expected, rtol=1e-4)
    inside = (moved[1] != IGNORE) & (labels >= 0)  # half a voxel beyond the outermost still counts as theirs, or not
    assert inside.mean() > 0.9
    np.testing.assert_array_equal(moved[1][inside], labels[inside])
