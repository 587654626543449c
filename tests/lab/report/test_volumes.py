"""The report on volumes: what is scored, what is drawn, what is refused."""

import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.lab.data.nifti import make_affine, make_arrays, write
from torchsonic.lab.data.volumes import CaseError
from torchsonic.lab.metrics.volumes import score_case
from torchsonic.lab.report import write_document
from torchsonic.lab.report.volumes import Scoring, make_page, overlay, score_folders
from torchsonic.lab.report.volumes.results import (
    CaseResult,
    Evaluation,
    ModelResult,
    case_warnings,
    compare,
    worst_first,
)

pytest.importorskip("nibabel", reason="nibabel is not installed")
pytest.importorskip("monai", reason="MONAI is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

SPACING = (4.0, 1.5, 1.0)
ORIGIN = {
    "command": "torchsonic evaluate volumes",
    "commit": "0123456789abcdef",
    "dirty": False,
    "date": "2026-01-01T00:00:00+00:00",
    "seed": 0,
    "threads": 1,
    "device": "cpu",
    "cpu": "a processor",
    "busy_cores": 0.0,
    "torch": "2.13.0",
    "torchsonic": "0.1.0",
}
SCRIPT = "<script>alert(1)</script>"


def write_pair(root, name, *, seed=0, change=lambda label: label, affine=None):
    """A label, its image and a prediction made from the label."""
    image, label = make_arrays(seed=seed)
    for folder, array in (("labels", label), ("images", image)):
        write(root / folder / f"{name}.nii.gz", array, make_affine())
    prediction = change(label)
    write(root / "predictions" / f"{name}.nii.gz", prediction, make_affine() if affine is None else affine)
    return prediction, label


@pytest.fixture
def folders(tmp_path):
    write_pair(tmp_path, "good")
    write_pair(tmp_path, "moved", seed=1, change=lambda label: np.roll(label, 2, axis=1))
    write_pair(tmp_path, "empty", seed=2, change=np.zeros_like)
    return tmp_path


QUIET = Scoring(pictures=False, show=False)


def score(root, *, images=None, probabilities=None, **options):
    places = {"images": images, "probabilities": probabilities}
    return score_folders(root / "predictions", root / "labels", scoring=replace(QUIET, **options), **places)


def test_several_folders_are_compared_on_the_cases_they_share(folders):
    for name in ("good", "moved", "empty"):
        copied = folders / "other" / f"{name}.nii.gz"
        copied.parent.mkdir(exist_ok=True)
        copied.write_bytes((folders / "labels" / f"{name}.nii.gz").read_bytes())
    both = [folders / "other", folders / "predictions"]
    found = score_folders(both, folders / "labels", scoring=QUIET)
    assert [model.name for model in found.models] == ["other", "predictions"]
    assert all(case.mean("dice") == 1 for case in found.models[0].cases.values())
    alone = score(folders)
    assert found.models[1].summary() == alone.models[0].summary()
    (difference,) = compare(found.models)
    assert difference["dice"]["mean"] == pytest.approx(1 - alone.models[0].summary()["mean"]["dice"]["mean"])
    with pytest.raises(ValueError, match="twice"):
        score_folders([both[0], both[0]], folders / "labels", scoring=QUIET)
    (folders / "other" / "good.nii.gz").unlink()
    with pytest.raises(ValueError, match=r"case good: .*other has no prediction"):
        score_folders(both, folders / "labels", scoring=QUIET)


def make_case(*dice, seconds=None, peak=None, lesions=None):
    rows = [{"class": k, "dice": d, "nsd": d / 2} for k, d in enumerate(dice, start=1)]
    return CaseResult(scores=rows, seconds=seconds, peak_bytes=peak, lesions=lesions)


def make_evaluation(models, **changes):
    names = {name for model in models for name in model.cases}
    defaults = {
        "title": "A title",
        "classes": ["RV", "LV"],
        "models": models,
        "pictures": {},
        "spacings": dict.fromkeys(names, (10.0, 1.5, 1.5)),
        "tolerance": 2.0,
        "run": ORIGIN,
    }
    return Evaluation(**{**defaults, **changes})


def test_folders_are_scored_case_by_case(folders):
    evaluation = score(folders)
    (model,) = evaluation.models
    assert set(model.cases) == {"good", "moved", "empty"}
    assert evaluation.classes == ["class 1", "class 2"]
    assert [row["dice"] for row in model.cases["good"].scores] == [1.0, 1.0]
    assert [row["nsd"] for row in model.cases["empty"].scores] == [0.0, 0.0]
    label = make_arrays(seed=1)[1]
    expected = score_case(np.roll(label, 2, axis=1), label, SPACING, num_classes=3)
    assert model.cases["moved"].scores == expected
    assert evaluation.cases == ["empty", "moved", "good"], "the worst first"
    assert evaluation.spacings["good"] == pytest.approx(SPACING)


def test_names_of_classes_come_from_nnunet_or_from_the_user(folders):
    labels = {"background": 0, "wall": 1, "cavity": 2, "more": 3}
    (folders / "predictions" / "dataset.json").write_text(json.dumps({"labels": labels}))
    evaluation = score(folders)
    assert evaluation.classes == ["wall", "cavity", "more"]
    assert math.isnan(evaluation.models[0].cases["good"].scores[2]["dice"]), "nobody has the third class"
    assert score(folders, classes=["a", "b"]).classes == ["a", "b"]
    (folders / "predictions" / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "region": [1, 2]}}))
    assert score(folders).classes == ["class 1", "class 2"]


def test_regions_are_scored_as_one_class_each_and_may_overlap(folders):
    found = score(folders, classes=("whole=1,2", "core=2"))
    plain = score(folders)
    assert list(found.classes) == ["whole", "core"]
    for name in ("good", "moved"):
        whole, core = found.models[0].cases[name].scores
        assert core["dice"] == plain.models[0].cases[name].scores[1]["dice"]
        assert core["nsd"] == plain.models[0].cases[name].scores[1]["nsd"]
        prediction, label = (np.asarray(load(folders / kind, name)) > 0 for kind in ("predictions", "labels"))
        assert whole["dice"] == 2 * (prediction & label).sum() / (prediction.sum() + label.sum())
    for wrong in (("whole=1,2", "core"), ("whole=1,2", "whole=2"), ("whole=1,b", "core=2")):
        with pytest.raises(ValueError, match="all regions such as tumour=2,3"):
            score(folders, classes=wrong)


def load(folder, name):
    import nibabel

    return nibabel.load(folder / f"{name}.nii.gz").dataobj


def test_labels_without_prediction_are_an_error_and_named(folders):
    (folders / "predictions" / "moved.nii.gz").unlink()
    write(folders / "predictions" / "foreign.nii.gz", make_arrays()[1], make_affine())
    with pytest.raises(
        ValueError, match=r"case foreign: .* has no label for it; case moved: .* has no prediction for it"
    ):
        score(folders)
    evaluation = score(folders, keep_going=True)
    assert set(evaluation.models[0].cases) == {"good", "empty"}
    assert {name for name, _ in evaluation.skipped} == {"foreign", "moved"}
    assert any("2 cases were left out" in text for text in case_warnings(evaluation))


def test_folders_without_a_common_name_are_refused_even_if_told_to_go_on(tmp_path):
    write(tmp_path / "predictions" / "a.nii.gz", make_arrays()[1], make_affine())
    write(tmp_path / "labels" / "b.nii.gz", make_arrays()[1], make_affine())
    with pytest.raises(ValueError, match=r"no file name in .*predictions is also in .*labels: it has a, not b"):
        score(tmp_path, keep_going=True)
    with pytest.raises(ValueError, match="there is no folder"):
        score_folders(tmp_path / "predictions", tmp_path / "nowhere", scoring=QUIET)
    (tmp_path / "void").mkdir()
    with pytest.raises(ValueError, match="void contains no file ending in"):
        score_folders(tmp_path / "void", tmp_path / "labels", scoring=QUIET)


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        ({"change": lambda label: label[:-1]}, "shape .* differs"),
        ({"change": lambda label: label + 5}, r"label values 5, 6, 7 are none of the classes 0 to 2"),
        ({"change": lambda label: label * 0.3}, "none of the classes"),
        ({"affine": make_affine(origin=(50.0, 7.5, 3.25))}, "mm away"),
        ({"change": lambda label: label[0]}, "has 2 axes"),
    ],
)
def test_bad_predictions_are_named_and_cost_nothing_else(folders, spoilt, words):
    write_pair(folders, "bad", seed=3, **spoilt)
    with pytest.raises(CaseError, match=f"case bad: .*predictions/bad.nii.gz: .*{words}"):
        score(folders)
    evaluation = score(folders, keep_going=True)
    assert set(evaluation.models[0].cases) == {"good", "moved", "empty"}
    ((name, reason),) = evaluation.skipped
    assert name == "bad"
    assert re.search(words, reason)


def test_an_unreadable_label_is_named(folders):
    path = folders / "labels" / "good.nii.gz"
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(CaseError, match=r"case good: .*labels/good.nii.gz: cannot be read"):
        score(folders)


def test_if_nothing_is_left_it_is_said(folders):
    for name in ("good", "moved", "empty"):
        write_pair(folders, name, change=lambda label: label[:-1])
    with pytest.raises(ValueError, match="all 3 cases were left out; the first because: case empty"):
        score(folders, keep_going=True)


def test_a_missing_image_is_named(folders):
    (folders / "images" / "moved.nii.gz").rename(folders / "images" / "moved_0000.nii.gz")
    assert len(score(folders, images=folders / "images").models[0].cases) == 3
    (folders / "images" / "good.nii.gz").unlink()
    with pytest.raises(CaseError, match=r"case good: .*there is no such image"):
        score(folders, images=folders / "images")


def test_lesions_are_counted_from_probabilities(folders):
    pytest.importorskip("picai_eval", reason="picai_eval is not installed")
    for name in ("good", "moved", "empty"):
        label = make_arrays(seed=("good", "moved", "empty").index(name))[1]
        chance = 0.9 * (label == 2) if name != "empty" else np.zeros(label.shape)
        if name == "good":
            write(folders / "chances" / f"{name}.nii.gz", chance.astype(np.float32), make_affine())
        else:
            packed = np.stack([1 - chance, 0 * chance, chance]).astype(np.float16)
            np.savez_compressed(folders / "chances" / f"{name}.npz", probabilities=packed)
    evaluation = score(folders, lesion_class=2, probabilities=folders / "chances")
    found = evaluation.models[0].lesions(0.5)
    assert found is not None
    assert (found["overall"]["lesions"], found["overall"]["found"]) == (3, 2)
    assert found["cases"]["empty"]["missed"] == 1
    with pytest.raises(ValueError, match="--lesions must be a class from 1 to 2, got 3"):
        score(folders, lesion_class=3, probabilities=folders / "chances")
    with pytest.raises(CaseError, match=r"case empty: .*empty.npz: there are no probabilities"):
        score(folders, lesion_class=2)
    with pytest.raises(CaseError, match=r"case good: .*need probabilities in \[0, 1\]"):
        score(folders, lesion_class=2, probabilities=folders / "predictions")
    np.savez_compressed(folders / "chances" / "moved.npz", probabilities=packed[:, 1:])
    with pytest.raises(CaseError, match=r"case moved: .*shape"):
        score(folders, lesion_class=2, probabilities=folders / "chances")
    (folders / "chances" / "moved.npz").unlink()
    with pytest.raises(CaseError, match=r"case moved: .*there are no probabilities"):
        score(folders, lesion_class=2, probabilities=folders / "chances")


def test_slices_go_across_the_coarsest_axis():
    assert overlay.choose_axis((1.0, 1.4, 8.0)) == 2
    assert overlay.choose_axis((1.0, 1.1, 1.05)) == 0
    assert overlay.choose_axis((0.5, 3.0, 0.5)) == 1


def test_slices_show_the_largest_structure_and_the_worst_one():
    label = np.zeros((20, 30, 30), dtype=np.int16)
    label[4:15, 5:20, 5:20] = 2
    label[16:18, 5:8, 5:8] = 1
    assert overlay.choose_slices(label, 0) == [6, 9, 12]
    assert overlay.choose_slices(np.zeros_like(label), 0) == [10]
    prediction = label.copy()
    prediction[17, 20:24, 20:25] = 1
    prediction[5, 5, 5] = 0
    assert overlay.worst_slice(prediction, label, 0) == (17, 20)


def test_the_crop_holds_every_structure_and_is_true_to_scale():
    label = np.zeros((4, 100, 100), dtype=np.int16)
    label[1, 40:50, 40:50] = 1
    far = label.copy()
    far[2, 80:82, 40:42] = 2
    rows, columns = overlay.crop_box([label], 0, (8.0, 2.0, 1.0))
    assert rows.start < 40 < 50 < rows.stop
    assert (40 - rows.start) * 2.0 == pytest.approx((40 - columns.start) * 1.0, abs=2.0), "the same room in mm"
    assert overlay.crop_box([label, far], 0, (8.0, 2.0, 1.0))[0].stop > 82
    assert overlay.crop_box([np.zeros_like(label)], 0, (8.0, 2.0, 1.0)) == (slice(0, 100), slice(0, 100))


def test_pictures_are_drawn_in_millimetres():
    from PIL import Image

    image, label = make_arrays((5, 24, 24), (5.0, 2.0, 1.0))
    drawn = overlay.draw_case(image, label, {"a $model": np.roll(label, 1, 2), "b": label}, (5.0, 2.0, 1.0), ["x", "y"])
    picture = Image.open(io.BytesIO(drawn))
    assert picture.format == "WEBP"
    assert picture.width > 400
    assert len(picture.convert("L").getcolors(256) or []) > 50, "there is something to see"
    empty = np.zeros_like(label)
    assert overlay.draw_case(None, empty, {"a": empty}, (1.0, 1.0, 1.0), ["x"])


def test_worst_cases_come_first_and_those_without_score_last():
    first = ModelResult(name="a", cases={"x": make_case(0.9), "y": make_case(0.2), "z": make_case(math.nan)})
    second = ModelResult(name="b", cases={"x": make_case(0.1), "y": make_case(0.9)})
    assert worst_first([first]) == ["y", "x", "z"]
    assert worst_first([first, second]) == ["x", "y", "z"]


def test_differences_are_paired_by_case():
    told = ModelResult(name="told", source="run", cases={str(n): make_case(0.5 + n / 20) for n in range(8)})
    deaf = ModelResult(name="deaf", source="run", cases={str(n): make_case(0.4 + n / 20) for n in range(1, 8)})
    other = ModelResult(name="other", source="elsewhere", cases={"0": make_case(0.7)})
    first, second = compare([told, deaf, other])
    assert (first["first"], first["second"]) == ("told", "deaf")
    assert first["dice"]["mean"] == pytest.approx(0.1)
    assert first["dice"]["low"] == pytest.approx(0.1), "what all cases share is no uncertainty"
    assert first["dice"]["count"] == 7
    assert (second["first"], second["second"]) == ("told", "other"), "another source is compared with the first"
    assert second["dice"]["mean"] == pytest.approx(-0.2)


def test_pages_show_every_number(tmp_path):
    lesions = {"confidence": 0.9, "lesions": 1, "findings": [{"lesion": True, "confidence": 0.9, "overlap": 0.5}]}
    cases = {
        f"c{n}": make_case(0.8 + n / 100, math.nan, seconds=2.0, peak=3 * 10**8, lesions=lesions) for n in range(9)
    }
    told = ModelResult(name="net, told", source="runs/a", cases=cases, parameters=1_234_567, origin=ORIGIN)
    deaf = ModelResult(name="net, not told", source="runs/a", cases={n: make_case(0.5, 0.1) for n in cases})
    evaluation = make_evaluation([told, deaf], pictures={"c3": b"RIFF"}, skipped=[("c9", "broken")])
    written = write_document(make_page(evaluation), tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in written} == {
        "report.html",
        "report.md",
        "report.json",
        "pictures/003_c3.webp",
    }
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    summary = told.summary()["classes"][0]["dice"]
    for shown in (page, text):
        for words in (
            f"{summary['mean']:.3f}",
            f"{summary['low']:.3f} to {summary['high']:.3f}",
            "1.235",
            "300",
            "net, told",
        ):
            assert words in shown
        assert "AUROC" in shown
        assert "TP/FP/FN per case" in shown
        assert "1.00/0.00/0.00" in shown
        assert "+0.540" in shown, "mean over classes: 0.84 against 0.30"
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["models"][0]["summary"]["classes"][1]["dice"]["mean"] is None
    assert data["models"][0]["cases"]["c0"]["scores"][1]["dice"] is None
    assert data["models"][0]["lesions"]["overall"]["found"] == 9
    assert data["skipped"] == [{"case": "c9", "reason": "broken"}]
    assert data["differences"][0]["first"] == "net, told"


def test_names_in_files_are_no_markup_and_cases_are_linked(tmp_path):
    model = ModelResult(name=f"m | {SCRIPT}", source=SCRIPT, cases={"<b>": make_case(0.5, 0.6)})
    evaluation = make_evaluation(
        [model], classes=["<i>", "LV|"], title=SCRIPT, skipped=[("<u>", SCRIPT)], pictures={"<b>": b"R"}
    )
    page = write_document(make_page(evaluation), tmp_path)[0].read_text()
    assert not re.search(r"<script>alert|<(i|u)>|<b>, ", page)
    assert all(f'id="{target}"' in page for target in re.findall(r'href="#([^"]+)"', page))
    assert "<script" not in re.sub(r"(`+).*?\1", "", (tmp_path / "report.md").read_text())


def test_cases_without_a_picture_have_their_scores_in_one_table():
    model = ModelResult(name="net", cases={name: make_case(0.5, 0.25) for name in "abc"})
    page = make_page(make_evaluation([model], pictures={"b": b"R"}))
    (table,) = page.sections[-1].blocks
    assert [row if isinstance(row, list) else row.title for row in table.rows] == [
        *["a, 10 \u00d7 1.5 \u00d7 1.5 mm", ["net", "0.500", "0.250", "0.250", "0.125"]],
        *["c, 10 \u00d7 1.5 \u00d7 1.5 mm", ["net", "0.500", "0.250", "0.250", "0.125"]],
    ]
    assert [figure.file for figure in page.figures] == ["pictures/001_b.webp"]


def test_what_cannot_be_compared_is_said():
    first = ModelResult(name="a", cases={"x": make_case(0.9, 0.9)})
    second = ModelResult(name="b", cases={"x": make_case(0.9, 0.9), "y": make_case(0.9, 0.9)})
    said = " ".join(case_warnings(make_evaluation([first, second])))
    assert "same cases (a: 1; b: 2)" in said
    assert "Only 1 case: the intervals" in said
    many = ModelResult(name="c", cases={str(n): make_case(0.9, 0.9) for n in range(6)})
    assert case_warnings(make_evaluation([many])) == []
    busy = {**ORIGIN, "busy_cores": 1.5}
    assert case_warnings(make_evaluation([many], run=busy)) == [], "there are no times to be spoilt"
    timed = ModelResult(name="c", cases={str(n): make_case(0.9, 0.9, seconds=1.0) for n in range(6)})
    (said,) = case_warnings(make_evaluation([timed], run=busy))
    assert "do not trust these times" in said
    (said,) = case_warnings(make_evaluation([many], skipped=[("x", "broken")]))
    assert said == "1 case was left out; it is listed at the end."
