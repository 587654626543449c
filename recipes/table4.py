"""Table 4 of the paper and its curve: eight classifiers on ImageNet, 200,000 steps of 256, tested at five image sizes.

``python -m recipes.table4 --imagenet DIR --out OUT``. See docs/recipes.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipes.layouts import check_photographs
from recipes.page import beside_paper, publish, read_json
from recipes.runner import SMOKE, Step, add_folder, make_parser, missing_packages, run_recipe
from torchsonic.lab.metrics import paper_results
from torchsonic.lab.report import Figure, Section
from torchsonic.lab.report.image_sizes.page import CAPTION
from torchsonic.lab.runs.folder import read_config
from torchsonic.lab.runs.images import PRESETS, ImagesConfig
from torchsonic.lab.runs.settings import choose_preset

__all__ = ["NETWORKS", "make_page", "make_steps"]

SMALL = ["width=8", "depths=1,1,1,1"]
NETWORKS = {
    "resnet50": ("ResNet-50", SMALL),
    "vit_s16.paper": ("ViT-S/16", ["dim=32", "depth=1", "num_heads=2"]),
    "resnet50_niff": ("ResNet-50 NIFF", SMALL),
    "resnet50_s4nd": ("ResNet-50 S4ND", SMALL),
    "resnet50_gfnet": ("ResNet-50 GFNet", SMALL),
    "resnet50_replk": ("ResNet-50 RepLK", SMALL),
    "resnet50_dilated": ("ResNet-50 Dilated", SMALL),
    "resnet50_sonic.paper": ("ResNet-50 Sonic", SMALL),
}
"""The paper's name of each network, and what makes it small enough for a smoke test."""
CURVES = {"ResNet-50": "ResNet-50", "ResNet-50 NIFF": "NIFF", "ResNet-50 GFNet": "GFNet", "ResNet-50 Sonic": "SONIC"}
PROTOCOL = (
    "{steps:,} steps of {batch} images at {size} px; {optimiser} {learning_rate}, weight decay {weight_decay}, "
    "schedule {schedule}; the same images in the same order for all networks."
)
NOTES = (
    "GFLOPs count Fourier transforms and spectral products, which the paper's seem to leave out. Images per second are "
    "of a forward pass of {batch} images on {device}; the paper does not name its device.",
)


def make_options() -> argparse.ArgumentParser:
    """The options."""
    parser = make_parser("table4", __doc__)
    add_folder(parser, "imagenet", "ImageNet", required=True)
    parser.add_argument(
        "--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="rows to train; all by default"
    )
    parser.add_argument(
        "--processes", type=int, default=1, help="GPUs to train on; they share each batch of 256; 1 by default"
    )
    return parser


def is_smoke(options: argparse.Namespace) -> bool:
    """Whether only the chain is tried."""
    return options.budget == SMOKE


def run_folder(options: argparse.Namespace, network: str) -> Path:
    """Where ``torchsonic train images`` puts a run."""
    changed: dict[str, Any] = {"data": options.imagenet}
    if is_smoke(options):
        changed = {"data": options.out / "data" / "imagenet", "model_options": tuple(NETWORKS[network][1])}
    config = choose_preset(ImagesConfig(model=network, **changed), PRESETS, preset_of(options))  # type: ignore[arg-type]
    return options.out / "runs" / config.name


def preset_of(options: argparse.Namespace) -> str:
    """Of ``torchsonic train images``."""
    return "smoke" if is_smoke(options) else "imagenet-50m"


def make_steps(options: argparse.Namespace) -> list[Step]:
    """Every command, from the data to the page."""
    smoke, steps, data = is_smoke(options), [], options.imagenet
    if smoke:
        data = options.out / "data" / "imagenet"
        words = ["python", "-m", "recipes.gather", "imagenet", options.imagenet, data, "--smoke"]
        steps.append(Step("gather", words))
    program, accelerator = ["torchsonic"], ["--accelerator", options.device]
    if options.processes > 1:
        program = ["torchrun", "--nproc-per-node", options.processes, "-m", "torchsonic.cli"]
    for network, (_, small) in NETWORKS.items():
        if network in options.networks:
            chosen = ["--model", network, *(["--model-options", *small] if smoke else [])]
            command = [*program, "train", "images", "--data", data, "--out", options.out / "runs", "--preset"]
            steps.append(Step(f"train {network}", [*command, preset_of(options), *chosen, *accelerator]))
    runs = [run_folder(options, network) for network in options.networks]
    sizes, where = "48,64" if smoke else "96,128,160,192,224", ["--device", options.device]
    command = ["torchsonic", "evaluate", "images", *runs, "--resolutions", sizes, "--control"]
    steps.append(Step("test at several sizes", [*command, *where, "--out", options.out / "evaluation"]))
    few = ["--batch", 2, "--seconds", 1] if smoke else []
    command = ["python", "-m", "recipes.throughput", *runs, "--out", options.out / "throughput.json"]
    steps.append(Step("throughput", [*command, *where, *few]))
    words = ["--imagenet", options.imagenet, "--out", options.out, "--budget", options.budget]
    words += ["--networks", *options.networks, *(["--partial"] if options.partial else [])]
    return [*steps, Step("page", ["python", "-m", "recipes.table4", "--page", *words])]


def make_page(options: argparse.Namespace) -> None:
    """Both tables from the results of all runs."""
    everything = paper_results()
    paper, curves = everything["imagenet_50m"], everything["imagenet_resolution_degradation_percent"]
    speed = read_json(options.out / "throughput.json")
    report = read_json(options.out / "evaluation" / "report.json")
    rows, losses, data = [], [], {}
    for network in options.networks:
        title, run = NETWORKS[network][0], run_folder(options, network)
        results = read_json(run / "results.json")
        ours = [results["parameters"] / 1e6, results["flops"] / 1e9, speed["images_per_second"][str(run)]]
        ours += [100 * results["top1"], 100 * results["top5"]]
        rows.append((title, ours, paper["rows"][title]))
        data[network] = dict(zip(paper["columns"], ours, strict=True))
        losses += [(f"{title}{words}", points, title) for words, points in _curves(report, run)]
    sizes = sorted({size for _, points, _ in losses for size in points})
    known = {title: dict(zip(curves["resolutions"], curves[name], strict=True)) for title, name in CURVES.items()}
    curve_rows = [
        (name, [points.get(size) for size in sizes], [known.get(title, {}).get(size) for size in sizes])
        for name, points, title in losses
    ]
    headings = ["parameters, M", "GFLOPs", "images/s", "top-1, %", "top-5, %"]
    notes = [note.format(**speed) for note in NOTES]
    table = beside_paper("Table 4", headings, rows, digits=[2, 2, 0, 2, 2], notes=notes)
    picture = (options.out / "evaluation" / "sizes.png").read_bytes()
    figure = Figure("sizes", "Top-1 over image sizes, and its loss compared with the paper", CAPTION, picture)
    words = [f"{size} px" for size in sizes]
    curve = beside_paper("Loss of top-1 relative to the training size, percent", words, curve_rows)
    config = read_config(run_folder(options, options.networks[0]), ImagesConfig)
    publish(
        options.out / "report",
        title="Table 4: ImageNet",
        protocol=PROTOCOL.format(size=config.image_size, **vars(config.training)),
        sections=[Section(table.title, [table]), Section("Resolution", [figure, curve])],
        data={"networks": data, "losses": [[name, points] for name, points, _ in losses], "paper": [paper, curves]},
        smoke=is_smoke(options),
        partial=options.partial,
    )


def _curves(report: dict[str, Any], run: Path) -> list[tuple[str, dict[int, float]]]:
    """Percent lost by size, and whether the network was given the spacing."""
    words = {(None, False): "", (True, False): ", given the spacing", (False, False): ", not given the spacing"}
    words[None, True] = ", images resized back"
    return [
        (words[curve["told"], curve["resized"]], {point["size"]: point["loss"] for point in curve["points"]})
        for curve in report["curves"]
        if str(run) in curve["runs"]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = make_options().parse_args(arguments)
    if options.page:
        make_page(options)
        return 0
    problems = [*missing_packages("PIL", "lightning_fabric"), *check_photographs(options.imagenet)]
    return run_recipe(make_steps(options), problems, options)


if __name__ == "__main__":
    sys.exit(main())
