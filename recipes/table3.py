"""Table 3 of the paper: trained on PI-CAI through nnU-Net, tested on Prostate158 and PROMIS, lesions counted.

``python -m recipes.table3 --picai DIR --prostate158 DIR --promis DIR --out OUT``; one of the two tests is enough. See
docs/recipes.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recipes.layouts import DATA_SETS, check_cases
from recipes.networks import Dataset, Workplace, add_networks
from recipes.page import beside_paper, publish, read_json
from recipes.runner import Problem, Step, absolute_path, add_folder, make_parser, missing_packages, run_recipe
from torchsonic.lab.metrics import paper_results
from torchsonic.lab.metrics.detection import MEASURES
from torchsonic.lab.report import Section, Table

__all__ = ["make_page", "make_steps"]

PICAI = Dataset(500, "PICAI")
TESTS = ("prostate158", "promis")
PAPER_ROWS = {"nnunet": "nnU-Net", "sonicnet": "SonicNet"}
HEADINGS = ("AUROC", "AP", "F1", "sensitivity", "precision")
PROTOCOL = (
    "Trained on PI-CAI with nnU-Net's {plans} plans, {epochs} x {iterations} iterations, SGD {learning_rate}, weight "
    "decay {weight_decay}, batch {batch_size}, the checkpoint that was best in validation; folds that predict "
    "together: {folds}."
)
NOTES = (
    "Lesions are counted by picai_eval: candidates round peaks of probability, matched at an intersection over union "
    "of 0.1; F1, sensitivity and precision at confidence 0.5.",
)


def make_options() -> argparse.ArgumentParser:
    """The options."""
    parser = make_parser("table3", __doc__)
    add_folder(parser, "picai", DATA_SETS["picai"].title, required=True)
    for name in TESTS:
        add_folder(parser, name, DATA_SETS[name].title)
    parser.add_argument(
        "--channels",
        nargs=3,
        default=["T2W", "ADC", "HBV"],
        metavar="NAME",
        help="nnU-Net's names of the three channels, T2W ADC HBV by default; one named CT keeps its units",
    )
    parser.add_argument(
        "--splits", type=absolute_path, help="nnU-Net's splits.json to use; patients are dealt out otherwise"
    )
    add_networks(parser)
    return parser


def chosen_tests(options: argparse.Namespace) -> list[str]:
    """Data sets that there are."""
    return [name for name in TESTS if getattr(options, name) is not None]


def make_steps(options: argparse.Namespace) -> list[Step]:
    """Every command, from the data to the page."""
    place, tests = Workplace(options), chosen_tests(options)
    steps = [place.install(), place.gather("picai", options.picai)]
    steps += [place.convert("picai", PICAI, options.channels, ["csPCa"]), place.plan(PICAI)]
    steps += [place.split(PICAI, DATA_SETS["picai"].patient or "", options.splits), *place.train(PICAI)]
    for name in tests:
        steps.append(place.gather(name, getattr(options, name)))
        steps += [place.predict(PICAI, network, name) for network in options.networks]
        labels = place.out / "data" / name / "labels"
        steps.append(place.evaluate(name, labels, ["--lesions", "1", "--classes", "csPCa"]))
    folders = ["--picai", options.picai, *(word for name in tests for word in (f"--{name}", getattr(options, name)))]
    return [*steps, place.page("table3", folders)]


def make_page(options: argparse.Namespace) -> None:
    """The tables from the counts of all tests."""
    place, paper = Workplace(options), paper_results()["external_validation"]
    tables: list[Table] = []
    data = {}
    for name in chosen_tests(options):
        report = read_json(place.out / "evaluation" / name / "report.json")
        models = {Path(model["source"]).name: model for model in report["models"]}
        rows = []
        for network in options.networks:
            overall = models[network]["lesions"]["overall"]
            ours = [overall[measure]["value"] for measure in MEASURES]
            column = paper["order"].index(PAPER_ROWS[network]) if network in PAPER_ROWS else None
            its = [None if column is None else paper[name][measure][column] for measure in MEASURES]
            rows.append((place.title(network), ours, its))
            data[f"{name}, {network}"] = overall
        title = f"{DATA_SETS[name].title}, {len(report['cases'])} cases"
        tables.append(beside_paper(title, HEADINGS, rows, digits=3, notes=NOTES))
    parameters = [
        (
            place.title(network),
            [place.costs(PICAI, network)[0]],
            [paper["params_millions"].get(PAPER_ROWS.get(network, ""))],
        )
        for network in options.networks
    ]
    tables.append(beside_paper("Size", ["parameters, M"], parameters))
    publish(
        options.out / "report",
        title="Table 3: prostate cancer in other hospitals",
        protocol=place.protocol(PROTOCOL),
        sections=[Section(table.title, [table]) for table in tables],
        data={"tests": data, "paper": paper},
        smoke=place.is_smoke,
        partial=options.partial,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = make_options()
    options = parser.parse_args(arguments)
    if not chosen_tests(options):
        parser.error("give --prostate158, --promis or both")
    if options.page:
        make_page(options)
        return 0
    problems: list[Problem] = missing_packages("nnunetv2", "nibabel", "SimpleITK", "monai", "picai_eval")
    for name in ("picai", *chosen_tests(options)):
        problems += check_cases(name, getattr(options, name))
    if options.splits is not None and not options.splits.is_file():
        problems.append(Problem(f"--splits: there is no file {options.splits}"))
    return run_recipe(make_steps(options), problems, options)


if __name__ == "__main__":
    sys.exit(main())
