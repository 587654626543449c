"""A case is read whole and right, or refused by name."""

import builtins
import re

import numpy as np
import pytest

from tests.lab.data.nifti import BAD, make_affine, make_arrays, spoil, write, write_case, write_folder
from torchsonic.lab.data.volumes import CaseError, find_cases, read_case, write_labels
from torchsonic.lab.data.volumes.collection import Collection, index_classes
from torchsonic.lab.data.volumes.preparation import normalise, prepare, resample_volume, resize
from torchsonic.lab.data.volumes.survey import survey

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed")


def test_a_case_is_read_as_it_was_written(tmp_path):
    image, label = write_case(tmp_path, "one")
    (case,) = find_cases(tmp_path)
    volume = read_case(case, num_classes=3)
    assert volume.name == "one"
    assert volume.image.dtype == np.float32
    assert volume.label.dtype == np.int16
    np.testing.assert_array_equal(volume.image, image[None])
    np.testing.assert_array_equal(volume.label, label)
    np.testing.assert_allclose(volume.spacing, (4.0, 1.5, 1.0), rtol=1e-6)
    np.testing.assert_allclose(volume.affine, make_affine(), rtol=1e-6)


def test_the_spacing_of_an_oblique_volume_is_the_length_of_its_steps(tmp_path):
    angle = 0.3
    turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    affine = np.eye(4)
    affine[:3, :3] = turn @ np.diag([0.7, 1.1, 9.0])
    write(tmp_path / "a.nii", make_arrays()[0], affine)
    volume = read_case(*find_cases(tmp_path, labels=False))
    np.testing.assert_allclose(volume.spacing, (9.0, 1.1, 0.7), rtol=1e-6)


def test_labels_written_keep_values_and_affine(tmp_path):
    _, label = make_arrays()
    for path, values in ((tmp_path / "a.nii.gz", label), (tmp_path / "b.nii", 300 * label)):
        write_labels(path, values, make_affine())
        file = nibabel.load(path)
        np.testing.assert_array_equal(np.asarray(file.dataobj).T, values)
        np.testing.assert_array_equal(file.affine, np.float32(make_affine()))
        assert file.header.get_zooms() == pytest.approx((1.0, 1.5, 4.0))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.nii.gz", "b.nii"]
    with pytest.raises(ValueError, match=r"must end in \.nii\.gz or \.nii"):
        write_labels(tmp_path / "a.png", label, make_affine())


def test_an_affine_survives_reading_and_writing(tmp_path):
    affine = np.float32(np.random.default_rng(0).normal(size=(4, 4)) + 3 * np.eye(4)).astype(np.float64)
    affine[3] = (0, 0, 0, 1)
    image, label = make_arrays()
    write(tmp_path / "in" / "a.nii.gz", image, affine)
    volume = read_case(*find_cases(tmp_path / "in", labels=False))
    write_labels(tmp_path / "a.nii.gz", label, volume.affine)
    np.testing.assert_array_equal(nibabel.load(tmp_path / "a.nii.gz").affine, affine)


def test_channels_are_found_by_their_numbers(tmp_path):
    image, label = make_arrays()
    for channel in range(3):
        write(tmp_path / "images" / f"b_{channel:04d}.nii.gz", image + channel, make_affine())
    write(tmp_path / "labels" / "b.nii.gz", label, make_affine())
    write_case(tmp_path, "a_0001")  # digits of a name, not of a channel: its label says so
    cases = find_cases(tmp_path)
    assert [(case.name, len(case.images)) for case in cases] == [("a_0001", 1), ("b", 3)]
    assert [case.label.name for case in cases] == ["a_0001.nii.gz", "b.nii.gz"]
    np.testing.assert_array_equal(read_case(cases[1]).image, np.stack([image, image + 1, image + 2]))
    (tmp_path / "images" / "b_0001.nii.gz").unlink()
    with pytest.raises(CaseError, match=r"case b: .*b_0001\.nii\.gz: there is no such file"):
        read_case(find_cases(tmp_path)[1])


def test_channels_on_other_grids_are_refused(tmp_path):
    image, _ = make_arrays()
    write(tmp_path / "a_0000.nii.gz", image, make_affine())
    write(tmp_path / "a_0001.nii.gz", image[:, 1:], make_affine())
    with pytest.raises(CaseError, match=r"a_0001\.nii\.gz: shape"):
        read_case(*find_cases(tmp_path, labels=False))


def test_folders_without_cases_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder .*images"):
        find_cases(tmp_path)
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    (tmp_path / "images" / "._a.nii.gz").write_bytes(b"left by a file manager")
    with pytest.raises(ValueError, match="contains no file ending in"):
        find_cases(tmp_path)
    write_case(tmp_path, "a")
    write(tmp_path / "images" / "a.nii", *_plain())
    with pytest.raises(ValueError, match="have the same name"):
        find_cases(tmp_path)


def _plain():
    return make_arrays()[0], make_affine()


def test_a_label_without_image_is_mentioned(tmp_path):
    write_case(tmp_path, "a")
    write(tmp_path / "labels" / "b.nii.gz", *_plain())
    with pytest.warns(UserWarning, match="1 labels have no image and are left out: b"):
        assert [case.name for case in find_cases(tmp_path)] == ["a"]


@pytest.mark.parametrize("how", BAD)
def test_a_bad_case_is_named_with_its_file(tmp_path, how):
    write_folder(tmp_path, 3)
    write_case(tmp_path, "case_b")
    spoil(tmp_path, "case_b", how)
    folder, words = BAD[how]
    with pytest.raises(CaseError, match=words) as caught:
        survey(find_cases(tmp_path))
    assert f"case case_b: {tmp_path / folder / 'case_b.nii.gz'}: " in str(caught.value)


@pytest.mark.parametrize("how", BAD)
def test_a_bad_case_is_left_out_on_request_and_nothing_else(tmp_path, how):
    write_folder(tmp_path, 3)
    write_case(tmp_path, "case_b")
    spoil(tmp_path, "case_b", how)
    with pytest.warns(UserWarning, match=f"left out: case case_b: .*{BAD[how][1]}") as warned:
        facts, num_classes, left_out = survey(find_cases(tmp_path), keep_going=True)
    assert len(warned) == 1
    assert [fact.name for fact in facts] == ["case_a", "case_c"]
    assert list(left_out) == ["case_b"]
    assert num_classes == 3


def test_label_values_are_held_against_a_number_of_classes(tmp_path):
    write_case(tmp_path, "a", classes=3)
    (case,) = find_cases(tmp_path)
    assert read_case(case, num_classes=3).label.max() == 2
    with pytest.raises(CaseError, match="label values 2 are none of the classes 0 to 1"):
        read_case(case, num_classes=2)


def test_classes_are_counted_over_all_cases(tmp_path):
    write_case(tmp_path, "a", classes=2)
    write_case(tmp_path, "b", classes=4)
    facts, num_classes, _ = survey(find_cases(tmp_path))
    assert num_classes == 4
    assert [fact.classes for fact in facts] == [(0, 1), (0, 1, 2, 3)]
    assert facts[0].shape == (6, 16, 20)


def test_cases_with_other_channels_are_refused(tmp_path):
    write_folder(tmp_path, 3)
    for channel in range(2):
        write(tmp_path / "images" / f"d_{channel:04d}.nii.gz", *_plain())
    write(tmp_path / "labels" / "d.nii.gz", make_arrays()[1], make_affine())
    with pytest.raises(CaseError, match=r"case d: .*2 channels, but most cases have 1"):
        survey(find_cases(tmp_path))


def test_a_missing_package_names_its_extra(tmp_path, monkeypatch):
    write_case(tmp_path, "a")
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "nibabel":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=re.escape('pip install "torchsonic[medical]"')):
        read_case(*find_cases(tmp_path))


def test_resampling_keeps_the_field_and_says_where_it_lies(tmp_path):
    """A linear ramp in millimetres is the same ramp on any grid, read at the places the new affine gives."""
    shape, affine = (10, 30, 24), make_affine((4.0, 1.5, 1.0))
    index = np.stack(np.meshgrid(*[np.arange(n) for n in shape], indexing="ij"), -1)

    def ramp(index, affine):
        places = index[..., ::-1] @ affine[:3, :3].T + affine[:3, 3]
        return (places @ [0.3, -0.2, 0.1]).astype(np.float32)

    write(tmp_path / "a.nii.gz", ramp(index, affine), affine)
    volume = read_case(*find_cases(tmp_path, labels=False))
    for spacing in ((2.0, 1.5, 2.5), (5.0, 0.7, 1.0)):
        new = resample_volume(volume, spacing)
        assert new.spacing == pytest.approx(spacing, rel=0.08)
        np.testing.assert_allclose(np.linalg.norm(new.affine[:3, :3], axis=0)[::-1], new.spacing, rtol=1e-6)
        extent = np.array(new.image.shape[1:]) * new.spacing
        np.testing.assert_allclose(extent, np.array(shape) * (4.0, 1.5, 1.0), rtol=1e-6)
        grid = np.stack(np.meshgrid(*[np.arange(n) for n in new.image.shape[1:]], indexing="ij"), -1)
        inner = (slice(4, -4), slice(5, -5), slice(5, -5)) if spacing[0] < 4 else (slice(3, -3), *[slice(8, -8)] * 2)
        np.testing.assert_allclose(new.image[0][inner], ramp(grid, new.affine)[inner], atol=0.05)


def test_resized_labels_are_labels_and_probabilities_add_up():
    label = make_arrays()[1]
    assert set(np.unique(resize(label, (9, 23, 17), order=0))) <= set(np.unique(label))
    shares = np.random.default_rng(0).dirichlet(np.ones(3), size=(4, 5, 6)).transpose(3, 0, 1, 2)
    np.testing.assert_allclose(resize(shares, (7, 9, 5), order=1).sum(0), 1, rtol=1e-6)


def test_normalised_channels_have_mean_zero_and_deviation_one():
    image = np.float32(np.random.default_rng(0).normal(1e4, 20, size=(2, 5, 6, 7)) * [[[[1]]], [[[3]]]])
    result = normalise(image, "zscore")
    np.testing.assert_allclose(result.mean((1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(result.std((1, 2, 3)), 1, rtol=1e-5)
    assert not normalise(np.full((1, 2, 2, 2), 7.0, np.float32), "zscore").any()
    assert normalise(image, "none") is image


def test_a_collection_gives_the_same_whatever_fits(tmp_path):
    write_folder(tmp_path, 3)
    cases = find_cases(tmp_path)
    options = {"prepare": lambda v: prepare(v, spacing=None, normalisation="zscore"), "dtype": np.float16}
    whole = Collection(cases, **options)
    kept = [whole[case.name] for case in cases]
    assert all(whole[case.name] is one for case, one in zip(cases, kept, strict=True))
    tight = Collection(cases, limit=kept[0].num_bytes + 10, **options)
    assert tight[cases[0].name] is tight[cases[0].name]
    with pytest.warns(UserWarning, match="only 1 of 3 volumes fit"):
        again = tight[cases[1].name]
    assert tight[cases[1].name] is not again
    assert again.image.dtype == np.float16
    np.testing.assert_array_equal(again.image, kept[1].image)
    np.testing.assert_array_equal(tight[cases[2].name].label, kept[2].label)


def test_class_places_are_voxels_of_the_class():
    label = np.zeros((20, 30, 30), np.int16)
    label[2:18, 3:27, 3:27] = 1
    label[5, 6, 7] = 3
    places = index_classes(label)
    assert set(places) == {1, 3}
    assert len(places[1]) == 4096
    assert len(set(places[1].tolist())) == 4096
    assert all((label.flat[found] == value).all() for value, found in places.items())
    assert np.unravel_index(places[3][0], label.shape) == (5, 6, 7)
