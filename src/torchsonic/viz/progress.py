"""How modes change while a network learns: an animation from the weights that a run kept."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from torchsonic.nn import SonicConvNd
from torchsonic.viz import style
from torchsonic.viz.energy import SMALLEST, decay_lengths, mode_energies, shares_of_highest, spectral_energy
from torchsonic.viz.lattice import Lattice, central_slice, named_sonic_layers, physical_modes, reference_lattice

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

DPI = 90
LARGEST = 260.0  # area of the strongest mode's dot, in square points
FORMATS = (".gif", ".webp")


@dataclass(frozen=True)
class Snapshot:
    """The modes of a layer at one step."""

    step: int
    direction: Tensor
    """``(M, D)``."""
    length: Tensor
    """Decay lengths, ``(M,)``."""
    frequency: Tensor
    """Angular frequency along each mode, ``(M,)``."""
    share: Tensor
    """Fraction of the layer's energy, ``(M,)``."""
    energy: Tensor
    """Energy of the whole layer over the lattice's frequencies, ``(*size)``."""
    lattice: Lattice


def take_snapshot(layer: SonicConvNd, step: int, *, samples: int | None = None) -> Snapshot:
    """Take a snapshot of a layer's current modes."""
    modes, share = physical_modes(layer), mode_energies(layer)
    lattice = reference_lattice(layer, samples)
    frequency = modes.pole.imag / modes.scale
    energy = spectral_energy(layer, lattice)
    share = share / share.sum().clamp_min(SMALLEST)
    return Snapshot(step, modes.direction, decay_lengths(layer), frequency, share, energy, lattice)


def take_snapshots(
    model: nn.Module,
    weights: Iterable[tuple[int, Mapping[str, Tensor]]],
    *,
    layer: str | None = None,
    samples: int | None = None,
) -> Iterator[Snapshot]:
    """Take a snapshot of one layer for each set of weights.

    Parameters
    ----------
    model
        A model of the same architecture; it is not changed.
    weights
        Steps and states, for example from :func:`torchsonic.lab.training.checkpoint.kept_weights`.
    layer
        Name of the Sonic layer, the first by default.
    """
    model = copy.deepcopy(model)
    layers = named_sonic_layers(model)
    name = next(iter(layers)) if layer is None else layer
    if name not in layers:
        raise ValueError(f"layer must be one of {', '.join(layers)}, got {layer!r}")
    for step, state in weights:
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"the weights of step {step} belong to another architecture: {error}") from error
        yield take_snapshot(layers[name], step, samples=samples)


@style.styled
def draw_snapshot(snapshot: Snapshot, *, longest: float, fastest: float, unit: str = "px", title: str = "") -> Figure:
    """Draw one frame: each mode as a dot by direction and decay length, and the layer's energy over frequency.

    The size of a dot shows the mode's energy, its colour the frequency. Volumes show directions and lengths projected
    onto the y-x plane.

    Parameters
    ----------
    longest, fastest
        Upper limits of decay length and frequency, the same for all frames.
    """
    figure = style.new_figure(7.6, 3.9)
    figure.suptitle(f"{title}{', ' if title else ''}step {snapshot.step}")
    _draw_dots(figure, snapshot, longest, fastest, unit)
    flat = len(snapshot.lattice.size) == 1
    panel = figure.add_subplot(1, 2, 2)
    panel.set_title("energy over frequency" + ("" if flat else r", $\log_{10}$"), pad=4)
    shares, frequencies = shares_of_highest(snapshot.energy), snapshot.lattice.frequencies[-2:]
    if flat:
        panel.semilogy(frequencies[0], shares, color=style.PALETTE[0])
        panel.set(ylim=(10**-style.DECADES, 1.5), xlabel=style.frequency_label("x", unit))
        style.thin_axes(panel)
    else:
        image = style.show_decades(panel, central_slice(shares), frequencies)
        style.frame_axes(panel, frequencies, style.AXIS_NAMES[2], unit, frequency=True)
        figure.colorbar(image, ax=panel, fraction=0.045, pad=0.03)
    return figure


def _draw_dots(figure: Figure, snapshot: Snapshot, longest: float, fastest: float, unit: str) -> None:
    from matplotlib.patheffects import Normal, Stroke

    # Logarithmic lengths from the centre outwards; nothing shorter than half a pixel is resolved.
    shortest = 0.5 * min(snapshot.lattice.spacing)
    plane = snapshot.direction[:, -2:]
    radius = (snapshot.length * plane.norm(dim=-1) / shortest).log2().clamp_min(0)
    outer = math.log2(max(longest / shortest, 2))
    ticks = torch.linspace(0, outer, 4)[1:].tolist()
    names = [style.short(shortest * 2**tick) for tick in ticks]
    colours = {"c": snapshot.frequency.abs(), "cmap": style.MAGNITUDE, "vmin": 0, "vmax": fastest}
    look = {"alpha": 0.85, "edgecolors": "0.3", "linewidths": 0.3, **colours}
    sizes = LARGEST * shares_of_highest(snapshot.share)
    minus = style.MINUS
    if len(snapshot.lattice.size) == 1:
        panel: Any = figure.add_subplot(1, 2, 1)
        drawn = panel.scatter(snapshot.direction[:, 0] * radius, snapshot.frequency, sizes, **look)
        labels = [*[f"{minus}{name}" for name in names], f"±{style.short(shortest)}", *names]
        panel.set_xticks([*[-tick for tick in ticks], 0, *ticks], labels)
        panel.set(xlim=(-1.08 * outer, 1.08 * outer), ylim=(-1.1 * fastest, 1.1 * fastest))
        panel.set(xlabel=f"decay length along the mode ({unit})", ylabel=f"frequency (rad/{unit})")
        style.thin_axes(panel)
    else:
        panel = figure.add_subplot(1, 2, 1, projection="polar")
        drawn = panel.scatter(torch.atan2(plane[:, 0], plane[:, 1]), radius, sizes, **look)
        style.turn_clockwise(panel, "y", "x")
        panel.set_rgrids(ticks, [*names[:-1], f"{names[-1]} {unit}"], angle=315, fontsize=7)
        panel.set_rlim(0, 1.05 * outer)
        for label in panel.get_yticklabels():  # dots lie under the numbers
            label.set_path_effects([Stroke(linewidth=2.2, foreground="white"), Normal()])
    bar = figure.colorbar(drawn, ax=panel, location="bottom", fraction=0.045, pad=0.06, aspect=30)
    bar.set_label(f"frequency of the mode (rad/{unit})", fontsize=8)


def write_animation(
    path: Path, snapshots: Iterable[Snapshot], *, seconds: float = 6.0, unit: str = "px", title: str = ""
) -> Path:
    """Write snapshots as an animated GIF or WebP that loops; the last frame stays for a while.

    Parameters
    ----------
    path
        A path that ends in ``.gif`` or ``.webp``; WebP is smaller.
    seconds
        Total duration of all frames but the last.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"path must end in {' or '.join(FORMATS)}, got {path.name}")
    taken = list(snapshots)
    if not taken:
        raise ValueError("an animation needs snapshots, got none; train with --keep-every")
    longest = max(float(snapshot.length.max()) for snapshot in taken)
    fastest = max(float(snapshot.frequency.abs().max()) for snapshot in taken)
    frames = [
        _as_image(draw_snapshot(snapshot, longest=longest, fastest=fastest, unit=unit, title=title))
        for snapshot in taken
    ]
    each = round(1000 * seconds / max(len(frames) - 1, 1))
    durations = [*[each] * (len(frames) - 1), 2500]
    options: dict[str, Any] = {"quality": 80, "method": 4} if path.suffix == ".webp" else {"optimize": True}
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, **options)
    return path


def _as_image(figure: Figure) -> Image:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())
