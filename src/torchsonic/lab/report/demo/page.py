"""Trains, tests, measures and writes the page; if a part fails, the page names it and shows the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from torchsonic import __version__
from torchsonic.lab.data import HalliGalli, SynthShape
from torchsonic.lab.metrics import count_parameters
from torchsonic.lab.report import Cell, Code, Document, Figure, Items, Prose, Section, Table, write_document
from torchsonic.lab.report.demo import live, pretrained, speed
from torchsonic.lab.report.files import to_png
from torchsonic.lab.report.runs import count
from torchsonic.lab.runs.halligalli import HALLIGALLI_NOISE, TEST_NOISE, score_corners
from torchsonic.lab.training.progress import counting_progress
from torchsonic.models import PretrainedError, PretrainedModel, from_pretrained, pretrained_folder

SCENES = range(2_000_000, 2_000_040)  # drawn for this page: no network was trained on them
CORNER_SCENES = range(3_000_000, 3_000_200)  # further draws of the 625 scenes that there are
SHOWN_SCENE = SCENES[7]
POOR = 0.5
"""Dice below which a trained network has learned little."""
SHAPES = {"OrbitNet": "shapes_orbit", "SonicNet": "shapes", "3x3 convolutions": "shapes_conv"}
HIPPOCAMPI = {"SonicUNet": "hippocampus", "U-Net (MONAI)": "hippocampus_conv"}
CORNERS = {"SonicNet": "corners", "3x3 convolutions": "corners_conv"}


@dataclass(frozen=True)
class DemoConfig:
    """Options of ``torchsonic demo``."""

    out: Path = Path("demo")
    """Folder for the page and its figures."""
    steps: int = 450
    """Training steps of the network that is trained now."""
    batch: int = 8
    """Scenes per step."""
    seed: int = 0
    """Seed of scenes and weights."""
    volumes: Path | None = None
    """Folder with images/ and labels/ of hippocampi (NIfTI) for one more part of the page."""


def run_demo(config: DemoConfig, folder: Path, *, say: Callable[[str], None] = print, show: bool = True) -> Path:
    """Write the page and its figures into a folder; returns the page."""
    parts: list[tuple[str, Callable[[], Section]]] = [
        ("trained while you wait", lambda: _live(config, say, show=show)),
        ("rotated shapes, and noise", lambda: _shapes(show=show)),
        ("distant clues", lambda: _corners(show=show)),
        ("speed on this machine", _speed),
    ]
    if config.volumes is not None:
        from torchsonic.lab.report.demo.volumes import check_cases  # needs NIfTI's package, as little else here does

        check_cases(config.volumes)
        parts.insert(3, ("scans with any axis order", partial(_volumes, config.volumes, show=show)))
    sections, left_out = [], []
    for title, make in parts:
        say(f"{title} ...")
        try:
            sections.append(make())
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            say(f"warning: left out: {error}")
            left_out.append((title, str(error)))
    document = Document(
        title="SONIC in three minutes",
        about=f"Every score and time on this page was measured just now. torchsonic {__version__}, "
        f"torch {torch.__version__}, {count(torch.get_num_threads(), 'thread')}.",
        sections=[*sections, _next_steps()],
        left_out=left_out,
    )
    return write_document(document, folder, name="demo")[0]


def _live(config: DemoConfig, say: Callable[[str], None], *, show: bool) -> Section:
    data, model = SynthShape(seed=config.seed), live.make_network(config.seed)
    start = time.perf_counter()
    with counting_progress("training", config.steps, show=show) as advance:
        for _ in live.train(model, data, steps=config.steps, batch=config.batch):
            advance()
    seconds = time.perf_counter() - start
    found = live.test_samplings(model, data)
    rows = [["{} x {}".format(*each.size), *[f"{dice:.3f}" for dice in each.dice.values()]] for each in found]
    say(f"trained {config.steps} steps in {seconds:.0f} s")
    text = (
        f"This network of {count_parameters(model):,} parameters was trained for {seconds:.0f} seconds to find shapes "
        "in images of 48 x 48 pixels; it has seen no other size. Here it is tested on new scenes: on this grid, a "
        "finer one and two stretched ones, with and without their pixel spacing."
    )
    if found[0].dice["spacing given"] < POOR:
        text += " It has learned little; more --steps help."
    scenes = len(live.TEST_SCENES)
    caption = f"Under each answer: the mean Dice of {scenes} scenes, of which this is one."
    figure = Figure(
        "samplings", "The same scene on four grids", caption, to_png(live.draw_samplings(found)), wide=False
    )
    table = Table(f"Mean Dice of {scenes} new scenes", ("pixels", *found[0].dice), rows)
    return Section("Trained while you waited", [Prose(text), figure, table])


def _load(names: Mapping[str, str]) -> dict[str, PretrainedModel]:
    """Networks of the package, by title and number of parameters."""
    models = {title: from_pretrained(_packaged(name)) for title, name in names.items()}
    return {f"{title}, {count_parameters(model):,}": model for title, model in models.items()}


def _packaged(name: str) -> Path:
    """The folder of a network of the package, whatever the current folder holds."""
    folder = pretrained_folder(name)
    if folder is None:
        raise PretrainedError(f"no network called {name} is included in this version of torchsonic")
    return folder


def _shapes(*, show: bool) -> Section:
    networks = _load(SHAPES)
    total = len(networks) * (len(pretrained.ANGLES) + len(pretrained.NOISES))
    with counting_progress("testing", total, show=show) as advance:
        turned = pretrained.score_levels(networks, "rotation", pretrained.ANGLES, SCENES, advance)
        noisy = pretrained.score_levels(networks, "noise", pretrained.NOISES, SCENES, advance)
    curves = {
        "rotated": (pretrained.ANGLES, turned, "angle in degrees"),
        "noisy": (pretrained.NOISES, noisy, "standard deviation of the noise"),
    }
    text = (
        "These pretrained networks are part of the package, trained in the same way on upright shapes without noise. "
        "OrbitNet applies every mode in sixteen directions, so its answer rotates with the image: exactly for "
        "multiples of 90 degrees, up to sampling errors for multiples of 22.5, and approximately in between. This does "
        "not have to be learned. The numbers after the names are parameter counts."
    )
    titled = {name.split(",")[0]: network for name, network in networks.items()}
    shown = to_png(pretrained.draw_turned(titled, SHOWN_SCENE))
    levels = to_png(pretrained.draw_curves(curves))
    return Section(
        "Rotated shapes, and noise",
        [
            Prose(text),
            Figure("turned", "A scene rotated by three angles, and the answer of each network", "", shown, wide=False),
            Figure("curves", "Dice over the rotation angle and over the noise", "", levels, wide=False),
        ],
    )


def _corners(*, show: bool) -> Section:
    data, rows = HalliGalli(), []
    for name, network in _load(CORNERS).items():
        scores = score_corners(network, data, CORNER_SCENES, levels=(0.0, TEST_NOISE), show=show)["rows"]
        rows.append([name, *[f"{score['dice']:.2f}" for score in scores]])
    text = (
        "HalliGalli puts a shape in each corner of an image. At the empty centre, the network has to say whether "
        "exactly two of them match. A single layer has to see all four corners, 34 to 45 pixels away. A Sonic kernel "
        "spans the whole image. A 3x3 kernel does not reach the corners, so it gives the same answer for every image. "
        f"There are only 625 scenes, and training saw all of them, with noise of up to {HALLIGALLI_NOISE:g}: this "
        "tests whether a layer can bring the corners together, not whether it generalises to new scenes."
    )
    headers = ("network, parameters", "clean", f"noise {TEST_NOISE:g}")
    table = Table(f"Dice on {len(CORNER_SCENES)} draws of the 625 scenes, one layer each", headers, rows)
    return Section("Distant clues", [Prose(text), table])


def _volumes(data: Path, *, show: bool) -> Section:
    from torchsonic.lab.report.demo import volumes
    from torchsonic.lab.runs.volumes import load_run

    folders = {title: _packaged(name) for title, name in HIPPOCAMPI.items()}
    cases, rows = volumes.find_new_cases(data, folders.values()), []
    with counting_progress("testing", len(folders) * len(volumes.STORAGES) * len(cases), show=show) as advance:
        for title, folder in folders.items():
            model, config = load_run(folder)
            name = f"{title}, {count_parameters(model):,}"
            for each in volumes.score_storages(model, config, cases, advance):
                dice = ["-" if dice is None else f"{dice:.3f}" for dice in (each.told, each.not_told)]
                rows.append([name, each.axes, *dice])
    scans = count(len(cases), "scan")
    text = (
        f"The networks were not trained on the {scans} tested here. Each scan is stored in three ways, with axes "
        "reordered and some of them reversed. The letters say where the axes of the file point: to the right or left, "
        "anterior or posterior, superior or inferior. Given the affine of the file, SonicUNet gives the same answer "
        "for all three. Without it the anatomy appears rotated to both networks. A U-Net cannot use the affine: all "
        "scans have to be reordered first."
    )
    headers = ("network, parameters", "axes", "affine given", "affine not given")
    table = Table(f"Mean Dice of hippocampi on {scans} of {data.name}", headers, rows, left=2)
    return Section("Scans with any axis order", [Prose(text), table])


def _speed() -> Section:
    rows, ratios = [], []
    for size in speed.SIZES:
        ours, theirs = speed.measure_steps(*size)
        ratios.append(theirs.milliseconds / ours.milliseconds)
        mark = "better" if ratios[-1] > 1 else "worse"
        times = [f"{ours.milliseconds:.1f}", f"{theirs.milliseconds:.1f}", Cell(f"{ratios[-1]:.1f}x", mark=mark)]
        rows.append(["{} / {} / {}".format(*size), *times, f"{ours.kept:.1f}", f"{theirs.kept:.1f}"])
    sizes, kept = "channels / modes / pixels", "MB kept for backward"
    headers = (sizes, "Sonic, ms", "3x3, ms", "speed-up", f"Sonic, {kept}", f"3x3, {kept}")
    text = (
        f"A training step of one layer, forward and backward, on a batch of {speed.BATCH}. The kernel of the Sonic "
        "layer is as large as the image. The Sonic layers wrap around at the borders. Except in the last row, they "
        "have at most a quarter as many modes as channels. With as many modes as channels, the 3x3 convolution was "
        f"{'slower' if ratios[-1] > 1 else 'faster'} here. With ",
        Code('execution={"recompute": True}'),
        ", a Sonic layer keeps only its input for the backward pass, as the convolution does, but takes longer.",
    )
    return Section("Speed on this machine", [Prose(text), Table("Cost of a training step", headers, rows)])


def _next_steps() -> Section:
    steps = [
        ("Train on your own images, in the folders images/ and masks/: ", Code("torchsonic train masks --data DIR")),
        ("Predict masks for new images: ", Code("torchsonic predict RUN --data NEW --out FOUND")),
        ("See what the network has learned: ", Code("torchsonic explain RUN")),
    ]
    return Section("Your own images", [Items(steps)])
