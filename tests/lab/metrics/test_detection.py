"""Lesions are counted as the definitions say, on maps whose answer is known."""

import math

import numpy as np
import pytest

from torchsonic.lab.metrics.detection import SHARES, extract_candidates, find_lesions, summarise_lesions

pytest.importorskip("picai_eval", reason="picai_eval is not installed")

SIZE = (10, 40, 40)
FIRST = (slice(2, 6), slice(4, 12), slice(4, 12))
SECOND = (slice(4, 8), slice(24, 32), slice(24, 32))
THIRD = (slice(1, 4), slice(24, 32), slice(4, 12))


def volume(**boxes):
    """A volume with a number in each of some boxes."""
    places = {"first": FIRST, "second": SECOND, "third": THIRD}
    made = np.zeros(SIZE, dtype=np.float32)
    for name, value in boxes.items():
        made[places[name]] = value
    return made


def case(found=(), missed=0, alarms=(), confidence=None):
    findings = [{"lesion": True, "confidence": c, "overlap": 0.5} for c in found]
    findings += [{"lesion": True, "confidence": 0.0, "overlap": 0.0}] * missed
    findings += [{"lesion": False, "confidence": c, "overlap": 0.0} for c in alarms]
    best = max([*found, *alarms], default=0.0)
    return {
        "confidence": best if confidence is None else confidence,
        "lesions": len(found) + missed,
        "findings": findings,
    }


def test_candidates_are_the_peaks_with_what_hangs_on_them():
    probability = volume(first=0.9, second=0.4)
    probability[2:6, 4:12, 12] = 0.38  # above 40 % of the peak beside it
    probability[2:6, 4:12, 13] = 0.3  # under it, and beside an earlier candidate
    candidates = extract_candidates(probability)
    assert set(np.unique(candidates)) == {np.float32(0.0), np.float32(0.4), np.float32(0.9)}
    assert (candidates == np.float32(0.9)).sum() == 4 * 8 * 9
    assert (candidates == np.float32(0.4)).sum() == 4 * 8 * 8
    assert not candidates[2:6, 4:12, 13].any()


def test_faint_small_and_too_many_spots_are_no_candidates():
    faint = volume(first=0.09)
    assert not extract_candidates(faint).any()
    assert extract_candidates(faint, floor=0.05).any()
    small = np.zeros(SIZE)
    small[2, 2, 2:12] = 0.9
    assert not extract_candidates(small).any(), "ten voxels are not more than ten"
    assert extract_candidates(small, min_voxels=9).any()
    probability = volume(first=0.9, second=0.8, third=0.7)
    assert set(np.unique(extract_candidates(probability, most=2))) == {0.0, np.float32(0.8), np.float32(0.9)}


def test_found_missed_and_false_alarms():
    result = find_lesions(volume(first=0.9, third=0.6), volume(first=1, second=1))
    assert result["lesions"] == 2
    assert result["confidence"] == pytest.approx(0.9)
    found, missed, alarm = sorted(result["findings"], key=lambda finding: (not finding["lesion"], -finding["overlap"]))
    assert (found["lesion"], found["overlap"]) == (True, pytest.approx(1.0))
    assert missed == {"lesion": True, "confidence": 0.0, "overlap": 0.0}
    assert (alarm["lesion"], alarm["confidence"]) == (False, pytest.approx(0.6))


@pytest.mark.parametrize(("min_overlap", "is_found"), [(0.1, True), (0.3, True), (0.4, False)])
def test_overlap_decides_what_is_found(min_overlap, is_found):
    label = volume(first=1)
    probability = np.roll(volume(first=0.9), 4, axis=2)  # half of it: intersection over union 1/3
    result = find_lesions(probability, label, min_overlap=min_overlap)
    assert any(f["lesion"] and f["confidence"] > 0 for f in result["findings"]) == is_found
    assert any(not f["lesion"] for f in result["findings"]) != is_found


def test_a_case_without_anything_has_no_findings():
    assert find_lesions(np.zeros(SIZE), np.zeros(SIZE)) == {"confidence": 0.0, "lesions": 0, "findings": []}


def test_rates_are_counted_over_lesions_at_the_threshold():
    cases = {"a": case(found=[0.9, 0.4], alarms=[0.7]), "b": case(missed=1), "c": case(alarms=[0.3])}
    result = summarise_lesions(cases, threshold=0.5)
    overall = result["overall"]
    assert (overall["lesions"], overall["found"], overall["missed"], overall["false_alarms"]) == (3, 1, 2, 1)
    assert overall["sensitivity"]["value"] == pytest.approx(1 / 3)
    assert overall["precision"]["value"] == pytest.approx(1 / 2)
    assert overall["f1"]["value"] == pytest.approx(2 * (1 / 2 * 1 / 3) / (1 / 2 + 1 / 3))
    assert [overall[share] for share in SHARES] == pytest.approx([1 / len(cases), 1 / len(cases), 2 / len(cases)])
    assert summarise_lesions(cases, threshold=0.3)["overall"]["found"] == 2
    assert result["cases"]["c"] == {
        "confidence": 0.3,
        "lesions": 0,
        "found": 0,
        "missed": 0,
        "false_alarms": 0,
        "sensitivity": None,
        "precision": None,
        "f1": None,
    }


def test_areas_are_those_of_the_definitions():
    ill = [0.9, 0.6, 0.35, 0.0]
    well = [0.5, 0.2, 0.1]
    cases = {f"i{c}": case(found=[c]) if c else case(missed=1) for c in ill}
    cases |= {f"w{c}": case(alarms=[c]) for c in well}
    overall = summarise_lesions(cases)["overall"]
    pairs = [float(a > b) for a in ill for b in well]
    assert overall["auroc"]["value"] == pytest.approx(sum(pairs) / len(pairs))
    # Going down the confidences, precision at each lesion found, times its share of the four lesions.
    assert overall["ap"]["value"] == pytest.approx((1 / 1 + 2 / 2 + 3 / 4) / 4)


def test_areas_that_do_not_exist_are_none():
    only_ill = summarise_lesions({"a": case(found=[0.9]), "b": case(missed=1)})["overall"]
    assert only_ill["auroc"]["value"] is None
    assert only_ill["ap"]["value"] == pytest.approx(0.5)
    only_well = summarise_lesions({"a": case(alarms=[0.9]), "b": case()})["overall"]
    assert (only_well["auroc"]["value"], only_well["ap"]["value"]) == (None, None)
    assert only_well["sensitivity"]["value"] is None
    assert only_well["precision"]["value"] == 0.0


def test_intervals_hold_the_value_and_come_from_the_seed():
    generator = np.random.default_rng(0)
    cases = {
        str(n): case(found=[generator.random()]) if n % 2 else case(alarms=[generator.random()]) for n in range(24)
    }
    result = summarise_lesions(cases, seed=1, resamples=60)["overall"]
    assert result == summarise_lesions(cases, seed=1, resamples=60)["overall"]
    assert result != summarise_lesions(cases, seed=2, resamples=60)["overall"]
    for name in ("auroc", "ap", "f1", "sensitivity", "precision"):
        assert result[name]["low"] <= result[name]["value"] <= result[name]["high"]
        assert result[name]["low"] < result[name]["high"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros((4, 4)), np.zeros((4, 4))), r"probability must be a volume \(D, H, W\)"),
        ((np.full(SIZE, 3.0), np.zeros(SIZE)), "give probabilities, not logits"),
        ((np.full(SIZE, math.nan), np.zeros(SIZE)), "give probabilities, not logits"),
        ((np.zeros(SIZE), np.zeros((10, 40, 41))), r"label has \(10, 40, 41\)"),
    ],
)
def test_mistakes_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        find_lesions(*arguments)
    with pytest.raises(ValueError, match="min_overlap must be in"):
        find_lesions(np.zeros(SIZE), np.zeros(SIZE), min_overlap=0.0)
    with pytest.raises(ValueError, match="threshold must be in"):
        summarise_lesions({}, threshold=1.5)
