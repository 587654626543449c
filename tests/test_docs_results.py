"""Numbers that pages quote are those of the report they point to."""

import json
import re
from pathlib import Path
from statistics import fmean

import pytest
import torch

import torchsonic
from torchsonic.lab.metrics import paper_results
from torchsonic.lab.runs.protocols import OWN
from torchsonic.lab.runs.synthetic import SyntheticConfig, apply_preset, make_model
from torchsonic.lab.training import TrainingConfig
from torchsonic.models import model_entry, pretrained_folder
from torchsonic.nn.init import initial_directions

ROOT = Path(__file__).parents[1]
OWN_TRAINING = TrainingConfig()
ROWS = {
    "as trained": "clean",
    "whole scene on 48 x 48": "resolution 0.75",
    "whole scene on 96 x 96": "resolution 1.5",
    "rescaled by 0.75": "rescaling 0.75",
    "rescaled by 1.5 (cut at the border)": "rescaling 1.5",
}


@pytest.fixture(scope="module")
def report():
    return json.loads((ROOT / "results" / "synthshape" / "report.json").read_text())


def cell(report, group, row, model):
    """Our score, the paper's, and how many runs ours is the mean of."""
    names = [column["name"] for column in report["table"]["columns"]]
    labels = {row, row.replace("given the spacing", "told spacing")}  # the second in reports before 0.2.0
    (found,) = [entry for entry in report["table"]["rows"] if entry["group"] == group and entry["row"] in labels]
    return found["cells"][names.index(model)]


def ours(report, row, model, group="SynthShape: Dice"):
    return f"{cell(report, group, row, model)['ours']['mean']:.3f}"


def read_page(name):
    return " ".join((ROOT / "docs" / name).read_text().split())


def test_what_the_spacing_brings_is_what_was_measured(report):
    page = (ROOT / "docs" / "spacing.md").read_text()
    for words, row in ROWS.items():
        (line,) = re.findall(rf"^\| {re.escape(words)} \|(.*)\|$", page, flags=re.MULTILINE)
        told = None if row == "clean" else f"{row}, given the spacing"
        expected = [ours(report, row, "ConvNet")]
        for model in ("S4ND", "SonicNet"):
            expected += [ours(report, row, model), "" if told is None else ours(report, told, model)]
        assert [number.strip() for number in line.split("|")] == expected, words
    runs = {model: cell(report, "SynthShape: Dice", "clean", model)["ours"]["count"] for model in ("SonicNet", "S4ND")}
    assert runs == {"SonicNet": 3, "S4ND": 1}, "the page names the seeds"


def test_the_page_on_the_paper_says_what_the_report_says(report):
    page = read_page("paper.md")
    rank = re.match(
        r"SonicNet is first or second in (\d+) of (\d+) rows .* among 6 models.* (?:it is so|this holds) in (\d+) of",
        report["rank"],
    )
    assert rank is not None
    first, rows, papers = rank.groups()
    sentence = (
        f"first or second in {first} of {rows} rows among six models; in the paper, among the same ones, in {papers}"
    )
    assert sentence in page
    place = [column["name"] for column in report["table"]["columns"]].index("SonicNet")
    apart = {
        entry["row"]: entry["cells"][place]["difference"]
        for entry in report["table"]["rows"]
        if entry["group"] == "SynthShape: Dice" and entry["cells"][place]["difference"] is not None
    }
    lowest, highest = min(apart, key=apart.get), max(apart, key=apart.get)
    assert (lowest, highest) == ("rescaling 1.5", "noise 0.3")
    assert (
        f"between {-apart[lowest]:.2f} of Dice below the paper's (rescaling by 1.5) and {apart[highest]:.2f} above"
        in page
    )
    group = "HalliGalli: Dice"
    clean, noisy = (float(ours(report, row, "SonicNet", group)) for row in ("clean", "noise 0.1"))
    assert f"One Sonic block reaches {clean:.2f}, and {noisy:.2f} under noise" in page
    assert f"NIFF stays at chance here ({float(ours(report, 'clean', 'NIFF', group)):.2f};" in page
    assert f"{float(ours(report, 'clean', 'ViT')):.2f} on clean shapes" in page
    rows = {(row["test"], row["level"]): row["values"] for row in paper_results()["synthshape_halligalli"]["rows"]}
    quiet, loud = rows["halligalli", 0.0], rows["halligalli", 0.1]
    assert f"under noise (paper {quiet['SonicNet']:.2f} and {loud['SonicNet']:.2f})" in page
    assert f"paper {quiet['NIFF']:.2f}), and so does ConvNet" in page


PHOTOGRAPHS = ROOT / "results" / "classification"
NETWORKS = {
    "`resnet50`, width 24": ("resnet50", None, False),
    "`resnet50_gfnet`, width 24": ("resnet50_gfnet", None, False),
    "`resnet50_s4nd`, width 24": ("resnet50_s4nd", False, False),
    "the same, told the spacing": ("resnet50_s4nd", True, False),
    "`resnet50_sonic`, width 12, told": ("resnet50_sonic", True, False),
    "`sonic_tiny`, told": ("sonic_tiny", True, False),
    "`resnet50`, images resized back to 128 px": ("resnet50", None, True),
    "`resnet50_gfnet`, images resized back": ("resnet50_gfnet", None, True),
}


@pytest.fixture(scope="module")
def photographs():
    """Curves of the report with controls by network, told and resized; and results of the runs by network."""
    report = json.loads((PHOTOGRAPHS / "control" / "report.json").read_text())
    curves = {(curve["model"].split()[0], curve["told"], curve["resized"]): curve for curve in report["curves"]}
    return curves, {run["results"]["config"]["model"]: run["results"] for run in report["runs"]}


def losses(curve):
    return {point["size"]: point["loss"] for point in curve["points"] if point["size"] != curve["train_size"]}


def test_the_table_of_photographs_is_that_of_the_report(photographs):
    curves, runs = photographs
    page = (ROOT / "docs" / "images.md").read_text()
    lines = page[page.index("## Ten classes, measured") :].split("\n\n")[3].splitlines()[2:]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    seen, before = set(), ""
    for words, parameters, flops, top1, *lost in rows:
        key = (before, False, False) if words == "the same, not told" else NETWORKS[words]
        model, _, resized = key
        assert lost == [f"{loss:.1f}" for loss in losses(curves[key]).values()], words
        if model != before and not resized:
            numbers = [runs[model]["parameters"] / 1e6, runs[model]["flops"] / 1e9, 100 * runs[model]["top1"]]
            assert [parameters, flops, top1] == [f"{n:.{d}f}" for n, d in zip(numbers, (3, 3, 1), strict=True)], words
        seen.add(key)
        before = model
    assert seen == set(curves), "no curve is left out"


def test_what_is_said_of_photographs_is_what_was_measured(photographs):
    curves, runs = photographs
    told, page = losses(curves["resnet50_sonic", True, False]), read_page("images.md")
    deaf = [losses(curves[name, None, False]) for name in ("resnet50", "resnet50_gfnet")]
    for size, loss in told.items():
        least = min(lost[size] for lost in deaf)
        assert loss < least, size
        assert loss <= least / 2, size
    resized = [losses(curves[name, None, True]) for name in ("resnet50", "resnet50_gfnet")]
    assert all(min(lost[size] for lost in resized) < loss for size, loss in told.items())
    assert max(lost[size] for lost in resized for size in told if size > 64) <= 0.5
    control = f"GFNet loses {resized[1][64]:.1f} % at 64 px against {told[64]:.1f} % for the told network"
    assert f"{control}, which is first at no size" in page
    waits = sorted(100 * run["data_wait"] for run in runs.values())
    assert f"their share: {waits[0]:.1f} to {waits[-1]:.1f} % with one worker" in page
    minutes = sorted(run["seconds"] / 60 for run in runs.values())
    assert f"on one core each, for {minutes[0]:.0f} to {minutes[-1]:.0f} minutes" in page
    means = {}
    for name in runs:
        log = [json.loads(line) for line in (PHOTOGRAPHS / "runs" / name / "log.jsonl").read_text().splitlines()]
        last = [entry["loss"] for entry in log if entry["step"] > 1800 and "loss" in entry]
        means[name] = sum(last) / len(last)
    tiny, others = means.pop("sonic_tiny"), sorted(means.values())
    assert f"its training loss is {tiny:.2f}, against {others[0]:.2f} to {others[-1]:.2f} for the ResNets" in page
    ours, plain = runs["resnet50_sonic"], runs["resnet50"]
    row = "{:.1f} % with {:.3f} M parameters; ResNet {:.1f} % with {:.3f} M".format(
        *(n for run in (ours, plain) for n in (100 * run["top1"], run["parameters"] / 1e6))
    )
    assert row in read_page("measured.md")
    best, plain = f"{told[96]:.1f} % given the spacing", deaf[0][96]
    control = f"ResNet {plain:.1f} %, but {max(lost[96] for lost in resized):.1f} % at most if images are resized"
    assert f"{best} | {control}" in (ROOT / "README.md").read_text()


def test_both_reports_on_photographs_tell_of_the_same_runs(photographs):
    curves, runs = photographs
    plain = json.loads((PHOTOGRAPHS / "report.json").read_text())
    for curve in plain["curves"]:
        same = curves[curve["model"].split()[0], curve["told"], curve["resized"]]
        assert curve["points"] == same["points"], curve["model"]
    for name, results in runs.items():
        saved = json.loads((PHOTOGRAPHS / "runs" / name / "results.json").read_text())
        assert saved == results, name


def test_the_ratios_of_costs_are_those_of_the_bench_and_of_the_papers_figure():
    page, results = (ROOT / "docs" / "paper.md").read_text(), paper_results()
    lines = (ROOT / "results" / "bench" / "scaling.md").read_text().splitlines()
    measured = {int(cells[1]): cells for line in lines if re.match(r"\| +\d+ \|", line) for cells in [line.split("|")]}
    for words, name, size, column in (
        ("time at 64 px", "block_runtime_ms", 64, 2),
        ("time at 224 px", "block_runtime_ms", 224, 2),
        ("time at 512 px", "block_runtime_ms", 512, 2),
        ("peak memory, 128 px and above", "block_peak_memory_mb", 224, 7),
    ):
        place = results[name]["resolutions"].index(size)
        theirs = results[name]["SONIC"][place] / results[name]["Conv3x3"][place]
        assert f"| {words} | {measured[size][column].strip()} | {theirs:.2f} |" in page


def test_what_the_page_on_the_paper_says_of_operators_was_measured():
    operators = json.loads((ROOT / "results" / "operators" / "report.json").read_text())["operators"]
    errors = {one["name"]: one["errors"] for one in operators}
    selectivity = {one["name"]: one["selectivity"] for one in operators}
    told = ("shift", "axes", "finer, told", "larger", "turned")
    for name in ("SONIC", "continuous FNO"):
        assert max(errors[name][law] for law in told) < 1e-3, name
    assert selectivity["SONIC"] > 0.1 > selectivity["continuous FNO"]
    for name in ("non-local block", "A2 double attention"):
        assert max(error for error in errors[name].values() if error is not None) < 1e-3, name
        assert selectivity[name] < 0.01, name
    assert errors["FNO"]["finer, not told"] < 1e-3 < 0.5 < errors["FNO"]["larger"]
    assert min(errors["SONIC, paper's notes"][law] for law in ("shift", "axes", "finer, told", "turned")) > 0.1


def test_what_the_page_on_the_paper_says_of_our_side_is_so():
    for name in ("sonicnet3d.paper", "resnet50_sonic.paper", "synthshape_sonicnet.paper"):
        for model, variant in ((name, "paper"), (f"{name}_size", "exact")):
            if model in torchsonic.list_models():
                with torch.device("meta"):
                    layers = dict(torchsonic.nn.sonic_layers(torchsonic.create_model(model)))
                assert {layer.variant for layer in layers.values()} == {variant}, model
                assert all(("released" in layer.bank) == (variant == "paper") for layer in layers.values()), model
    directions = initial_directions(64, 2, half_circle=True)
    assert (directions[:, 1] > 0).all()
    assert (directions[:, 0] < 0).any()
    assert torchsonic.SonicConv2d(2, 2, num_modes=2, variant="paper").input_noise == 0
    assert OWN.presets["paper"]["training"] == {"steps": 50_000, "batch": 32}
    assert OWN.presets["quick"]["training"] == {"steps": 600, "batch": 8}
    assert (OWN_TRAINING.weight_decay, OWN_TRAINING.decay, OWN_TRAINING.schedule) == (1e-4, "matrices", "one-cycle")
    assert (OWN_TRAINING.mode_lr_scale, OWN_TRAINING.clip) == (0.01, 1.0)
    vit, convnet = (torchsonic.create_model(f"synthshape_{name}") for name in ("vit", "convnet"))
    assert vit.backbone.tokens.positions.shape == (1, 64, 4, 4)
    assert [part.kernel_size for part in convnet.backbone if hasattr(part, "kernel_size")] == [(3, 3)] * 4
    assert model_entry("synthshape_sonicnet")[0].build(**model_entry("synthshape_sonicnet")[1]).arguments["width"] == 64


def test_the_released_width_gives_the_printed_counts_of_three_networks_and_ours_of_all():
    (counts,) = [
        row["values"] for row in paper_results()["synthshape_halligalli"]["rows"] if row["test"] == "params_millions"
    ]
    met = {"own": set(), "released": set()}
    for protocol, names in met.items():
        for name in counts:
            config = apply_preset(SyntheticConfig(model=name.lower(), protocol=protocol), "paper")
            millions = sum(p.numel() for p in make_model(config).parameters()) / 1e6
            names |= {name} if round(millions, 3) == counts[name] else set()
    assert met["own"] == set(counts)
    assert met["released"] - {"S4ND"} == {"SonicNet", "ConvNet", "NIFF"}, "S4ND is ours in both"
    assert f"the printed {counts['SonicNet']} M parameters" in read_page("paper.md")


def test_what_the_page_on_the_paper_says_of_initial_banks_was_measured():
    banks = json.loads((ROOT / "results" / "bench" / "init.json").read_text())["banks"]
    still = [score for one in banks if "still" in one["bank"] for score in one["far"]]
    moving = [score for one in banks if "still" not in one["bank"] for score in one["far"]]
    page = read_page("paper.md")
    assert f"(balanced accuracy {min(still):.2f} to {max(still):.2f}, chance 0.5)" in page
    assert f"oscillating banks reach {min(moving):.2f} to {max(moving):.2f}" in page


def test_the_study_of_hippocampi_says_what_the_readme_does():
    models = json.loads((ROOT / "results" / "studies" / "hippocampus" / "report" / "report.json").read_text())["models"]
    shares = []
    for name in ("sonicunet", "unet"):
        patients = models[name]["values"]["Dice"].values()
        final = ROOT / "results" / "studies" / "hippocampus" / "final" / name / "seed0" / "results.json"
        shares += [sum(patients) / len(patients), json.loads(final.read_text())["parameters"] / 1e6]
    row = "{:.3f} with {:.3f} M parameters | MONAI's U-Net is better, {:.3f} with {:.3f} M".format(*shares)
    assert row in (ROOT / "README.md").read_text()
    assert row in read_page("measured.md")


def test_readme_and_page_say_what_packaged_hippocampi_of_equal_size_score():
    sonic, unet = (
        json.loads((pretrained_folder(name) / "results.json").read_text())
        for name in ("hippocampus", "hippocampus_conv")
    )
    settings = [run["config"]["training"] | {"cases": [case["case"] for case in run["cases"]]} for run in (sonic, unet)]
    assert settings[0] == settings[1]
    assert [len(sonic["cases"]), settings[0]["steps"], settings[0]["batch"], settings[0]["seed"]] == [40, 1500, 4, 0]
    row = "{:.3f} with {:.3f} M parameters | MONAI's U-Net is better, {:.3f} with {:.3f} M |"
    shares = (number for run in (sonic, unet) for number in (run["dice"], run["parameters"] / 1e6))
    assert f"one seed | {row.format(*shares)}" in (ROOT / "README.md").read_text()
    sentence = f"Sonic {sonic['dice']:.3f} with {sonic['parameters']:,} parameters, MONAI's U-Net "
    assert sentence + f"{unet['dice']:.3f} with {unet['parameters']:,}." in read_page("measured.md")


def test_the_study_of_table_1_says_what_readme_and_page_do():
    folder = ROOT / "results" / "studies" / "table1"
    report = json.loads((folder / "report" / "report.json").read_text())
    numbers = {number["name"]: number["value"] for number in report["numbers"]}

    def dice(model, row):
        values = report["models"][model]["values"][row].values()
        return sum(values) / len(values)

    def size(model):
        return json.loads((folder / "final" / model / "seed0" / "results.json").read_text())["parameters"]

    rivals = [model for model, found in report["models"].items() if not found["problem"] and "rotated" not in model]
    rows = [row for row in report["models"]["sonicnet"]["values"] if row != "clean"]
    firsts = [max(rivals, key=lambda model, row=row: dice(model, row)) for row in rows]
    readme, page = (ROOT / "README.md").read_text(), read_page("measured.md")
    ours = f"SonicNet or OrbitNet first in {numbers['synthshape.rows_first']}"
    counts = [numbers[f"synthshape.rows_first_{name}"] for name in ("sonicnet", "orbitnet")]
    assert counts == [firsts.count("sonicnet"), firsts.count("orbitnet")]
    assert "{}; SonicNet alone in {}, OrbitNet in {} |".format(ours, *counts) in page
    others = f"GFNet first in {firsts.count('gfnet')}, ConvNet in {firsts.count('convnet')};"
    clean = {model: f"{dice(model, 'clean'):.3f}" for model in rivals}
    assert f"{ours} | {others} on clean images GFNet {clean['gfnet']}, Sonic {clean['orbitnet']} |" in readme
    at_best = f"with this small budget, in {numbers['synthshape.rows_at_paper_maximum']} |"
    assert f"{others} at or above the best published value, {at_best}" in page
    assert f"SonicNet {clean['sonicnet']} ({size('sonicnet'):,} parameters)" in page
    assert f"OrbitNet {clean['orbitnet']} ({size('orbitnet'):,})" in page
    assert f"GFNet {clean['gfnet']}, S4ND {clean['s4nd']}, ConvNet {clean['convnet']} |" in page
    turned = {model: f"{dice(model, 'rotation 30'):.3f}" for model, own in report["models"].items() if own["rate"]}
    trained = f"SonicNet {turned['sonicnet_rotated']}, ConvNet {turned['convnet_rotated']}"
    assert f"OrbitNet {turned['orbitnet']}, trained on upright images |" in page
    assert f"{trained}; upright ConvNet {turned['convnet']} |" in page
    assert f"OrbitNet {turned['orbitnet']}, trained on upright images, {size('orbitnet'):,} parameters |" in readme
    assert f"{trained} ({size('convnet'):,} parameters); upright ConvNet {turned['convnet']} |" in readme


def test_the_page_says_what_the_study_of_rotated_digits_has_found():
    models = json.loads((ROOT / "results" / "studies" / "rotated_mnist" / "report" / "report.json").read_text())[
        "models"
    ]
    found = {model: own["values"]["error, %"].values() for model, own in models.items()}
    assert all(len(values) == 3 for values in found.values())
    errors = {model: f"{sum(values) / len(values):.2f} %" for model, values in found.items()}
    runs = ROOT / "results" / "studies" / "rotated_mnist" / "final"
    sizes = {m: json.loads((runs / m / "seed0" / "results.json").read_text())["parameters"] for m in found}
    page, orbits = read_page("measured.md"), [f"{errors[m]} with {sizes[m]:,}" for m in ("orbit", "orbit_wide")]
    assert "| OrbitNet {} parameters, {} | ".format(*orbits) in page
    assert f"| level with steerable convolutions (escnn), {errors['steerable']} with {sizes['steerable']:,}; " in page
    assert f"a CNN of equal parameters {errors['cnn']}, a CNN of equal time {errors['cnn_time']} |" in page


def test_the_page_on_orientation_says_what_turned_hippocampi_scored():
    folder = ROOT / "results" / "studies" / "orientation_hippocampus" / "report"
    models = json.loads((folder / "report.json").read_text())["models"]

    def mean(model, measure):
        return fmean(models[model]["values"][measure].values())

    page, lost = read_page("orientation.md"), {}
    for model, way, title in (
        ("sonicunet", ", orientation given", "SonicUNet, given the affine"),
        ("sonicunet", "", "SonicUNet, without it"),
        ("sonicunet", ", resampled", "SonicUNet, scans resampled"),
        ("orbitnet", ", orientation given", "OrbitNet, given the affine"),
        ("orbitnet", "", "OrbitNet, without it"),
        ("orbitnet_turned", "", "OrbitNet, trained on rotated scans, without it"),
        ("unet", "", "MONAI's U-Net, without it"),
        ("unet", ", resampled", "MONAI's U-Net, scans resampled"),
        ("unet_turned", "", "MONAI's U-Net, trained on rotated scans, without it"),
    ):
        turned = " / ".join(f"{mean(model, f'rotated by {angle}{way}'):.3f}" for angle in (15, 30, 45, 90))
        plain, stored = f"{mean(model, 'Dice'):.3f}", f"{mean(model, f'other axis orders{way}'):.3f}"
        assert f"| {title} | {plain} | {stored} | {turned} |" in page
        lost[title] = 100 * (mean(model, "Dice") - mean(model, f"rotated by 45{way}"))
    told, untold = (lost[f"SonicUNet, {how}"] for how in ("given the affine", "without it"))
    assert f"45 degrees about any axis cost {told:.1f} points instead of {untold:.0f}." in page
    assert f"OrbitNet alone still loses {lost['OrbitNet, without it']:.0f} points at 45 degrees" in page
    orbit, unet = (mean(model, "rotated by 45") for model in ("orbitnet_turned", "unet_turned"))
    gain = 100 * (orbit - unet)
    assert f"is {gain:.0f} points behind at 45 degrees" in page
    assert models["unet_turned"]["problem"].endswith("the loss is still falling steeply")
    resampled = f"{mean('unet', 'rotated by 45, resampled'):.3f}"
    readme, all_numbers = (ROOT / "README.md").read_text(), read_page("measured.md")
    words = f"| OrbitNet {orbit:.3f} with 8,449 parameters | U-Net {unet:.3f} with "
    assert words in readme
    assert words in all_numbers
    assert f"a U-Net on resampled scans has {resampled} |" in readme
    assert f"MONAI's U-Net {resampled} |" in all_numbers
    assert f"SonicUNet {mean('sonicunet', 'rotated by 45, orientation given'):.3f} given the affine" in all_numbers


def test_the_page_on_masks_says_what_the_packaged_network_scores():
    folder = pretrained_folder("nuclei")
    assert folder is not None
    results = json.loads((folder / "results.json").read_text())
    words = (
        f"({results['parameters']:,} parameters), works at any rotation, and has a Dice of {results['dice']:.3f} on "
    )
    assert words + f"{len(results['cases'])} images" in read_page("masks.md")


def test_the_page_on_photographs_says_what_the_packaged_network_scores():
    folder = pretrained_folder("imagenette")
    assert folder is not None
    results, page = json.loads((folder / "results.json").read_text()), read_page("images.md")
    assert f"({results['parameters']:,} parameters, 4,000 steps of 32 at 128 px, seed 0)" in page
    assert f"Top-1 in % is {100 * results['top1']:.1f} at 128 px" in page
    for way, title in (("told", "given the spacing"), ("back", "images resized to 128 px first")):
        assert f"| {title} | {' | '.join(f'{100 * row[way]:.1f}' for row in results['rows'])} |" in page
    assert " | ".join(f"{100 * row['accuracy']:.1f}" for row in results["rows"]) in page


def test_the_page_on_orientation_says_what_rotated_digits_scored():
    page = read_page("orientation.md")
    for study, digits in (("upright_mnist", 1), ("rotated_mnist", 2)):
        folder = ROOT / "results" / "studies" / study / "report"
        report = json.loads((folder / "report.json").read_text())["models"]
        errors = {}
        for model, own in report.items():
            values = next(iter(own["values"].values())).values()
            errors[model] = f"{sum(values) / len(values):.{digits}f}"
        control = f"trained on rotated digits {errors['cnn_turned']}" if study == "upright_mnist" else ""
        control = control or f"of equal time {errors['cnn_time']}"
        row = f"| {errors['orbit']} | {errors['steerable']} | {errors['cnn']}; {control} |"
        assert row in page
        if study == "upright_mnist":
            words = "OrbitNet {orbit} % | steerable convolutions (escnn) {steerable} %, CNN {cnn} %; ".format(**errors)
            words += f"the CNN {control} % |"
            assert words in (ROOT / "README.md").read_text()
            assert words in read_page("measured.md")
