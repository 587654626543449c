"""Draws the explorer's picture in the documentation and the golden one of the tests: ``make explorer-picture``."""

import base64
import io
import sys
from pathlib import Path

import torch
from PIL import Image

from tests.explorer.browser import Browser
from tests.explorer.serving import serving

WIDTH, HEIGHT = 1280, 1360
COLOURS = 256
GOLDEN = Path(__file__).parent / "golden.png"
SIDE = 64
OPERATORS = ("sonic", "conv", "gfnet")
SHOWN = ["#response", "#kernel", *[f"[data-operator={name}] [data-grid=sampled]" for name in OPERATORS]]


def strip_of_pictures(browser):
    """The page's main pictures side by side, each averaged to 64 x 64 pixels."""
    strip = Image.new("RGB", (SIDE * len(SHOWN), SIDE))
    for place, selector in enumerate(SHOWN):
        address = browser.run(f"document.querySelector({selector!r}).toDataURL()")
        picture = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB")
        strip.paste(picture.resize((SIDE, SIDE), Image.Resampling.BOX), (place * SIDE, 0))
    return strip


def draw_pictures(path):
    torch.set_num_threads(1)
    browser = Browser()
    try:
        with serving() as server:
            browser.resize(WIDTH, HEIGHT)
            browser.open(server.address)
            strip_of_pictures(browser).save(GOLDEN, optimize=True)
            browser.until("document.body.dataset.turned > 0")
            browser.run("document.querySelector('footer').hidden = true")  # it says how long drawing took
            browser.screenshot(path)
    finally:
        browser.close()
    picture = Image.open(io.BytesIO(Path(path).read_bytes())).convert("RGB")
    palette = picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE)
    picture.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(path, optimize=True)


if __name__ == "__main__":
    draw_pictures(sys.argv[1])
