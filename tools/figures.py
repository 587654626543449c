"""All figures of the documentation, made from nothing but this code.

Networks that are shown are trained here, briefly: pictures of modes need no good score.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tools.orientation_figure import draw_orientation
from torchsonic.lab.data import SynthShape
from torchsonic.lab.report.demo import live
from torchsonic.lab.runs.folder import load_model
from torchsonic.lab.runs.synthetic import (
    ModelName,
    SyntheticConfig,
    apply_preset,
    make_data,
    make_model,
    make_task,
    test_indices,
)
from torchsonic.lab.runs.volumes import VolumesConfig
from torchsonic.lab.runs.volumes import run_experiment as run_volumes
from torchsonic.lab.training import TrainingConfig, fit
from torchsonic.lab.training.checkpoint import kept_weights
from torchsonic.nn import SonicConv1d, SonicConv3d, SonicConvNd, sonic_layers
from torchsonic.viz import (
    draw_mixed,
    draw_modes,
    draw_pipeline,
    draw_receptive_fields,
    draw_rose,
    draw_slices,
    draw_stages,
    draw_stages_beside,
    draw_sweep,
    receptive_field,
    take_snapshots,
    write_animation,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "make_figures"]

DPI = 110
FRAMES = 25
NUM_IMAGES = 6


@dataclass
class _Workshop:
    """Where figures are made; what several of them show is trained once, when the first one asks for it."""

    out: Path
    scratch: Path
    steps: int
    volumes: Path | None = None

    @cached_property
    def sonicnet(self) -> nn.Module:
        return self._train("sonicnet")

    @cached_property
    def convnet(self) -> nn.Module:
        return self._train("convnet")

    @property
    def config(self) -> SyntheticConfig:
        config = apply_preset(SyntheticConfig(task="synthshape"), "demo")
        training = replace(config.training, steps=self.steps, keep_every=max(1, self.steps // FRAMES))
        return replace(config, training=training, test_samples=8)

    @cached_property
    def volume_network(self) -> nn.Module:
        """Four blocks, as those on SynthShape, trained on the volumes."""
        assert self.volumes is not None
        sizes: dict[str, Any] = {"model": "sonicnet3d", "width": 16, "depth": 4, "num_modes": 32, "test_cases": 1}
        training = TrainingConfig(steps=self.steps, batch=2)
        config = VolumesConfig(data=self.volumes, patch_voxels=30_000, test_patches=2, training=training, **sizes)
        run_volumes(config, self.scratch / "volumes", show=False)
        return load_model(self.scratch / "volumes")

    def _train(self, model: ModelName) -> nn.Module:
        config = replace(self.config, model=model)
        network = make_model(config)
        fit(network, make_task(config), config.training, self.scratch / model, show=False)
        return network

    @property
    def layer(self) -> SonicConvNd:
        return next(layer for _, layer in sonic_layers(self.sonicnet))

    def save(self, name: str, figure: Figure) -> Path:
        path = self.out / f"{name}.png"
        figure.savefig(path, dpi=DPI)
        return path


def _demo(shop: _Workshop) -> Path:
    data, network = SynthShape(), live.make_network(seed=0)
    for _ in live.train(network, data, steps=3 * shop.steps, batch=8):
        pass
    return shop.save("demo", live.draw_samplings(live.test_samplings(network, data)))


def _sweep(shop: _Workshop) -> Path:
    return shop.save("sweep", draw_sweep())


def _surfaces(shop: _Workshop) -> Path:
    values = {"angle": (0, 45, 90), "damping": (0.5, 0.12, 0.03), "transverse": (0.3, 1.5, 24)}
    return shop.save("surfaces", draw_sweep(values=values, kind="surface"))


def _modes(shop: _Workshop) -> Path:
    return shop.save("modes", draw_modes(shop.layer, count=16))


def _modes_1d(shop: _Workshop) -> Path:
    torch.manual_seed(0)
    return shop.save("modes_1d", draw_modes(SonicConv1d(4, 4, num_modes=16), count=6))


def _modes_3d(shop: _Workshop) -> Path:
    torch.manual_seed(0)
    layer = SonicConv3d(4, 4, num_modes=16, spacing=(3.0, 1.0, 1.0))
    return shop.save("modes_3d", draw_slices(layer, count=3, unit="mm"))


def _mixed(shop: _Workshop) -> Path:
    return shop.save("mixed", draw_mixed(shop.layer))


def _stages(shop: _Workshop) -> Path:
    return shop.save("stages", draw_stages(shop.sonicnet))


def _stages_medical(shop: _Workshop) -> Path | None:
    if shop.volumes is None:
        return None  # there are none in the repository
    title = f"{shop.volumes.name} (volumes)"
    networks = {"SynthShape": shop.sonicnet, title: shop.volume_network}
    return shop.save("stages_medical", draw_stages_beside(networks, units={title: "mm"}))


def _pipeline(shop: _Workshop) -> Path:
    image = make_data("synthshape").samples(test_indices(shop.config)[:1])[0]
    return shop.save("pipeline", draw_pipeline(shop.sonicnet, image))


def _rose(shop: _Workshop) -> Path:
    return shop.save("rose", draw_rose(shop.sonicnet))


def _field(shop: _Workshop) -> Path:
    images = make_data("synthshape").samples(test_indices(shop.config)[:NUM_IMAGES])[0]
    fields = {"SonicNet": receptive_field(shop.sonicnet, images), "ConvNet": receptive_field(shop.convnet, images)}
    return shop.save("field", draw_receptive_fields(fields))


def _training(shop: _Workshop) -> Path:
    network = shop.sonicnet  # trained first, for the weights it keeps
    snapshots = take_snapshots(network, kept_weights(shop.scratch / "sonicnet"))
    return write_animation(shop.out / "training.webp", snapshots, title="first layer")


def _orientation(shop: _Workshop) -> Path:
    return shop.save("orientation", draw_orientation())


FIGURES: dict[str, Callable[[_Workshop], Path | None]] = {
    "demo": _demo,
    "sweep": _sweep,
    "surfaces": _surfaces,
    "modes": _modes,
    "modes_1d": _modes_1d,
    "modes_3d": _modes_3d,
    "mixed": _mixed,
    "stages": _stages,
    "stages_medical": _stages_medical,
    "pipeline": _pipeline,
    "rose": _rose,
    "training": _training,
    "field": _field,
    "orientation": _orientation,
}


def make_figures(
    out: Path, *, only: Sequence[str], steps: int, volumes: Path | None = None
) -> Iterator[tuple[str, Path | None]]:
    """Make figures by their names, one after another; yields these with their paths, ``None`` if one was not made.

    Parameters
    ----------
    steps
        Of the networks that are trained for them.
    volumes
        Folder of images/ and labels/ to train a medical network on; without it, its figure is left as it is.
    """
    with tempfile.TemporaryDirectory() as scratch:
        shop = _Workshop(out, Path(scratch), steps, volumes)
        for name in only:
            yield name, FIGURES[name](shop)
