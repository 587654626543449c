"""From a saved model to its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchsonic.lab.report.explain.page import to_html
from torchsonic.lab.report.explain.pictures import Picture, draw_pictures
from torchsonic.lab.report.explain.subject import Subject

__all__ = ["write_explanation"]


def write_explanation(
    subject: Subject, path: Path, *, most_layers: int = 6, say: Callable[[str], None] = lambda text: None
) -> Path:
    """Draw everything and write the page.

    Parameters
    ----------
    most_layers
        Layers with pictures of their own.
    say
        Told each picture's title.
    """
    pictures: list[Picture] = []
    for picture in draw_pictures(subject, most_layers=most_layers):
        say(picture.title)
        pictures.append(picture)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_html(subject, pictures), encoding="utf-8")
    return path
