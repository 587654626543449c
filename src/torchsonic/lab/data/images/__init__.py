"""Photographs in folders of classes."""

from torchsonic.lab.data.images.files import ImageError, read_image
from torchsonic.lab.data.images.folder import ImageFolder, find_files, find_images, leave_out_bad

__all__ = ["ImageError", "ImageFolder", "find_files", "find_images", "leave_out_bad", "read_image"]
