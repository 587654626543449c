"""The page as one HTML file that needs no other."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from string import Template

from torchsonic import __version__
from torchsonic.lab.metrics import count_parameters
from torchsonic.lab.report.explain.pictures import Picture
from torchsonic.lab.report.explain.subject import Subject
from torchsonic.lab.report.table1.elements import embed, read_part, scrollable
from torchsonic.nn import SonicConvNd
from torchsonic.viz import decay_lengths, mode_energies

__all__ = ["to_html"]

HEADERS = ("layer", "channels", "modes", "for 90 % of the energy", "decay lengths", "reference spacing")
NARROW = 950
OPEN = 2
"""Layers whose pictures are shown without a click."""


def to_html(subject: Subject, pictures: Sequence[Picture]) -> str:
    """The whole page."""
    network = [picture for picture in pictures if not picture.section]
    sections = groupby((picture for picture in pictures if picture.section), key=lambda picture: picture.section)
    details = [(name, list(shown)) for name, shown in sections]
    left_out = len(subject.layers) - len(details)
    note = "Decay lengths are the shortest, the median and the longest."
    if left_out:
        note += f" Pictures of {len(details)} of {len(subject.layers)} layers follow, evenly chosen."
    return Template(read_part("page.html", __package__ or "")).substitute(
        title=escape(f"What this {type(subject.model).__name__} has learnt"),
        style=read_part("page.css"),
        about=escape(_about(subject)),
        links="".join(f'<a href="#{escape(p.name)}">{escape(p.title)}</a>' for p in network),
        network="".join(map(_section, network)),
        table=_table(subject),
        note=escape(note),
        layers="".join(_details(name, shown, is_open=place < OPEN) for place, (name, shown) in enumerate(details)),
    )


def _about(subject: Subject) -> str:
    model = subject.model
    steps = " x ".join(f"{step:.3g}" for step in subject.spacing)
    return (
        f"{type(model).__name__} in {subject.folder.as_posix()}: {count_parameters(model):,} parameters, "
        f"{len(subject.layers)} Sonic layer{'s' if len(subject.layers) > 1 else ''}, "
        f"reference spacing {steps} {subject.unit}. torchsonic {__version__}."
    )


def _section(picture: Picture) -> str:
    return f'<section><h2 id="{escape(picture.name)}">{escape(picture.title)}</h2>{_figure(picture)}</section>'


def _figure(picture: Picture) -> str:
    # Wide figures scroll sideways on a narrow screen rather than become unreadable; others shrink.
    kind = ' class="small"' if _png_width(picture.data) < NARROW else ""
    return (
        f"<figure{kind}>{embed(picture.data, picture.title, kind=picture.kind)}"
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _png_width(data: bytes) -> int:
    """Pixels from left to right, from the head of a PNG file; none of another kind."""
    return int.from_bytes(data[16:20], "big") if data.startswith(b"\x89PNG") else 0


def _details(name: str, pictures: Sequence[Picture], *, is_open: bool) -> str:
    shown = "".join(f"<h3>{escape(p.title)}</h3>{_figure(p)}" for p in pictures)
    return f"<details{' open' if is_open else ''}><summary><b>{escape(name)}</b></summary>{shown}</details>"


def _table(subject: Subject) -> str:
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in HEADERS)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        f"{''.join(f'<td>{escape(word)}</td>' for word in layer_words(layer, subject.unit))}</tr>"
        for name, layer in subject.layers.items()
    )
    return scrollable("The Sonic layers", f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>", "plain")


def layer_words(layer: SonicConvNd, unit: str) -> tuple[str, ...]:
    """A layer's row in the table, without its name."""
    lengths = decay_lengths(layer)
    energy = mode_energies(layer).sort(descending=True).values.cumsum(0)
    most = 1 + int((energy < 0.9 * energy[-1]).sum())
    ends = (lengths.min(), lengths.median(), lengths.max())
    spread = ", ".join(f"{float(value):.3g}" for value in ends)
    return (
        f"{layer.in_channels} to {layer.out_channels}",
        str(layer.num_modes),
        str(most),
        f"{spread} {unit}",
        " x ".join(f"{step:.3g}" for step in layer.reference_spacing) + f" {unit}",
    )
