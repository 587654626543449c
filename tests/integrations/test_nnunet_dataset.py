"""Folders of NIfTI files become raw datasets of nnU-Net, and its search finds the trainers' file."""

import json
import runpy

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed")

from tests.integrations.hippocampi import write_cases  # noqa: E402
from torchsonic.cli import main  # noqa: E402
from torchsonic.integrations.nnunet_dataset import (  # noqa: E402
    TRAINERS,
    convert_dataset,
    install_trainers,
    stored_degrees,
)
from torchsonic.lab.data.volumes import CaseError  # noqa: E402
from torchsonic.lab.data.volumes.orientation import oblique_degrees  # noqa: E402
from torchsonic.lab.data.volumes.turning import rotation_about  # noqa: E402


def test_conversion_keeps_files_and_describes_them(tmp_path):
    data = write_cases(tmp_path / "data", 3)
    counted = []
    folder = convert_dataset(
        data, tmp_path / "raw", name="Hippo", number=4, labels=["front", "back"], advance=lambda: counted.append(1)
    )
    assert folder == tmp_path / "raw" / "Dataset004_Hippo"
    assert json.loads((folder / "dataset.json").read_text()) == {
        "channel_names": {"0": "MRI"},
        "labels": {"background": 0, "front": 1, "back": 2},
        "numTraining": 3,
        "file_ending": ".nii.gz",
        "overwrite_image_reader_writer": "NibabelIOWithReorient",
    }
    plain = convert_dataset(data, tmp_path / "other", name="Plain", number=5, tell_orientation=False)
    assert "overwrite_image_reader_writer" not in json.loads((plain / "dataset.json").read_text())
    assert len(counted) == 3
    for name in ("case_0", "case_1", "case_2"):
        images, labels = data / "images" / f"{name}.nii.gz", data / "labels" / f"{name}.nii.gz"
        assert (folder / "imagesTr" / f"{name}_0000.nii.gz").read_bytes() == images.read_bytes()
        assert (folder / "labelsTr" / f"{name}.nii.gz").read_bytes() == labels.read_bytes()
    assert [p.name for p in (tmp_path / "raw").iterdir()] == [folder.name]


def test_channels_are_numbered_and_named(tmp_path):
    data = write_cases(tmp_path / "data", 1)
    image = data / "images" / "case_0.nii.gz"
    (data / "images" / "case_0_0001.nii.gz").write_bytes(image.read_bytes())
    image.rename(data / "images" / "case_0_0000.nii.gz")
    folder = convert_dataset(data, tmp_path, name="Two", number=7, channels=["CT", "PET"])
    described = json.loads((folder / "dataset.json").read_text())
    assert described["channel_names"] == {"0": "CT", "1": "PET"}
    assert described["labels"] == {"background": 0, "class_1": 1, "class_2": 2}
    assert sorted(p.name for p in (folder / "imagesTr").iterdir()) == ["case_0_0000.nii.gz", "case_0_0001.nii.gz"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"number": 0}, "id must be from 1 to 999, got 0"),
        ({"name": "my data"}, "name must be letters, digits, '-' and '_', got 'my data'"),
        ({"channels": ["a", "b"]}, "channels must be 1 names, one for each channel of the images, got a, b"),
        ({"labels": ["front"]}, "labels must be 2 different names, for 1 to 2, got front"),
        ({"labels": ["background", "front"]}, "labels must be 2 different names"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(tmp_path, changes, words):
    data = write_cases(tmp_path / "data", 1)
    with pytest.raises(ValueError, match=words):
        convert_dataset(data, tmp_path / "raw", **{"name": "a", "number": 1, **changes})
    assert not list((tmp_path / "raw").glob("*"))


def relabel(path, change):
    file = nibabel.load(path)
    nibabel.save(nibabel.Nifti1Image(change(np.asarray(file.dataobj)), file.affine), path)


def test_bad_cases_are_named_and_leave_nothing(tmp_path):
    data, raw = write_cases(tmp_path / "data", 2), tmp_path / "raw"
    label = data / "labels" / "case_1.nii.gz"
    whole = label.read_bytes()
    relabel(label, lambda array: array[:-1])
    with pytest.raises(CaseError, match=r"case_1.*case_1\.nii\.gz.*shape"):
        convert_dataset(data, raw, name="a", number=1)
    label.unlink()
    with pytest.raises(CaseError, match=r"case_1.*labels"):
        convert_dataset(data, raw, name="a", number=1)
    label.write_bytes(whole)
    for path in (label, data / "labels" / "case_0.nii.gz"):
        relabel(path, lambda array: np.where(array == 2, 5, array))
    with pytest.raises(ValueError, match="without a gap for nnU-Net, got 0, 1, 5; relabel the data"):
        convert_dataset(data, raw, name="a", number=1)
    assert not list(raw.glob("*"))


def test_a_sheared_case_is_refused_unless_arrays_are_used_as_stored(tmp_path):
    data, raw = write_cases(tmp_path / "data", 2), tmp_path / "raw"
    for kind in ("images", "labels"):
        path = data / kind / "case_1.nii.gz"
        file = nibabel.load(path)
        affine = file.affine.copy()
        affine[0, 1] = np.tan(np.radians(12)) * affine[1, 1]
        nibabel.save(nibabel.Nifti1Image(np.asarray(file.dataobj), affine), path)
    with pytest.raises(CaseError, match=r"case_1.*12.0 degrees off.*resample the scan.*--no-tell-orientation"):
        convert_dataset(data, raw, name="a", number=1)
    assert not list(raw.glob("*"))
    with pytest.warns(UserWarning, match="1 of 2 cases are oblique"):
        assert convert_dataset(data, raw, name="a", number=1, tell_orientation=False).is_dir()


def tilt(data, names, degrees):
    turn = rotation_about(np.array([2.0, 3.0, 6.0]) / 7, np.radians(degrees))
    for path in (data / kind / f"{name}.nii.gz" for kind in ("images", "labels") for name in names):
        file = nibabel.load(path)
        affine = file.affine.copy()
        affine[:3, :3] = turn @ affine[:3, :3]
        nibabel.save(nibabel.Nifti1Image(np.asarray(file.dataobj), affine), path)


@pytest.mark.parametrize("tell_orientation", [True, False])
def test_conversion_says_how_many_cases_are_oblique_and_by_how_much(tmp_path, tell_orientation):
    data = write_cases(tmp_path / "data", 4)
    tilt(data, ["case_0"], 3.0)  # nearly straight
    tilt(data, ["case_1"], 8.0)
    tilt(data, ["case_3"], 25.0)
    angle = oblique_degrees(nibabel.load(data / "images" / "case_3.nii.gz").affine)
    words = rf"2 of 4 cases are oblique by more than 5 degrees, one by {angle:.0f}; .*resample"
    with pytest.warns(UserWarning, match=words):
        folder = convert_dataset(data, tmp_path, name="a", number=1, tell_orientation=tell_orientation)
    assert folder.is_dir()


@pytest.mark.parametrize("reader", ["NibabelIOWithReorient", "NibabelIO", "SimpleITKIO"])
def test_what_nnunet_keeps_of_a_case_says_how_oblique_its_file_is(tmp_path, reader):
    readers = pytest.importorskip("nnunetv2.imageio.reader_writer_registry", reason="nnunetv2 is not installed")
    data = write_cases(tmp_path, 1)
    path = data / "images" / "case_0.nii.gz"
    read = readers.recursive_find_reader_writer_by_name(reader)().read_images
    for degrees in (0.0, 25.0, 70.0):
        tilt(data, ["case_0"], degrees)
        properties = read([str(path)])[1]
        assert stored_degrees(properties) == pytest.approx(oblique_degrees(nibabel.load(path).affine), abs=0.05)
    assert stored_degrees({"spacing": (999.0, 1.0, 1.0)}) == 0  # of a picture


def test_a_number_is_given_once(tmp_path):
    data = write_cases(tmp_path / "data", 1)
    first = convert_dataset(data, tmp_path, name="a", number=1)
    with pytest.raises(ValueError, match=r"id 1 is taken by .*Dataset001_a"):
        convert_dataset(data, tmp_path, name="b", number=1)
    assert [p.name for p in tmp_path.glob("Dataset*")] == [first.name]


def test_commands_convert_and_name_mistakes(tmp_path, capsys):
    data = write_cases(tmp_path / "data", 1)
    arguments = ["nnunet", "convert", "--data", str(data), "--out", str(tmp_path / "raw")]
    arguments += ["--name", "Hippo", "--id", "9"]
    assert main([*arguments, "--labels", "front", "back"]) == 0
    out = capsys.readouterr().out
    assert "nnUNetv2_plan_and_preprocess -d 9" in out
    assert (tmp_path / "raw" / "Dataset009_Hippo" / "dataset.json").is_file()
    assert main(arguments) == 1
    assert "id 9 is taken" in capsys.readouterr().err
    arguments[3] = str(tmp_path / "none")
    assert main(arguments) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_the_trainers_file_gives_the_trainers(tmp_path, capsys, monkeypatch):
    pytest.importorskip("nnunetv2", reason="nnunetv2 is not installed")
    monkeypatch.setenv("nnUNet_extTrainer", "/elsewhere")
    folder = tmp_path / "my trainers"
    assert main(["nnunet", "install", str(folder)]) == 0
    assert f"export nnUNet_extTrainer='{folder}:/elsewhere'" in capsys.readouterr().out
    (path,) = folder.iterdir()
    assert path == install_trainers(folder)
    found = runpy.run_path(str(path))
    assert {found[name].__name__ for name in TRAINERS} == set(TRAINERS)
    (tmp_path / "file").touch()
    assert main(["nnunet", "install", str(tmp_path / "file")]) == 1
    assert f"cannot write into {tmp_path / 'file'}" in capsys.readouterr().err
