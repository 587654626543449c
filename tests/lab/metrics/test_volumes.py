"""Scores of segmented volumes, against their definitions voxel by voxel."""

import itertools
import math

import numpy as np
import pytest

from torchsonic.lab.metrics.volumes import bootstrap_mean, score_case, summarise

pytest.importorskip("monai", reason="MONAI is not installed")

SPACINGS = [(1.0, 1.0, 1.0), (5.0, 0.7, 1.3), (0.4, 2.0, 1.0)]


def blobs(seed, size=(7, 14, 12), classes=3):
    """Random blobs of some classes, reaching the edges of the volume."""
    from scipy.ndimage import gaussian_filter

    fields = np.random.default_rng(seed).standard_normal((classes, *size))
    return np.argmax([gaussian_filter(field, (1.0, 2.0, 2.0)) for field in fields], axis=0)


def border(mask):
    """Voxels with a face neighbour that is not in the mask, or none at all."""
    found = []
    for place in np.argwhere(mask):
        for axis, step in itertools.product(range(3), (-1, 1)):
            other = place.copy()
            other[axis] += step
            if not 0 <= other[axis] < mask.shape[axis] or not mask[tuple(other)]:
                found.append(place)
                break
    return np.array(found)


def surface_dice(prediction, label, spacing, tolerance):
    ours, theirs = (border(mask) * np.array(spacing) for mask in (prediction, label))
    distance = np.linalg.norm(ours[:, None] - theirs[None], axis=-1)
    near = (distance.min(1) <= tolerance + 1e-5).sum() + (distance.min(0) <= tolerance + 1e-5).sum()
    return near / (len(ours) + len(theirs))


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("tolerance", [0.9, 2.0])
def test_scores_are_those_of_the_definition(spacing, tolerance):
    prediction, label = blobs(1), blobs(2)
    label[:, 3:, 3:] = prediction[:, 3:, 3:]
    rows = score_case(prediction, label, spacing, num_classes=3, tolerance=tolerance)
    assert [row["class"] for row in rows] == [1, 2]
    for row in rows:
        p, q = prediction == row["class"], label == row["class"]
        assert row["dice"] == pytest.approx(2 * (p & q).sum() / (p.sum() + q.sum()))
        assert row["nsd"] == pytest.approx(surface_dice(p, q, spacing, tolerance), abs=1e-6)
        assert 0.0 < row["nsd"] < 1.0


def test_spacing_is_in_the_order_of_the_axes():
    label = np.zeros((9, 9, 9), dtype=int)
    label[3:6, 3:6, 3:6] = 1
    moved = {axis: np.roll(label, 1, axis=axis) for axis in range(3)}
    rows = {axis: score_case(moved[axis], label, (3.0, 1.0, 1.0), num_classes=2)[0] for axis in range(3)}
    assert rows[1]["nsd"] == rows[2]["nsd"] == 1.0, "1 mm is within the tolerance"
    assert rows[0]["nsd"] < 1.0, "3 mm is not"
    assert rows[0]["dice"] == rows[1]["dice"]


def test_rounding_of_the_spacing_does_not_decide():
    label = np.zeros((9, 9, 9), dtype=int)
    label[3:6, 3:6, 3:6] = 1
    prediction = np.roll(label, 2, axis=1)
    for step in (1.0, float(np.float32(1.0) + np.finfo(np.float32).eps)):
        assert score_case(prediction, label, (step, step, step), num_classes=2)[0]["nsd"] == 1.0


def test_a_perfect_prediction_scores_one_wherever_the_class_is():
    label = blobs(5)
    for row in score_case(label, label, (10.0, 1.4, 1.4), num_classes=3):
        assert (row["dice"], row["nsd"]) == (1.0, 1.0)


def test_a_class_in_neither_has_no_score_and_one_in_one_of_them_scores_zero():
    label = np.zeros((4, 5, 6), dtype=np.int16)
    prediction = label.copy()
    label[1, 1:3, 1:3] = 1
    prediction[2, 2, 2] = 2
    first, second, third = score_case(prediction, label, (1.0, 1.0, 1.0), num_classes=4)
    assert (first["dice"], first["nsd"]) == (0.0, 0.0)
    assert (second["dice"], second["nsd"]) == (0.0, 0.0)
    assert math.isnan(third["dice"])
    assert math.isnan(third["nsd"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prediction": np.zeros((4, 5, 7))}, r"prediction has shape \(4, 5, 7\), but label has \(4, 5, 6\)"),
        ({"prediction": np.full((4, 5, 6), 3)}, "prediction contains class 3, but there are only classes 0 to 2"),
        ({"label": np.full((4, 5, 6), -1)}, "label contains class -1"),
        ({"prediction": np.full((4, 5, 6), 0.5)}, "give labels, not probabilities"),
        ({"label": np.zeros(5)}, r"label must be a volume \(D, H, W\)"),
        ({"spacing": (1.0, 1.0)}, "spacing must be 3 positive numbers"),
        ({"spacing": (1.0, 0.0, 1.0)}, "spacing must be 3 positive numbers"),
        ({"tolerance": -2.0}, "tolerance must be positive"),
    ],
)
def test_mistakes_are_named(changes, words):
    arguments = {"prediction": np.zeros((4, 5, 6)), "label": np.zeros((4, 5, 6)), "spacing": (1.0, 1.0, 1.0)}
    with pytest.raises(ValueError, match=words):
        score_case(**{**arguments, **changes}, num_classes=3)


def test_interval_is_the_bootstrap_percentile_of_the_mean():
    values = np.random.default_rng(3).normal(0.8, 0.1, size=200)
    found = bootstrap_mean(values, seed=1)
    assert found["mean"] == pytest.approx(values.mean())
    assert found["count"] == 200
    # For so many numbers the bootstrap of a mean is normal: 1.96 standard errors to either side.
    error = 1.96 * values.std() / math.sqrt(200)
    assert found["high"] - found["mean"] == pytest.approx(error, rel=0.15)
    assert found["mean"] - found["low"] == pytest.approx(error, rel=0.15)


def test_the_seed_decides_the_interval():
    values = [0.1, 0.5, 0.6, 0.9, 0.95]
    assert bootstrap_mean(values, seed=4) == bootstrap_mean(values, seed=4)
    assert bootstrap_mean(values, seed=4) != bootstrap_mean(values, seed=5)


def test_few_numbers_have_no_interval_and_none_no_mean():
    assert bootstrap_mean([0.5, math.nan]) == {"mean": 0.5, "low": None, "high": None, "count": 1}
    assert bootstrap_mean([math.nan]) == {"mean": None, "low": None, "high": None, "count": 0}


def test_summary_leaves_out_what_has_no_score():
    cases = {
        "a": [{"class": 1, "dice": 0.8, "nsd": 0.7}, {"class": 2, "dice": math.nan, "nsd": math.nan}],
        "b": [{"class": 1, "dice": 0.6, "nsd": 0.5}, {"class": 2, "dice": 0.2, "nsd": 0.1}],
    }
    result = summarise(cases)
    assert result == summarise(list(cases.values()))
    first, second = result["classes"]
    assert first["dice"]["mean"] == pytest.approx(0.7)
    assert (second["dice"]["mean"], second["dice"]["count"]) == (0.2, 1)
    assert result["mean"]["dice"]["mean"] == pytest.approx((0.8 + 0.4) / 2)
    assert result["mean"]["nsd"]["mean"] == pytest.approx((0.7 + 0.3) / 2)
    assert result["cases"] == 2


def test_summary_refuses_cases_of_different_classes():
    with pytest.raises(ValueError, match="same classes"):
        summarise([[{"class": 1, "dice": 1.0, "nsd": 1.0}], []])


def test_without_scipy_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    with pytest.raises(ImportError, match=r'pip install "torchsonic\[medical\]"'):
        score_case(np.ones((2, 2, 2)), np.ones((2, 2, 2)), (1.0, 1.0, 1.0), num_classes=2)
