"""The figures of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from torchsonic.lab.report import Figure
from torchsonic.lab.report.explain.subject import Subject
from torchsonic.lab.report.files import to_png
from torchsonic.lab.training.checkpoint import kept_weights
from torchsonic.viz import (
    draw_mixed,
    draw_modes,
    draw_receptive_fields,
    draw_rose,
    draw_stages,
    receptive_field,
    take_snapshots,
    write_animation,
)
from torchsonic.viz.spectra import choose_evenly

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["draw_figures"]

DPI = 110
NARROW = 950
"""Pixels from left to right."""
SHEETS = {
    1: "Response over frequency and kernel in space.",
    2: "Above the response log(1 + |gT|) over frequency, below the kernel in space.",
    3: "Slices through the origin: of the response log(1 + |gT|) over frequency, then of the kernel in space.",
}


def draw_figures(subject: Subject, *, most_layers: int = 6) -> Iterator[tuple[str, Figure]]:
    """All figures, one after another: of the network, under no name, then of its layers, under theirs.

    Parameters
    ----------
    most_layers
        Layers with a sheet of their own; of more, so many are chosen evenly.
    """
    unit, model = subject.unit, subject.model
    cut = " Volumes are cut at frequency 0 of the first axis." if len(subject.spacing) == 3 else ""
    if subject.images is not None and subject.rival is not None:
        networks = {subject.name: model, subject.rival_name: subject.rival}
        fields = {n: receptive_field(net, subject.images, spacing=subject.spacing) for n, net in networks.items()}
        caption = (
            "Root mean square of the derivatives of the middle output pixel by each input pixel, over "
            f"{subject.images_words}; compared with {subject.rival_words}. Norms over the image let any "
            "network see a little of everything."
        )
        yield "", _figure("field", "Receptive field", caption, draw_receptive_fields(fields, unit=unit))
    caption = (
        "Squared responses summed over all pairs of channels, each layer over its highest value; the curves are means "
        f"over directions.{cut}"
    )
    yield "", _figure("stages", "Spectral energy of the stages", caption, draw_stages(model, unit=unit))
    caption = (
        "A mode looks along its direction only. Each counts by the most that it amplifies any wave: gain times the "
        "norms of B and C over |Re a|."
    )
    yield "", _figure("rose", "Directions of the modes", caption, draw_rose(model))
    yield from _animation(subject)
    for name, layer in choose_evenly(list(subject.layers.items()), most_layers):
        caption = (
            f"{SHEETS[layer.num_axes]} Number and part of the layer's energy, decay length ℓ, wavelength λ. "  # noqa: RUF001
            "Colours of kernels saturate at a quarter of the peak; long modes wrap round."
        )
        yield name, _figure(f"modes-{name}", f"Modes of {name}", caption, draw_modes(layer, unit=unit))
        caption = f"What the layer does from one channel to another, for the channels with most energy.{cut}"
        yield name, _figure(f"mixed-{name}", f"Mixed responses of {name}", caption, draw_mixed(layer, unit=unit))


def _animation(subject: Subject) -> Iterator[tuple[str, Figure]]:
    if subject.run is None:
        return
    name = next(iter(subject.layers))
    snapshots = list(take_snapshots(subject.model, kept_weights(subject.run), layer=name))
    if len(snapshots) < 2:
        return
    with TemporaryDirectory() as scratch:
        path = write_animation(Path(scratch) / "modes.webp", snapshots, unit=subject.unit, title=name)
        data = path.read_bytes()
    caption = (
        f"The modes of {name} at {len(snapshots)} steps: each is a dot by direction and decay length, larger with more "
        "energy, coloured by its frequency; beside it the layer's energy over frequency."
    )
    yield "", Figure("training", "The modes while the network learns", caption, data, kind="webp", wide=False)


def _figure(name: str, title: str, caption: str, drawing: Drawing) -> Figure:
    data = to_png(drawing, dpi=DPI)
    # Wide figures scroll sideways on a narrow screen rather than become unreadable; others shrink.
    return Figure(name, title, caption, data, wide=int.from_bytes(data[16:20], "big") >= NARROW)
