"""Files that users upload, good and bad."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def encoded(pixels, kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def photograph(height=120, width=160):
    down, right = np.mgrid[:height, :width]
    checks = (down // 16 + right // 16) % 2 * 200
    return np.stack([down * 255 // height, right * 255 // width, checks], -1).astype("uint8")


def huge_png(width=10_000, height=10_000):
    """A whole and valid PNG of 100 megapixels in 100 kB."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    packer = zlib.compressobj(9)
    row = bytes(1 + width)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
