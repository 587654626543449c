"""The page on what a saved model has learned, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from torchsonic import __version__, viz
from torchsonic.io import write_whole
from torchsonic.lab.metrics import count_parameters
from torchsonic.lab.report import Document, Figure, Prose, Section, Table, to_html
from torchsonic.lab.report.explain.subject import Subject
from torchsonic.lab.report.files import to_png
from torchsonic.lab.report.runs import count, group_by
from torchsonic.lab.training.checkpoint import kept_weights
from torchsonic.models.model_folder import is_packaged
from torchsonic.nn import SonicConvNd
from torchsonic.viz.spectra import choose_evenly

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

HEADERS = ("layer", "channels", "modes", "modes for 90 % of the energy", "decay lengths", "reference spacing")
OPEN = 2
"""Layers whose pictures are shown without a click."""
DPI = 110
NARROW = 950
"""Pixels from left to right."""
SHEETS = {
    1: "Response over frequency, and kernel in space.",
    2: "Top: the response log(1 + |gT|) over frequency. Bottom: the kernel in space.",
    3: "Slices through the origin, first of the response log(1 + |gT|) over frequency, then of the kernel in space.",
}


def make_page(subject: Subject, figures: Sequence[tuple[str, Figure]]) -> Document:
    """The page on a model, with figures of the network and, under their names, of its layers."""
    groups = group_by(figures, lambda pair: pair[0])
    network = [Section(figure.title, [figure], anchor=figure.name) for _, figure in groups.pop("", [])]
    note = "Decay lengths: shortest, median and longest."
    if len(groups) < len(subject.layers):
        note += f" Figures of {len(groups)} of the {len(subject.layers)} layers follow, evenly spaced in depth."
    rows = [[name, *_layer_words(layer, subject.unit)] for name, layer in subject.layers.items()]
    shown = [
        Section(layer, [Section(figure.title, [figure]) for _, figure in members], folded=place >= OPEN)
        for place, (layer, members) in enumerate(groups.items())
    ]
    name = type(subject.model).__name__
    packaged = is_packaged(subject.folder)
    title = subject.folder.name if packaged else f"this {name}"
    place = f", packaged as {subject.folder.name}" if packaged else f" in {subject.folder.as_posix()}"
    return Document(
        title=f"What {title} has learned",
        about=(
            f"{name}{place}: {count_parameters(subject.model):,} parameters, "
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
    lengths = viz.decay_lengths(layer)
    energy = viz.strongest_modes(layer)[1].cumsum(0)
    ends = (lengths.min(), lengths.median(), lengths.max())
    return (
        f"{layer.in_channels} to {layer.out_channels}",
        str(layer.num_modes) + (f", each in {layer.orbit_size} rotations" if layer.orbit_size > 1 else ""),
        str(1 + int((energy < 0.9 * energy[-1]).sum())),
        f"{', '.join(f'{float(value):.3g}' for value in ends)} {unit}",
        f"{_steps(layer.reference_spacing)} {unit}",
    )


def _steps(spacing: Sequence[float]) -> str:
    return " x ".join(f"{step:.3g}" for step in spacing)


def write_explanation(
    subject: Subject, path: Path, *, most_layers: int = 6, say: Callable[[str], None] = lambda text: None
) -> Path:
    """Draw everything and write the page, one HTML file; ``say`` is told each picture's title."""
    figures = []
    for layer, figure in draw_figures(subject, most_layers=most_layers):
        say(figure.title)
        figures.append((layer, figure))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, to_html(make_page(subject, figures)))
    return path


def draw_figures(subject: Subject, *, most_layers: int = 6) -> Iterator[tuple[str, Figure]]:
    """All figures, one after another: of the network, under no name, then of evenly chosen layers, under theirs."""
    unit, model = subject.unit, subject.model
    cut = " For volumes, the slice at frequency 0 of the first axis is shown." if len(subject.spacing) == 3 else ""
    if subject.images is not None and subject.rival is not None:
        networks = {subject.name: model, subject.rival_name: subject.rival}
        fields = {n: viz.receptive_field(net, subject.images, spacing=subject.spacing) for n, net in networks.items()}
        caption = (
            "Root mean square of the derivatives of the central output pixel with respect to each input pixel, over "
            f"{subject.images_words}, compared with {subject.rival_words}. With norms over the whole image, "
            "every network sees a little of everything."
        )
        yield "", _figure("field", "Receptive field", caption, viz.draw_receptive_fields(fields, unit=unit))
    caption = (
        "Squared responses, summed over all pairs of channels and divided by the maximum of the layer. The curves are "
        f"means over directions.{cut}"
    )
    yield "", _figure("stages", "Spectral energy of the layers", caption, viz.draw_stages(model, unit=unit))
    caption = (
        "A mode acts along its direction only. Modes are weighted by their largest amplification of any wave: the gain "
        "times the norms of B and C, divided by |Re a|."
    )
    yield "", _figure("rose", "Directions of the modes", caption, viz.draw_rose(model))
    yield from _animation(subject)
    for name, layer in choose_evenly(list(subject.layers.items()), most_layers):
        caption = (
            f"{SHEETS[layer.num_axes]} Labels: mode number, share of the layer's energy, decay length ℓ, wavelength λ. "  # noqa: RUF001
            "Kernel colours saturate at a quarter of the peak; long modes wrap around."
        )
        yield name, _figure(f"modes-{name}", f"Modes of {name}", caption, viz.draw_modes(layer, unit=unit))
        caption = f"Responses of the layer from one channel to another, for the channels with the most energy.{cut}"
        yield name, _figure(f"mixed-{name}", f"Mixed responses of {name}", caption, viz.draw_mixed(layer, unit=unit))


def _animation(subject: Subject) -> Iterator[tuple[str, Figure]]:
    if subject.run is None:
        return
    name = next(iter(subject.layers))
    snapshots = list(viz.take_snapshots(subject.model, kept_weights(subject.run), layer=name))
    if len(snapshots) < 2:
        return
    with TemporaryDirectory() as scratch:
        path = viz.write_animation(Path(scratch) / "modes.webp", snapshots, unit=subject.unit, title=name)
        data = path.read_bytes()
    caption = (
        f"The modes of {name} at {len(snapshots)} training steps. Each dot is a mode, placed by direction and decay "
        "length, sized by energy and coloured by frequency. Beside it: the layer's energy over frequency."
    )
    yield "", Figure("training", "Modes during training", caption, data, kind="webp", wide=False)


def _figure(name: str, title: str, caption: str, drawing: Drawing) -> Figure:
    data = to_png(drawing, dpi=DPI)
    # Wide figures scroll sideways on a narrow screen rather than become unreadable; others shrink.
    return Figure(name, title, caption, data, wide=int.from_bytes(data[16:20], "big") >= NARROW)
