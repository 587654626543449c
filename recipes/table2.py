"""Table 2 of the paper: KiTS and ACDC through nnU-Net, five folds, SonicNet beside ResEnc L.

``python -m recipes.table2 --acdc DIR --kits DIR --out OUT``; one of the two data sets is enough. See docs/recipes.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recipes.layouts import DATA_SETS, check_cases
from recipes.networks import Dataset, Workplace, add_networks
from recipes.page import Numbers, beside_paper, publish, read_json
from recipes.runner import Problem, Step, add_folder, make_parser, missing_packages, run_recipe
from torchsonic.lab.metrics import paper_results
from torchsonic.lab.metrics.volumes import mean_of
from torchsonic.lab.report import Column, Section

__all__ = ["make_page", "make_steps"]

DATASETS = {"kits": Dataset(220, "KiTS2023"), "acdc": Dataset(27, "ACDC")}
CONVERT_KITS = "nnunetv2.dataset_conversion.Dataset220_KiTS2023"
CLASSES = {
    "kits": ("kidney=1,2,3", "masses=2,3", "tumour=2"),  # regions, as the challenge scores them
    "acdc": ("right ventricle", "myocardium", "left ventricle"),
}
PAPER_ROWS = {"nnunet": "nnU-Net ResEnc L (rerun)", "sonicnet": "SonicNet"}
PROTOCOL = (
    "nnU-Net's {plans} plans, preprocessing, augmentation and postprocessing; {epochs} x {iterations} iterations, SGD "
    "{learning_rate}, weight decay {weight_decay}, batch {batch_size}, the checkpoint that was best in validation; "
    "number of folds: {folds}."
)


def make_options() -> argparse.ArgumentParser:
    """The options."""
    parser = make_parser("table2", __doc__)
    for name in DATASETS:
        add_folder(parser, name, DATA_SETS[name].title)
    add_networks(parser)
    return parser


def make_steps(options: argparse.Namespace) -> list[Step]:
    """Every command, from the data to the page."""
    place, steps = Workplace(options), []
    chosen = [name for name in DATASETS if getattr(options, name) is not None]
    steps.append(place.install())
    for name in chosen:
        dataset = DATASETS[name]
        steps.append(place.gather(name, getattr(options, name)))
        if name == "kits":  # nnU-Net knows its regions and orientation; cases are patients, which it splits itself
            words = ["python", "-m", CONVERT_KITS, place.out / "data" / name, "-d", dataset.number]
            steps += [Step(f"{name}: convert", words, place.variables()), place.plan(dataset)]
        else:
            steps += [place.convert(name, dataset, ["cineMRI"], ["RV", "MYO", "LV"]), place.plan(dataset)]
            steps.append(place.split(dataset, DATA_SETS[name].patient or ""))
        steps += place.train(dataset)
        for network in options.networks:
            steps += place.postprocess(dataset, network)
        labels = place.preprocessed / dataset.folder / "gt_segmentations"
        steps.append(place.evaluate(dataset.name, labels, ["--classes", *CLASSES[name]]))
    folders = [word for name in chosen for word in (f"--{name}", getattr(options, name))]
    return [*steps, place.page("table2", folders)]


def make_page(options: argparse.Namespace) -> None:
    """The table from the scores of all steps."""
    place, paper = Workplace(options), paper_results()["medical_3d"]
    chosen = [name for name in DATASETS if getattr(options, name) is not None]
    rows, data = [], {}
    for network in options.networks:
        ours: list[float | None] = []
        for name in DATASETS:
            ours += _scores(place, DATASETS[name], network) if name in chosen else [None, None]
        costs = [place.costs(DATASETS[name], network) for name in chosen]
        # The paper does not say for which of the two it gives cost; ours is that of the one that took most.
        ours += max(costs, key=lambda cost: cost[1] or 0)
        rows.append((place.title(network), ours, paper["rows"].get(PAPER_ROWS.get(network), [None] * len(ours))))
        data[network] = dict(zip(paper["columns"], ours, strict=True))
    others = {name: numbers for name, numbers in paper["rows"].items() if name not in PAPER_ROWS.values()}
    columns = [Column(score, group) for group in ("KiTS", "ACDC") for score in ("DSC", "NSD")]
    notes = [
        "DSC and NSD (2 mm) in percent: mean over the cases of a fold for each class, then over classes and folds.",
        "nnU-Net's ResEnc L has 102 M parameters at six stages; the paper's 31.12 M are those of its plain plans.",
        "Time is that of one fold, memory what PyTorch reserved on the GPU, both of the data set that took longer.",
    ]
    table = beside_paper(
        "Table 2",
        [*columns, "parameters, M", "training, h", "GPU memory, GB"],
        rows,
        reported=others,
        digits=[2, 2, 2, 2, 2, 1, 1],
        notes=notes,
    )
    publish(
        options.out / "report",
        title="Table 2: KiTS and ACDC",
        protocol=place.protocol(PROTOCOL),
        sections=[Section("Table 2", [table])],
        data={"networks": data, "paper": paper},
        smoke=place.is_smoke,
        partial=options.partial,
    )


def _scores(place: Workplace, dataset: Dataset, network: str) -> Numbers:
    """Dice and NSD in percent."""
    report = read_json(place.out / "evaluation" / dataset.name / "report.json")
    (model,) = [model for model in report["models"] if Path(model["source"]).name == network]
    splits = read_json(place.preprocessed / dataset.folder / "splits_final.json")
    found = []
    for measure in ("dice", "nsd"):
        folds = [[model["cases"][name]["scores"] for name in splits[fold]["val"]] for fold in place.folds]
        means = [
            mean_of(mean_of(_number(row[measure]) for row in rows) for rows in zip(*cases, strict=True))
            for cases in folds
        ]
        found.append(100 * mean_of(means))
    return found


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = make_options()
    options = parser.parse_args(arguments)
    chosen = {name: getattr(options, name) for name in DATASETS if getattr(options, name) is not None}
    if not chosen:
        parser.error("give --kits, --acdc or both")
    if options.page:
        make_page(options)
        return 0
    problems: list[Problem] = missing_packages("nnunetv2", "nibabel", "SimpleITK", "monai")
    for name, folder in chosen.items():
        problems += check_cases(name, folder)
    return run_recipe(make_steps(options), problems, options)


if __name__ == "__main__":
    sys.exit(main())
