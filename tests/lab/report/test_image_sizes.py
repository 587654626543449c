"""What a report on image sizes says of runs made by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from torchsonic.lab.metrics.classification import accuracy_interval, degradation_interval
from torchsonic.lab.report.image_sizes import SizeReport
from torchsonic.lab.report.image_sizes.page import accuracy_table, loss_table, size_warnings
from torchsonic.lab.report.image_sizes.results import RunFacts, make_curves, verdict_lines
from torchsonic.lab.runs.images import ImagesConfig
from torchsonic.lab.training import TrainingConfig

N = 1000


def hits(share: float, shift: int = 0) -> np.ndarray:
    """The given share of images, from the first on or from another."""
    return np.roll(np.arange(N) < round(share * N), shift)


def make_run(model: str, shares: dict[int, float], *, told=None, seed=0, parameters=1_000_000, shift=0, **options):
    """A run whose accuracy at each size is given, not told and, where it can be, told the spacing."""
    training = TrainingConfig(seed=seed, **options.pop("training", {}))
    config = ImagesConfig(**{"model": model, "image_size": 128, "training": training, **options})
    found = {}
    for kind, values in ((False, shares), (True, told)):
        for size, share in (values or {}).items():
            found[size, kind] = (hits(share, shift), hits(min(1.0, share + 0.1), shift))
    return RunFacts(Path(f"{model}{seed}"), config, {"parameters": parameters}, told is not None, 10, found)


def make_report(*runs: RunFacts) -> SizeReport:
    return SizeReport(tuple(make_curves(runs)), runs, N, {}, {})


PLAIN = make_run("resnet50", {96: 0.56, 128: 0.80, 160: 0.72}, parameters=10_000_000)
SONIC = make_run("sonic_tiny", {96: 0.5, 128: 0.79, 160: 0.6}, told={96: 0.711, 128: 0.79, 160: 0.79})


CONTROL = {96: 0.76, 128: 0.80, 160: 0.79}


def test_curves_have_the_accuracy_and_loss_of_their_runs():
    curves = {(curve.model, curve.told): curve for curve in make_curves([PLAIN, SONIC])}
    assert list(curves) == [("resnet50", None), ("sonic_tiny", False), ("sonic_tiny", True)]
    point = curves["resnet50", None].at(96)
    assert (point.top1, point.top5, point.spread) == (0.56, 0.66, None)
    assert point.loss == pytest.approx(30.0)
    assert point.loss_interval[0] < 30 < point.loss_interval[1]
    assert curves["sonic_tiny", True].at(96).loss == pytest.approx(10.0)
    assert curves["sonic_tiny", True].at(128).loss_interval == (0.0, 0.0)
    assert curves["resnet50", None].at(100) is None


def test_seeds_are_pooled_and_nothing_else():
    second = make_run("resnet50", {96: 0.60, 128: 0.82, 160: 0.72}, seed=1)
    (curve,) = make_curves([PLAIN, second])
    assert len(curve.runs) == 2
    assert curve.at(128).top1 == pytest.approx(0.81)
    assert curve.at(128).spread == pytest.approx(0.02 / np.sqrt(2))
    longer = make_run("resnet50", {96: 0.6, 128: 0.9, 160: 0.8}, seed=2, training={"steps": 9000})
    cropped = make_run("resnet50", {96: 0.6, 128: 0.9, 160: 0.8}, seed=3, test_crop=0.5)
    names = [curve.model for curve in make_curves([PLAIN, second, longer, cropped])]
    assert names == [
        "resnet50 test crop 1.0, steps 1000",
        "resnet50 test crop 1.0, steps 9000",
        "resnet50 test crop 0.5, steps 1000",
    ]
    workers = make_run("resnet50", {96: 0.6, 128: 0.9, 160: 0.8}, seed=4, training={"workers": 3})
    assert len(make_curves([PLAIN, workers])) == 1, "what has no effect tells nothing apart"


def test_seeds_that_agree_on_every_image_are_no_further_images():
    there, here = hits(0.8), hits(0.6)
    single = degradation_interval(there, here)
    np.testing.assert_allclose(degradation_interval(np.stack([there] * 3), np.stack([here] * 3)), single)
    np.testing.assert_allclose(accuracy_interval(np.stack([there] * 3)), accuracy_interval(there))
    generator = np.random.default_rng(0)
    apart = generator.random((4, N)) < 0.5
    low, high = accuracy_interval(apart)
    expected = accuracy_interval(apart.ravel())
    assert high - low == pytest.approx(expected[1] - expected[0], rel=0.1), "independent ones are"
    lost = apart & (generator.random((4, N)) < 0.8)
    low, high = degradation_interval(apart, lost)
    expected = degradation_interval(apart.ravel(), lost.ravel())
    assert high - low == pytest.approx(expected[1] - expected[0], rel=0.15)


def test_every_difference_beside_the_network_is_named():
    assert size_warnings(make_report(PLAIN, SONIC)) == []
    other = make_run(
        "sonic_tiny",
        {96: 0.5, 128: 0.79, 160: 0.6},
        told={96: 0.7, 128: 0.79, 160: 0.79},
        training={"warmup": 0.1, "ema": 0.9},
        label_smoothing=0.0,
    )
    lines = size_warnings(make_report(PLAIN, other))
    assert lines == [
        "Different settings, label smoothing: 0.1 for resnet50; 0.0 for sonic_tiny.",
        "Different settings, warmup: 0.3 for resnet50; 0.1 for sonic_tiny.",
        "Different settings, ema: 0.0 for resnet50; 0.9 for sonic_tiny.",
    ]
    report = replace(make_report(PLAIN, SONIC, replace(SONIC, config=SONIC.config)), left_out={"a": "bad"})
    assert size_warnings(report)[-2:] == [
        "Repeated seeds, so the spread is too small: sonic_tiny.",
        "1 unreadable image was left out.",
    ]


def test_verdicts_count_sizes_and_parameters():
    lines = verdict_lines(make_report(PLAIN, SONIC))
    assert lines == [
        "sonic_tiny: 1.0 points less than resnet50 at 128 px, with 0.10 of its parameters. Within 2 points with at "
        "most 0.2 of the parameters: yes.",
        "sonic_tiny, given the spacing: loses less than every other network at 2 of 2 sizes; at most half as much as "
        "the best of them at 2 (96 px 10.0 against 30.0, 160 px 0.0 against 10.0 percent).",
    ]
    large = replace(SONIC, results={"parameters": 5_000_000})
    assert "with 0.50 of its parameters" in verdict_lines(make_report(PLAIN, large))[0]
    assert verdict_lines(make_report(PLAIN, large))[0].endswith("no.")
    weak = make_run("sonic_tiny", {96: 0.5, 128: 0.7, 160: 0.6}, told={96: 0.69, 128: 0.7, 160: 0.7})
    assert "10.0 points less" in verdict_lines(make_report(PLAIN, weak))[0]
    assert verdict_lines(make_report(PLAIN, weak))[0].endswith("no.")


def test_rivals_that_learnt_nothing_or_elsewhere_are_not_counted():
    """One that guesses loses nothing at any size, and would win."""
    guessing = make_run("vit_s16", {96: 0.1, 128: 0.1, 160: 0.1})
    elsewhere = make_run("resnet50_gfnet", {96: 0.8, 128: 0.8, 160: 0.8}, image_size=96)
    lines = verdict_lines(make_report(PLAIN, SONIC, guessing, elsewhere))
    assert lines[0] == (
        "sonic_tiny at 128 px, given the spacing: not compared with vit_s16 at 128 px, resnet50_gfnet at 96 px "
        "(learned too little, or trained at another size)."
    )
    assert "96 px 10.0 against 30.0" in lines[-1]
    assert any("vit_s16 has learned little" in line for line in size_warnings(make_report(SONIC, guessing)))
    beginner = make_run("sonic_tiny", {96: 0.1, 128: 0.1, 160: 0.1}, told={96: 0.1, 128: 0.1, 160: 0.1})
    assert verdict_lines(make_report(PLAIN, beginner)) == [
        "sonic_tiny, given the spacing: has learned too little to be compared."
    ]
    assert verdict_lines(make_report(SONIC)) == [], "without rivals there is nothing to say"


@pytest.mark.parametrize(
    ("classes", "top1", "learnt"),
    [(2, 0.70, False), (2, 0.80, True), (3, 0.70, True), (10, 0.29, False), (10, 0.31, True)],
)
def test_a_network_well_above_guessing_has_learnt_however_few_the_classes(classes, top1, learnt):
    run = replace(make_run("resnet50", {96: top1, 128: top1}), num_classes=classes)
    controlled = replace(run, hits={**run.hits, **{(size, True): run.hits[size, False] for size in (96, 128)}})
    report = make_report(controlled)
    assert {curve.has_learnt for curve in report.curves} == {learnt}
    assert len(report.curves) == 2
    assert sum("has learned little" in line for line in size_warnings(report)) == (not learnt), (
        "the control is the same"
    )


def test_a_network_that_gets_images_resized_back_is_a_rival():
    control = replace(PLAIN, hits={**PLAIN.hits, **{(n, True): (hits(s), hits(s)) for n, s in CONTROL.items()}})
    report = make_report(control, SONIC)
    names = [curve.name for curve in report.curves]
    assert names[:2] == ["resnet50", "resnet50, images resized to 128 px"]
    lines = verdict_lines(report)
    assert len(lines) == 2, "one of cost, one of sizes"
    assert "less than every other network at 1 of 2 sizes" in lines[1]
    assert "96 px 10.0 against 5.0" in lines[1]


@pytest.mark.parametrize("sizes", [(96, 128, 160), (17, 48, "64x128", 128, 130, 1000)])
@pytest.mark.parametrize("count", [1, 6])
def test_no_word_of_the_figure_is_cut_off_or_lies_on_another(sizes, count):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from torchsonic.lab.report.image_sizes.figure import draw_sizes

    shares = dict.fromkeys(sizes, 0.5)
    options = ("width=24", "depths=2,2,2,2", "operator_options.hidden=16,8", "block=plain", "operator_options.a=1")
    runs = [make_run("sonic_tiny", shares, told=shares, model_options=(*options, f"widths={n}")) for n in range(count)]
    figure = draw_sizes(make_report(*runs))
    figure.canvas.draw()
    words = list(figure.legends[0].get_texts())
    for axes in figure.axes:
        low, high = axes.get_xlim()  # matplotlib has ticks beyond, which it does not show
        words += [tick.label1 for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [word.get_window_extent() for word in words if word.get_text().strip()]
    for place, box in enumerate(boxes):
        assert 0 <= box.x0 <= box.x1 <= figure.bbox.width
        assert 0 <= box.y0 <= box.y1 <= figure.bbox.height
        assert not any(box.overlaps(other) for other in boxes[:place])
    assert figure.axes[0].get_position().height * figure.bbox.height > 200


def test_tables_have_a_row_for_each_curve_and_the_papers_below():
    report = make_report(PLAIN, SONIC)
    table = accuracy_table(report)
    assert table.headers == ["network", "96 px", "128 px", "160 px"]
    assert [row[0] for row in table.rows] == [
        "resnet50",
        "sonic_tiny, not given the spacing",
        "sonic_tiny, given the spacing",
    ]
    assert table.rows[0][1].text == "56.0"
    rows = loss_table(report).rows
    assert rows[2][2] == "0"
    assert rows[2][1].text == "10.0"
    assert len(rows) == 3, "the paper's networks were trained at another size"
    rows = loss_table(make_report(make_run("resnet50", {96: 0.5, 224: 0.8}, image_size=224))).rows
    assert rows[1] == ["paper, ResNet-50, trained at 224 px", "30.4", "0.0"]
