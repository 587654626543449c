"""Pictures at another resolution show the same things at the same places."""

import numpy as np
import pytest

pytest.importorskip("scipy", reason="SciPy is not installed")

from torchsonic.lab.data.scaling import scale_back, scale_label, scale_picture
from torchsonic.lab.data.volumes import Volume


def soft_disc(size=(41, 46), centre=(19.3, 22.8), radius=9.0) -> Volume:
    """A disc whose rim is as soft as a lens makes it."""
    rows, columns = np.ogrid[: size[0], : size[1]]
    depth = radius - np.hypot(rows - centre[0], columns - centre[1])
    image = (1 / (1 + np.exp(-2 * depth))).astype(np.float32)
    return Volume("disc", np.stack([image] * 3)[:, None], (depth > 0)[None].astype(np.int32), (500, 0.5, 1), np.eye(4))


def middle(weights) -> np.ndarray:
    return np.array([np.average(axis, weights=weights) for axis in np.indices(weights.shape)])


@pytest.mark.parametrize("scale", [0.5, 0.75, 2.0, 3.0])
def test_image_and_label_stay_together(scale):
    volume = soft_disc()
    scaled = scale_picture(volume, scale)
    assert scaled.label.shape == scaled.image.shape[1:]
    assert scaled.spacing == (500, 0.5 / scale, 1 / scale)
    np.testing.assert_allclose(middle(scaled.label[0]), middle(scaled.image[0, 0]), atol=0.1 * max(1, scale))
    assert scaled.label.sum() / scale**2 == pytest.approx(volume.label.sum(), rel=0.05)
    assert (scaled.label[0] == (scaled.image[0, 0] > 0.5)).mean() > 0.97


@pytest.mark.parametrize("scale", [0.5, 0.75, 2.0])
def test_a_picture_comes_back_to_its_own_grid(scale):
    volume = soft_disc()
    back = scale_back(scale_picture(volume, scale), volume.image.shape[2:], scale)
    assert back.spacing == pytest.approx(volume.spacing)
    assert back.label is None
    error = np.abs(back.image - volume.image)
    assert error.mean() < 0.01
    assert error.max() < 0.2


def test_finer_labels_repeat_pixels_and_coarser_ones_leave_some_out():
    label = np.arange(20).reshape(4, 5)
    np.testing.assert_array_equal(scale_label(label, 2.0), label.repeat(2, 0).repeat(2, 1))
    np.testing.assert_array_equal(scale_label(label, 0.5), label[::2, ::2])


@pytest.mark.parametrize(("scale", "rest"), [(0.5, 0.02), (1 / 3, 0.02)])
def test_the_finest_stripes_hardly_remain_on_a_coarser_grid(scale, rest):
    """Away from the edge, beyond which outermost pixels go on."""
    stripes = np.broadcast_to(np.arange(64) % 2, (3, 1, 64, 64)).astype(np.float32)
    image = scale_picture(Volume("stripes", stripes, None, (1000, 1, 1), np.eye(4)), scale).image
    assert np.abs(image[..., 6:-6] - 0.5).max() < rest * 0.5


def test_a_scale_of_one_changes_nothing():
    volume = soft_disc()
    scaled = scale_picture(volume, 1.0)
    np.testing.assert_array_equal(scaled.image, volume.image)
    np.testing.assert_array_equal(scaled.label, volume.label)
    assert scaled.spacing == volume.spacing
