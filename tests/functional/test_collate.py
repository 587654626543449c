import pytest
import torch

import torchsonic
from torchsonic import SonicConv2d
from torchsonic.testing import relative_error


def test_images_stand_at_the_origin_with_zeros_behind_them():
    images = [torch.randn(2, 5, 7, 3), torch.randn(2, 4, 9, 3)]
    batch = torchsonic.collate(images)
    assert batch.images.shape == (2, 2, 5, 9, 3)
    assert batch.mask.shape == (2, 1, 5, 9, 3)
    for image, padded, mask, size in zip(images, *batch, strict=True):
        assert tuple(size) == image.shape[1:]
        assert torch.equal(padded[:, mask[0]], image.flatten(1))
        assert not padded[:, ~mask[0]].any()


def test_gradients_reach_every_image():
    images = [torch.randn(1, 4, requires_grad=True), torch.randn(1, 6, requires_grad=True)]
    (torchsonic.collate(images).images ** 2).sum().backward()
    for image in images:
        torch.testing.assert_close(image.grad, 2 * image)


def test_only_a_layer_that_sees_zeros_answers_in_a_batch_as_alone():
    """Up to the little that modes longer than the images carry round them."""
    images = [torch.randn(1, size, 40, dtype=torch.float64) for size in (40, 64)]
    padded = torchsonic.collate(images).images
    for mode, least, most in (("zeros", 0.0, 0.01), ("circular", 0.1, 1.0)):
        torch.manual_seed(0)
        layer = SonicConv2d(1, 4, num_modes=8, padding_mode=mode, field=4.0).double()
        error = relative_error(layer(padded)[0, :, :40], layer(images[0][None])[0])
        assert least < error < most


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "at least one"),
        ([torch.ones(3)], "1 or more axes"),
        ([torch.ones(3, 4), torch.ones(1, 4)], r"images\[1\] is \(1, 4\)"),
        ([torch.ones(3, 4), torch.ones(3, 4, 5)], "number of axes"),
        ([torch.ones(3, 4), torch.ones(3, 4).double()], "float64"),
    ],
)
def test_images_that_do_not_go_together_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        torchsonic.collate(images)
