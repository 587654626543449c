"""The page on what a saved model has learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torchsonic import __version__
from torchsonic.io import write_whole
from torchsonic.lab.metrics import count_parameters
from torchsonic.lab.report import Document, Figure, Prose, Section, Table, to_html
from torchsonic.lab.report.explain.pictures import draw_figures
from torchsonic.lab.report.explain.subject import Subject
from torchsonic.lab.report.provenance import count
from torchsonic.lab.report.runs import group_by
from torchsonic.nn import SonicConvNd
from torchsonic.viz import decay_lengths, strongest_modes

__all__ = ["make_page", "write_explanation"]

HEADERS = ("layer", "channels", "modes", "for 90 % of the energy", "decay lengths", "reference spacing")
OPEN = 2
"""Layers whose pictures are shown without a click."""


def make_page(subject: Subject, figures: Sequence[tuple[str, Figure]]) -> Document:
    """The page on a model, with figures of the network and, under their names, of its layers."""
    groups = group_by(figures, lambda pair: pair[0])
    network = [Section(figure.title, [figure], anchor=figure.name) for _, figure in groups.pop("", [])]
    note = "Decay lengths are the shortest, the median and the longest."
    if len(groups) < len(subject.layers):
        note += f" Pictures of {len(groups)} of {len(subject.layers)} layers follow, evenly chosen."
    rows = [[name, *_layer_words(layer, subject.unit)] for name, layer in subject.layers.items()]
    shown = [
        Section(layer, [Section(figure.title, [figure]) for _, figure in members], folded=place >= OPEN)
        for place, (layer, members) in enumerate(groups.items())
    ]
    name = type(subject.model).__name__
    return Document(
        title=f"What this {name} has learnt",
        about=(
            f"{name} in {subject.folder.as_posix()}: {count_parameters(subject.model):,} parameters, "
            f"{count(len(subject.layers), 'Sonic layer')}, reference spacing {_steps(subject.spacing)} {subject.unit}. "
            f"torchsonic {__version__}."
        ),
        sections=[
            *network,
            Section("Layers", [Table("The Sonic layers", HEADERS, rows), Prose(note, "remark"), *shown]),
        ],
    )


def _layer_words(layer: SonicConvNd, unit: str) -> tuple[str, ...]:
    """A layer's row in the table, without its name."""
    lengths = decay_lengths(layer)
    energy = strongest_modes(layer)[1].cumsum(0)
    ends = (lengths.min(), lengths.median(), lengths.max())
    return (
        f"{layer.in_channels} to {layer.out_channels}",
        str(layer.num_modes) + (f", in {layer.orbit_size} turns" if layer.orbit_size > 1 else ""),
        str(1 + int((energy < 0.9 * energy[-1]).sum())),
        f"{', '.join(f'{float(value):.3g}' for value in ends)} {unit}",
        f"{_steps(layer.reference_spacing)} {unit}",
    )


def _steps(spacing: Sequence[float]) -> str:
    return " x ".join(f"{step:.3g}" for step in spacing)


def write_explanation(
    subject: Subject, path: Path, *, most_layers: int = 6, say: Callable[[str], None] = lambda text: None
) -> Path:
    """Draw everything and write the page, one HTML file.

    Parameters
    ----------
    most_layers
        Layers with pictures of their own.
    say
        Told each picture's title.
    """
    figures = []
    for layer, figure in draw_figures(subject, most_layers=most_layers):
        say(figure.title)
        figures.append((layer, figure))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, to_html(make_page(subject, figures)))
    return path
