"""A minute of SONIC: learn shapes at one resolution, find them at others.

Scenes are continuous (discs, squares, crosses in random colours on a noisy ground) and rendered on any grid. A small
network learns to segment them at 48 x 48 and is then tested on finer and anisotropic samplings of new scenes, once told
the pixel spacing and once not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchsonic.nn import SonicConv2d, parameter_groups, set_spacing
from torchsonic.viz.style import PALETTE, bare, new_figure, show_kernel, styled, thin_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_CLASSES = 4
TRAIN_SIZE = (48, 48)
SAMPLINGS = {"48 x 48": (48, 48), "96 x 96": (96, 96), "96 x 48": (96, 48), "36 x 72": (36, 72)}


@dataclass(frozen=True)
class DemoConfig:
    """Options of ``torchsonic demo``."""

    out: Path = Path("demo")
    """Folder for the picture."""
    steps: int = 450
    """Training steps."""
    batch: int = 8
    """Scenes per step."""
    seed: int = 0
    """Seed of scenes and weights."""


def random_scenes(count: int, generator: torch.Generator, shapes: int = 4) -> dict[str, Tensor]:
    """Shapes by kind, centre, radius, angle and colour; one in each cell of a jittered 2 x 2 lattice."""
    rand = lambda *s: torch.rand(*s, generator=generator)  # noqa: E731
    cells = torch.tensor([[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]])[:shapes]
    return {
        "kind": torch.randint(1, NUM_CLASSES, (count, shapes), generator=generator),
        "centre": cells + 0.16 * (rand(count, shapes, 2) - 0.5),
        "radius": 0.09 + 0.07 * rand(count, shapes),
        "angle": torch.pi * rand(count, shapes),
        "colour": 0.3 + 0.7 * rand(count, shapes, 3),
        "ground": 0.3 * rand(count, 3),
    }


def render(scenes: dict[str, Tensor], size: tuple[int, int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images ``(B, 3, H, W)`` and labels ``(B, H, W)`` of the unit square on any grid."""
    y, x = torch.meshgrid(*[torch.arange(n) / n for n in size], indexing="ij")
    count, shapes = scenes["kind"].shape
    image = scenes["ground"][:, :, None, None].expand(-1, -1, *size).clone()
    label = torch.zeros(count, *size, dtype=torch.long)
    for i in range(shapes):
        view = lambda v, i=i: v[:, i, None, None]  # noqa: E731
        dy, dx = y - view(scenes["centre"][..., 0]), x - view(scenes["centre"][..., 1])
        cos, sin, r = view(scenes["angle"].cos()), view(scenes["angle"].sin()), view(scenes["radius"])
        u, v = (cos * dx + sin * dy).abs() / r, (cos * dy - sin * dx).abs() / r
        inside = torch.stack(
            [
                u.square() + v.square() < 1.0,
                torch.maximum(u, v) < 0.85,
                (torch.minimum(u, v) < 0.33) & (torch.maximum(u, v) < 1.1),
            ]
        )
        kind = scenes["kind"][:, i]
        mask = inside[kind - 1, torch.arange(count)]
        label[mask] = kind[:, None, None].expand_as(mask)[mask]
        image = torch.where(mask[:, None], scenes["colour"][:, i, :, None, None], image)
    return image + 0.05 * torch.randn(image.shape, generator=generator), label


class _Block(nn.Module):
    def __init__(self, width: int, num_modes: int) -> None:
        super().__init__()
        self.sonic = SonicConv2d(
            width, width, num_modes=num_modes, bias=False, spacing=1 / TRAIN_SIZE[0], field=TRAIN_SIZE[0]
        )
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.sonic(x)) + x)


def build_network(width: int = 32, depth: int = 3, num_modes: int = 16) -> nn.Sequential:
    """A 1x1 stem, Sonic blocks and a 1x1 head: all that sees neighbours is global and resolution-free."""
    blocks = [_Block(width, num_modes) for _ in range(depth)]
    return nn.Sequential(nn.Conv2d(3, width, 1), *blocks, nn.Conv2d(width, NUM_CLASSES, 1))


def dice(prediction: Tensor, label: Tensor) -> float:
    """Mean Dice over the shapes' classes."""
    scores = []
    for c in range(1, NUM_CLASSES):
        p, t = prediction == c, label == c
        scores.append((2 * (p & t).sum() / (p.sum() + t.sum()).clamp_min(1)).item())
    return sum(scores) / len(scores)


def _train(model: nn.Module, config: DemoConfig, generator: torch.Generator) -> list[float]:
    from rich.progress import Progress, TextColumn

    rate = 1e-2
    optimiser = torch.optim.AdamW(parameter_groups(model, rate, weight_decay=1e-4))
    peaks = [group["lr"] for group in optimiser.param_groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, peaks, total_steps=config.steps)
    weights = torch.tensor([0.3, 1.0, 1.0, 1.0])
    losses = []
    with Progress(*Progress.get_default_columns(), TextColumn("loss {task.fields[loss]:.3f}")) as progress:
        task = progress.add_task("training", total=config.steps, loss=float("nan"))
        for _ in range(config.steps):
            image, label = render(random_scenes(config.batch, generator), TRAIN_SIZE, generator)
            loss = nn.functional.cross_entropy(model(image), label, weights)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
            progress.update(task, advance=1, loss=sum(losses[-20:]) / len(losses[-20:]))
    return losses


@torch.no_grad()
def _evaluate(model: nn.Module, generator: torch.Generator) -> dict[str, dict]:
    model.eval()
    scenes = random_scenes(48, generator)
    results = {}
    for name, size in SAMPLINGS.items():
        image, label = render(scenes, size, generator)
        told = set_spacing(model, tuple(1 / n for n in size))(image).argmax(1)
        untold = set_spacing(model, 1 / TRAIN_SIZE[0])(image).argmax(1)
        shown = {"image": image[0], "told": told[0], "untold": untold[0]}
        results[name] = {**shown, "dice_told": dice(told, label), "dice_untold": dice(untold, label)}
    return results


@styled
def _draw(losses: list[float], results: dict[str, dict], model: nn.Sequential) -> Figure:
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(["#f2f2f2", *(PALETTE[place] for place in (0, 4, 2))])
    figure = new_figure(2.4 * (len(results) + 1), 7.6)
    axes = figure.subplots(3, len(results) + 1)
    rows = ("image", "told", "untold")
    for column, (name, result) in enumerate(results.items()):
        for row, key in enumerate(rows):
            ax = axes[row, column]
            picture = result[key].permute(1, 2, 0).clamp(0, 1) if key == "image" else result[key]
            options = {} if key == "image" else {"cmap": colours, "vmin": 0, "vmax": NUM_CLASSES - 1}
            ax.imshow(picture.numpy(), extent=(0, 1, 1, 0), interpolation="nearest", **options)
            bare(ax)
            if key != "image":
                ax.set_xlabel(f"Dice {result[f'dice_{key}']:.2f}")
        note = " (trained)" if SAMPLINGS[name] == TRAIN_SIZE else ""
        axes[0, column].set_title(f"{name}{note}")
    for row, label in enumerate(("sampled scene", "told the spacing", "not told")):
        axes[row, 0].set_ylabel(label)
    axes[0, -1].plot(losses, color=PALETTE[0], linewidth=0.8)
    axes[0, -1].set(title="loss", xlabel="step", yscale="log")
    thin_axes(axes[0, -1])
    block = model[1]
    assert isinstance(block, _Block)
    step = 1 / TRAIN_SIZE[0]
    places = [(torch.arange(n) - n // 2) * step for n in TRAIN_SIZE]
    for row, channel in ((1, 0), (2, 1)):
        kernel = block.sonic.kernel(TRAIN_SIZE, step, centred=True).detach()[channel, channel]
        show_kernel(axes[row, -1], kernel, places)
        bare(axes[row, -1])
        axes[row, -1].set_title(f"kernel, channel {channel} to {channel}")
    return figure


def run_demo(config: DemoConfig) -> Path:
    """Train, test, draw; returns the picture's path."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    torch.manual_seed(config.seed)
    generator = torch.Generator().manual_seed(config.seed)
    model = build_network()
    count = sum(p.numel() for p in model.parameters())
    console.print(f"A Sonic network of {count:,} parameters learns discs, squares and crosses at 48 x 48 pixels.")
    start = time.perf_counter()
    losses = _train(model, config, generator)
    console.print(f"Trained {config.steps} steps of {config.batch} scenes in {time.perf_counter() - start:.0f} s.")
    results = _evaluate(model, generator)
    table = Table("sampling", "Dice, told the spacing", "Dice, not told")
    for name, result in results.items():
        table.add_row(name, f"{result['dice_told']:.3f}", f"{result['dice_untold']:.3f}")
    console.print(table)
    config.out.mkdir(parents=True, exist_ok=True)
    path = config.out / "demo.png"
    _draw(losses, results, model).savefig(path, dpi=130)
    console.print(f"Picture: {path}")
    return path
