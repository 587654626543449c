"""Images of different sizes in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["MixedBatch", "collate"]


class MixedBatch(NamedTuple):
    """Images of different sizes as one tensor, and where in it they are."""

    images: Tensor
    """``(B, C, N_1 .. N_D)``: each image begins at index 0 of every axis, with zeros behind it."""
    mask: Tensor
    """``(B, 1, N_1 .. N_D)``, true where there is an image."""
    sizes: Tensor
    """``(B, D)``, the size of each image."""


def collate(images: Sequence[Tensor]) -> MixedBatch:
    """Put images of different sizes into one batch, padded with zeros up to the largest size along each axis.

    A Sonic layer then sees zeros beyond an image, as it does with ``padding_mode="zeros"``. Standardise images before
    you pad them, so that zero is their mean, and use the mask to leave the padding out of the loss. Spacings that
    differ, too, go to the network as a ``(B, D)`` tensor.

    Parameters
    ----------
    images
        Tensors ``(C, N_1 .. N_D)`` with the same channels, dtype and device. Labels need a channel, too.

    Examples
    --------
    >>> batch = torchsonic.collate([torch.randn(3, 40, 64), torch.randn(3, 48, 32)])
    >>> batch.images.shape, batch.sizes.tolist()
    (torch.Size([2, 3, 48, 64]), [[40, 64], [48, 32]])
    >>> batch.mask.sum(dim=(1, 2, 3)).tolist()
    [2560, 1536]
    """
    if not len(images):
        raise ValueError("images is empty; give at least one")
    first = images[0]
    if first.dim() < 2:
        raise ValueError(f"images must be (channels, 1 or more axes), got shape {tuple(first.shape)}")
    for place, image in enumerate(images):
        own, expected = (image.dim(), image.shape[:1], image.dtype), (first.dim(), first.shape[:1], first.dtype)
        if own != expected:
            raise ValueError(
                f"images must have the same number of axes and channels and the same dtype: images[{place}] is "
                f"{tuple(image.shape)} {image.dtype}, images[0] is {tuple(first.shape)} {first.dtype}"
            )
    sizes = torch.tensor([image.shape[1:] for image in images])
    largest = sizes.amax(0).tolist()
    padded = first.new_zeros(len(images), len(first), *largest)
    mask = torch.zeros(len(images), 1, *largest, dtype=torch.bool, device=first.device)
    for place, image in enumerate(images):
        inside = (place, slice(None), *(slice(size) for size in image.shape[1:]))
        padded[inside], mask[inside] = image, True
    return MixedBatch(padded, mask, sizes)
