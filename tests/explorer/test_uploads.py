"""Uploads are checked before they are decoded, and few are kept."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.explorer.images import encoded, huge_png, photograph
from torchsonic.explorer.images import MAX_BYTES, MAX_KEPT, Uploads, read_image
from torchsonic.explorer.knobs import RefusedError


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_images_of_common_kinds_are_read(kind):
    levels = np.full((300, 200), 51, np.uint8)
    image = read_image(encoded(levels, kind))
    assert image.shape == (256, 256)
    assert float(image.mean()) == pytest.approx(0.2, abs=0.01)


def test_the_central_square_is_used():
    pixels = np.zeros((100, 300), np.uint8)
    pixels[:, 100:200] = 255
    assert float(read_image(encoded(pixels))[:, 3:-3].min()) > 0.95


def test_deep_images_keep_their_contrast():
    pixels = np.linspace(300, 1300, 64 * 64).astype(np.uint16).reshape(64, 64)
    image = read_image(encoded(pixels))
    assert float(image.min()) < 0.02
    assert float(image.max()) > 0.98


def test_transparent_parts_are_white():
    pixels = np.zeros((32, 32, 4), np.uint8)
    assert float(read_image(encoded(pixels)).min()) > 0.99


def test_a_turned_photograph_is_set_upright():
    pixels = np.zeros((64, 64), np.uint8)
    pixels[:32] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    image = read_image(encoded(pixels, "PNG", exif=exif))
    assert float(image[192].mean()) > 0.9 > 0.1 > float(image[64].mean())


def test_a_hundred_megapixels_are_refused_before_decoding(monkeypatch):
    data = huge_png()
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("decoded"))
    with pytest.raises(RefusedError, match=r"10,000 x 10,000 pixels, 100 megapixels; at most 25") as refusal:
        read_image(data)
    assert refusal.value.status == 413


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"this is text", "this image cannot be read"),
        (encoded(photograph())[:300], "damaged or truncated"),
        (encoded(photograph(), "JPEG")[:1500], "damaged or truncated"),
        (encoded(photograph(8, 8)), "at least 16"),
        (encoded(photograph(16, 400)), "at most 20 times"),
        (huge_png(20_000, 20_000)[:200], "megapixels"),
    ],
)
def test_bad_files_are_refused_with_a_reason(data, words):
    with pytest.raises(RefusedError, match=words):
        read_image(data)


def test_the_oldest_upload_is_forgotten():
    uploads = Uploads()
    names = [uploads.add(encoded(photograph())) for _ in range(MAX_KEPT + 1)]
    assert len(uploads) == MAX_KEPT == len(set(names[1:]))
    assert torch.isfinite(uploads.get(names[-1])).all()
    with pytest.raises(RefusedError, match="upload it again"):
        uploads.get(names[0])


def test_large_files_are_refused_unread():
    with pytest.raises(RefusedError, match="larger than 20 MB"):
        Uploads().add(bytes(MAX_BYTES + 1))
