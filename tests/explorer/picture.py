"""Draws the picture of the explorer in the documentation: ``make explorer-picture``."""

import io
import sys
from pathlib import Path

import torch
from PIL import Image

from tests.explorer.browser import Browser
from tests.explorer.serving import serving

WIDTH, HEIGHT = 1180, 1360
COLOURS = 128


def draw_picture(path):
    torch.set_num_threads(1)
    browser = Browser()
    try:
        with serving() as server:
            browser.resize(WIDTH, HEIGHT)
            browser.open(server.address)
            browser.run("document.querySelector('footer').hidden = true")  # it says how long drawing took
            browser.screenshot(path)
    finally:
        browser.close()
    picture = Image.open(io.BytesIO(Path(path).read_bytes())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    draw_picture(sys.argv[1])
