"""Volumes that are stored in any order of axes, come to lie as in training, and go back."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.lab.data.nifti import make_affine, make_arrays, write, write_case
from torchsonic.lab.data.labels import IGNORE
from torchsonic.lab.data.volumes import CaseError, Volume, find_cases, read_case
from torchsonic.lab.data.volumes.orientation import axis_codes, oblique_part, rearrange, straighten, to_stored_axes
from torchsonic.lab.data.volumes.turning import random_axis, rotation_about, turn_back, turn_volume
from torchsonic.testing.orientation import all_storages

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed")

TILT = torch.linalg.matrix_exp(0.2 * torch.tensor([[0.0, 1, 0], [-1, 0, 2], [0, -2, 0]], dtype=torch.float64)).numpy()


def make_volume(tilt=None, seed=0):
    image, label = make_arrays((6, 9, 8), seed=seed)
    affine = make_affine()
    if tilt is not None:
        affine[:3, :3] = tilt @ affine[:3, :3]
    return Volume("case", image[None].astype(np.float32), label.astype(np.int16), (4.0, 1.5, 1.0), affine)


def stored(volume, storage):
    """The same volume in another order of axes, by nibabel's arithmetic."""
    image, label = (storage.apply(torch.from_numpy(a)[None])[0].numpy() for a in (volume.image, volume.label[None]))
    order = [2 - storage.order.index(2 - axis) for axis in range(3)]  # where each of (x, y, z) goes
    flips = [-1.0 if storage.flips[storage.order.index(2 - axis)] else 1.0 for axis in range(3)]
    orientation = np.array(list(zip(order, flips, strict=True)))
    shape = volume.image.shape[:0:-1]
    affine = volume.affine @ nibabel.orientations.inv_ornt_aff(orientation, shape)
    spacing = tuple(volume.spacing[axis] for axis in storage.order)
    return Volume(volume.name, image, label[0], spacing, affine)


@pytest.mark.parametrize("tilt", [None, TILT])
def test_every_way_to_store_a_volume_is_one_in_the_axes_of_training(tilt):
    volume = make_volume(tilt)
    straight, _ = straighten(volume)
    assert axis_codes(straight.affine) == "RAS"
    assert (oblique_part(straight) is None) == (tilt is None)
    for storage in all_storages(3):
        other = stored(volume, storage)
        assert axis_codes(other.affine) == "".join(nibabel.aff2axcodes(other.affine))
        np.testing.assert_array_equal(rearrange(volume, storage).image, other.image)
        np.testing.assert_allclose(rearrange(volume, storage).affine, other.affine, atol=1e-9)
        again, back = straighten(other)
        np.testing.assert_array_equal(again.image, straight.image)
        np.testing.assert_array_equal(again.label, straight.label)
        np.testing.assert_allclose(again.affine, straight.affine, atol=1e-9)
        assert again.spacing == straight.spacing
        np.testing.assert_array_equal(to_stored_axes(again.image, back), other.image)
        if tilt is not None:
            np.testing.assert_allclose(oblique_part(again), oblique_part(straight), atol=1e-12)


def test_a_sheared_volume_is_refused_where_its_orientation_counts(tmp_path):
    write_case(tmp_path, "good")
    image, label = make_arrays()
    affine = make_affine()
    affine[0, 2] = 1.0
    for kind, array in (("images", image), ("labels", label)):
        write(tmp_path / kind / "tilted.nii.gz", array, affine)
    good, tilted = find_cases(tmp_path)
    assert read_case(good, straight=True).name == "good"
    assert read_case(tilted).name == "tilted"
    with pytest.raises(CaseError, match=r"tilted: .*axes 0 and 2 are 14.0 degrees .*resample.*--no-tell-orientation"):
        read_case(tilted, straight=True)


def places(volume):
    """Where the voxels lie, ``(D, H, W, 3)`` in millimetres."""
    index = np.stack(np.meshgrid(*[np.arange(n) for n in volume.image.shape[1:]], indexing="ij"), -1)
    return index[..., ::-1] @ volume.affine[:3, :3].T + volume.affine[:3, 3]


@pytest.mark.parametrize("degrees", [0.0, 30.0, 90.0, 137.0])
def test_a_turned_volume_shows_the_same_things_at_the_same_places(degrees):
    volume = make_volume(TILT)
    linear = places(volume) @ np.array([0.3, -1.0, 0.7])  # which interpolation gets right
    volume = replace(volume, image=linear[None].astype(np.float32), label=(linear > np.median(linear)).astype(np.int16))
    rotation = rotation_about(random_axis(np.random.default_rng(0)), np.radians(degrees))
    turned = turn_volume(volume, rotation)
    known = turned.label != IGNORE
    expected = places(turned) @ np.array([0.3, -1.0, 0.7])
    inner = known & (np.abs(expected - np.median(linear)) > 4.0)  # the nearest voxel is up to half a slice away
    np.testing.assert_array_equal(turned.label[inner], (expected > np.median(linear))[inner])
    # Between the outermost voxels and their borders an image goes on as it ended.
    assert np.mean(np.abs(turned.image[0] - expected)[known] < 1e-3) > 0.5
    assert known.sum() == pytest.approx(volume.label.size, rel=0.2)  # of so few voxels
    np.testing.assert_allclose(np.linalg.norm(turned.affine[:3, :3], axis=0)[::-1], volume.spacing)
    if degrees == 0.0:
        np.testing.assert_allclose(turned.image, volume.image, atol=1e-4)
        np.testing.assert_array_equal(turned.label, volume.label)


@pytest.mark.parametrize("degrees", [0.0, 30.0, 90.0, 137.0])
def test_what_is_found_in_a_turned_volume_is_brought_back_to_the_same_places(degrees):
    volume = make_volume(TILT)
    rotation = rotation_about(random_axis(np.random.default_rng(0)), np.radians(degrees))
    linear = places(turn_volume(volume, rotation)) @ np.array([0.3, -1.0, 0.7])  # which interpolation gets right
    found = turn_back(linear[None].astype(np.float32), volume, rotation)
    assert found.shape == volume.image.shape
    np.testing.assert_allclose(found[0], places(volume) @ np.array([0.3, -1.0, 0.7]), atol=1e-3)


def test_a_quarter_turn_about_an_axis_is_that_of_the_array():
    volume = replace(make_volume(), spacing=(4.0, 1.0, 1.0), affine=make_affine((4.0, 1.0, 1.0)))
    turned = turn_volume(volume, rotation_about(np.array([1.0, 0.0, 0.0]), np.pi / 2))
    np.testing.assert_allclose(turned.image[0], np.rot90(volume.image[0], -1, axes=(1, 2)), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(turned.label, np.rot90(volume.label, -1, axes=(1, 2)))
