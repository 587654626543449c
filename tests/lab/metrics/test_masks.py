"""Scores of pictures against their definitions, written out."""

import math

import numpy as np
import pytest

pytest.importorskip("scipy", reason="SciPy is not installed")

from torchsonic.lab.metrics.masks import THRESHOLDS, average_precision, score_mask


def blobs(seed, size=(24, 30), count=7):
    """Random objects, the number of each any."""
    generator = np.random.default_rng(seed)
    label = np.zeros(size, np.int32)
    for number in generator.permutation(np.arange(1, 40))[:count]:
        y, x = generator.integers(0, size[0] - 5), generator.integers(0, size[1] - 5)
        label[y : y + generator.integers(2, 8), x : x + generator.integers(2, 8)] = number
    return label


def shifted(label, seed):
    generator = np.random.default_rng(seed)
    moved = np.roll(label, generator.integers(0, 2, 2), axis=(0, 1))
    moved[moved == np.unique(moved)[1]] = 0
    return moved


def precision_by_definition(prediction, label, threshold):
    found = [prediction == n for n in np.unique(prediction) if n]
    true = [label == n for n in np.unique(label) if n]
    hits = sum(any((a & b).sum() / (a | b).sum() > threshold for a in found) for b in true)
    total = len(found) + len(true) - hits
    return hits / total if total else math.nan


@pytest.mark.parametrize("seed", range(8))
def test_precision_is_found_over_found_missed_and_false(seed):
    label = blobs(seed)
    prediction = shifted(label, seed)
    expected = [precision_by_definition(prediction, label, threshold) for threshold in THRESHOLDS]
    assert average_precision(prediction, label) == pytest.approx(expected)
    assert average_precision(label, label) == [1.0] * len(THRESHOLDS)


def test_pictures_without_objects():
    empty, full = np.zeros((6, 6), int), np.ones((6, 6), int)
    assert all(map(math.isnan, average_precision(empty, empty)))
    assert average_precision(empty, full) == average_precision(full, empty) == [0.0] * len(THRESHOLDS)
    with pytest.raises(ValueError, match=r"at least 0\.5"):
        average_precision(empty, empty, [0.4])


def border(mask):
    """Pixels of a mask with a neighbour to the side that is outside, or with none."""
    wide = np.pad(mask, 1)
    inside = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.argwhere(mask & ~inside)


@pytest.mark.parametrize("spacing", [(1.0, 1.0), (0.5, 0.25)])
@pytest.mark.parametrize("seed", range(4))
def test_the_boundary_score_is_the_part_of_borders_within_the_tolerance(seed, spacing):
    label = blobs(seed) > 0
    prediction = shifted(blobs(seed), seed) > 0
    scores = score_mask(prediction, label, instances=False, spacing=spacing, num_classes=2, tolerance=0.7)
    one, other = (border(mask) * np.array(spacing) for mask in (prediction, label))
    distance = np.linalg.norm(one[:, None] - other[None], axis=-1)
    near = (distance.min(1) <= 0.7 * (1 + 1e-4)).sum() + (distance.min(0) <= 0.7 * (1 + 1e-4)).sum()
    assert scores["boundary"] == pytest.approx([near / (len(one) + len(other))])
    overlap = 2 * (prediction & label).sum() / (prediction.sum() + label.sum())
    assert scores["dice"] == pytest.approx([overlap])


def test_objects_are_one_class_and_absent_classes_have_no_score():
    label = blobs(3)
    scores = score_mask(label, label, instances=True, spacing=(1.0, 1.0), num_classes=3, tolerance=2.0)
    assert scores == {"dice": [1.0], "boundary": [1.0], "precision": [1.0] * len(THRESHOLDS)}
    label = np.minimum(label, 1)
    scores = score_mask(label, label, instances=False, spacing=(1.0, 1.0), num_classes=3, tolerance=2.0)
    assert scores == {"dice": [1.0, None], "boundary": [1.0, None]}
