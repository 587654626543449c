"""A network trained while the user waits on one grid, and tested on others with and without the spacing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchsonic.lab.data import SynthShape
from torchsonic.lab.metrics.overlap import confusion, mean_dice
from torchsonic.lab.report.style import class_legend, label_colours, show_image
from torchsonic.models import PretrainedModel, create_model
from torchsonic.nn import parameter_groups
from torchsonic.viz.style import new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAINED = (48, 48)
SAMPLINGS = (TRAINED, (96, 96), (96, 48), (36, 72))
RATE = 1e-2
TEST_SCENES = range(1_000_000, 1_000_040)  # no training gets that far


@dataclass(frozen=True)
class Sampled:
    """The same scenes on one grid: the first one's image and classes, and the Dice of all of them."""

    size: tuple[int, int]
    image: Tensor
    classes: dict[str, Tensor]
    dice: dict[str, float]


def make_network(seed: int) -> PretrainedModel:
    """A network whose unit of length is the side of an image."""
    torch.manual_seed(seed)
    options = {"num_modes": 16, "standardise": True, "spacing": 1 / TRAINED[0], "field": TRAINED[0]}
    return create_model("synthshape_sonicnet", width=32, depth=3, backbone_options=options)


def train(model: nn.Module, data: SynthShape, *, steps: int, batch: int) -> Iterable[float]:
    """Train and yield the loss of every step."""
    optimiser = torch.optim.AdamW(parameter_groups(model, RATE, weight_decay=1e-4))
    peaks = [group["lr"] for group in optimiser.param_groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, peaks, total_steps=steps)
    weights = torch.tensor([0.3, *[1.0] * (data.num_classes - 1)])  # most of an image is background
    for step in range(steps):
        image, label = data.samples(range(step * batch, (step + 1) * batch), TRAINED)
        loss = nn.functional.cross_entropy(model(image), label, weights)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        yield loss.item()


@torch.no_grad()
def test_samplings(model: nn.Module, data: SynthShape) -> list[Sampled]:
    """The answers for the same new scenes on every grid."""
    model.eval()
    found = []
    for size in SAMPLINGS:
        image, truth = data.samples(TEST_SCENES, size)
        told = model(image, spacing=tuple(1 / n for n in size)).argmax(1)
        classes = {"spacing given": told, "spacing not given": model(image).argmax(1)}
        counts = {name: confusion(answer, truth, data.num_classes) for name, answer in classes.items()}
        dice = {name: mean_dice(count, background=False) for name, count in counts.items()}
        first = {"truth": truth[0], **{name: answer[0] for name, answer in classes.items()}}
        found.append(Sampled(size, image[0], first, dice))
    return found


@styled
def draw_samplings(found: Sequence[Sampled]) -> Figure:
    """A column for each grid: the scene, and what the network makes of it."""
    answers = list(found[0].dice)
    figure = new_figure(2.1 * len(found) + 0.4, 2.2 * (1 + len(answers)) + 0.5)
    panels = figure.subplots(1 + len(answers), len(found), squeeze=False)
    for sampled, column in zip(found, panels.T, strict=True):
        show_image(column[0], sampled.image)
        height, width = sampled.size
        column[0].set_title(f"{height} x {width}{' (trained)' if sampled.size == TRAINED else ''}")
        for name, panel in zip(answers, column[1:], strict=True):
            show_image(panel, label_colours(sampled.classes[name]))
            panel.set_xlabel(f"mean Dice {sampled.dice[name]:.2f}")
        for panel in column:
            panel.set_aspect(width / height)  # the same square of the world
    for title, panel in zip(("scene", *answers), panels[:, 0], strict=True):
        panel.set_ylabel(title)
    class_legend(figure, loc="outside lower center")
    return figure
