"""Data sets as they are downloaded: found, checked, and brought into one layout."""

import shutil

import nibabel
import numpy as np
import pytest

pytest.importorskip("SimpleITK", reason="SimpleITK is not installed")

from recipes.gather import BOX, gather, gather_photographs
from recipes.layouts import check_cases, check_photographs
from recipes.split import make_splits
from tests.lab.data.nifti import write
from tests.lab.data.pictures import write_pictures
from tests.recipes import made_data

MAKE = {name: getattr(made_data, f"make_{name}") for name in ("kits", "acdc", "picai", "prostate158", "promis")}


def texts(problems, kind="data"):
    return [problem.text for problem in problems if problem.kind == kind]


@pytest.mark.parametrize("name", MAKE)
def test_good_data_is_only_short_of_cases(tmp_path, name):
    problems = check_cases(name, MAKE[name](tmp_path))
    assert not texts(problems)
    assert len(texts(problems, "count")) == (name != "promis")


def test_missing_folders_and_foreign_ones_are_named(tmp_path):
    assert "there is no folder" in texts(check_cases("kits", tmp_path / "none"))[0]
    assert "--acdc" in texts(check_cases("acdc", None))[0]
    assert "it should hold case_00000/imaging.nii.gz" in texts(check_cases("kits", tmp_path))[0]


def test_bad_files_are_named(tmp_path):
    folder = made_data.make_kits(tmp_path)
    cut = folder / "case_00001" / "imaging.nii.gz"
    cut.write_bytes(cut.read_bytes()[:-100])
    (folder / "case_00002" / "segmentation.nii.gz").unlink()
    (folder / "case_00003" / "imaging.nii.gz").write_text("a letter")
    write(folder / "case_00004" / "segmentation.nii.gz", np.zeros((5, 5, 5), np.uint8), made_data.AFFINE)
    found = texts(check_cases("kits", folder))
    assert len(found) == 4
    for text, words in zip(found, ("cut short", "no such file", "cannot be read", "has shape"), strict=True):
        assert words in text
    for number, text in enumerate(found, start=1):
        assert f"case_{number:05d}" in text


def test_a_missing_channel_and_a_broken_scan_are_named(tmp_path):
    folder = made_data.make_picai(tmp_path)
    (folder / "images" / "10002" / "10002_1000002_adc.mha").unlink()
    (folder / "images" / "10003" / "10003_1000003_hbv.mha").write_text("a letter")
    shutil.rmtree(folder / "images" / "10004")
    found = "\n".join(texts(check_cases("picai", folder)))
    for words in ("10002_1000002_adc.mha", "10003_1000003_hbv.mha", "10004_1000004_t2w.mha"):
        assert words in found
    promis = made_data.make_promis(tmp_path / "promis")
    (promis / "images" / "p1_0002.nii.gz").unlink()
    assert "case p1 has 2 channels instead of 3" in texts(check_cases("promis", promis))[0]


def test_many_problems_are_counted(tmp_path):
    folder = made_data.make_kits(tmp_path, 14)
    for path in folder.glob("*/imaging.nii.gz"):
        path.write_bytes(b"")
    found = texts(check_cases("kits", folder))
    assert len(found) == 11
    assert found[-1].endswith("4 problems more of this kind")


def test_photographs_are_checked(tmp_path):
    folder = write_pictures(tmp_path)
    problems = check_photographs(folder)
    assert not texts(problems)
    assert "18 images of 3 classes" in texts(problems, "count")[0]
    (folder / "train" / "red" / "001.png").write_bytes(b"no picture")
    shutil.rmtree(folder / "val")
    (folder / "val").mkdir()
    (folder / "val" / "ILSVRC2012_val_00000001.JPEG").touch()
    found = texts(check_photographs(folder))
    assert "001.png" in found[0]
    assert "put the images of each class into a folder of its own" in found[1]


def test_prostates_lie_on_the_grid_of_t2_and_lesions_are_one_class(tmp_path):
    folder = made_data.make_picai(tmp_path / "picai")
    assert gather("picai", folder, tmp_path / "out") == 7
    first, *others, label = (
        nibabel.load(tmp_path / "out" / kind / f"10001_1000001{ending}.nii.gz")
        for kind, ending in (("images", "_0000"), ("images", "_0001"), ("images", "_0002"), ("labels", ""))
    )
    for file in (*others, label):
        assert file.shape == first.shape
        np.testing.assert_allclose(file.affine, first.affine, atol=1e-5)
    assert set(np.unique(label.dataobj)) == {0, 1}
    # The lesion is bright in the coarse channels too, at its own place.
    bright, inside = np.asarray(others[1].dataobj), np.asarray(label.dataobj) > 0
    assert bright[inside].mean() > bright[~inside].mean() + 40


def test_prostates_without_a_tumour_have_an_empty_label(tmp_path):
    folder = made_data.make_prostate158(tmp_path / "p158")
    assert gather("prostate158", folder, tmp_path / "out") == 4
    sums = [np.asarray(nibabel.load(path).dataobj).sum() for path in sorted((tmp_path / "out" / "labels").iterdir())]
    assert [bool(total) for total in sums] == [True, False, True, False]
    assert not texts(check_cases("promis", tmp_path / "out")), "what is gathered lies in the plain layout"


@pytest.mark.parametrize("name", ["kits", "acdc"])
def test_whole_volumes_are_linked(tmp_path, name):
    folder = MAKE[name](tmp_path / "data")
    count = gather(name, folder, tmp_path / "out")
    links = [path for path in (tmp_path / "out").rglob("*.nii.gz") if path.is_symlink()]
    assert len(links) == 2 * count
    assert not texts(check_cases(name, tmp_path / "out"))
    assert gather(name, folder, tmp_path / "out") == count, "it can be done again"


def test_a_smoke_test_has_few_small_cases_of_different_patients(tmp_path):
    assert gather("acdc", made_data.make_acdc(tmp_path / "acdc", 8), tmp_path / "out", smoke=True) == 5
    files = sorted((tmp_path / "out" / "images").iterdir())
    assert len({path.name.partition("_")[0] for path in files}) == 5
    assert all(max(nibabel.load(path).shape) <= BOX for path in files)
    assert gather("picai", made_data.make_picai(tmp_path / "picai"), tmp_path / "ill", smoke=True) == 5
    sums = [np.asarray(nibabel.load(path).dataobj).sum() for path in (tmp_path / "ill" / "labels").iterdir()]
    assert sorted(bool(total) for total in sums) == [False] * 2 + [True] * 3
    assert gather_photographs(write_pictures(tmp_path / "photos"), tmp_path / "few") == 27


def test_folds_of_acdc_are_those_of_nnunet(tmp_path):
    conversion = pytest.importorskip("nnunetv2.dataset_conversion.Dataset027_ACDC")
    gather("acdc", made_data.make_acdc(tmp_path / "acdc", 12), tmp_path / "out")
    names = [path.name.removesuffix(".nii.gz") for path in (tmp_path / "out" / "labels").iterdir()]
    theirs = conversion.create_ACDC_split(str(tmp_path / "out" / "labels"))
    ours = make_splits(names, r"patient\d+")
    assert [{part: sorted(fold[part]) for part in fold} for fold in ours] == [
        {part: sorted(fold[part]) for part in fold} for fold in theirs
    ]


def test_a_patient_is_in_one_fold_only():
    names = [f"{patient}_{study}" for patient in range(11) for study in range(2)]
    splits = make_splits(names, r"^[^_]+")
    assert sorted(name for split in splits for name in split["val"]) == sorted(names)
    for split in splits:
        assert not {name.partition("_")[0] for name in split["val"]} & {n.partition("_")[0] for n in split["train"]}
    with pytest.raises(SystemExit, match="3 patients are too few"):
        make_splits(["a_1", "b_1", "c_1"], r"^[^_]+")
