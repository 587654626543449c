"""Benchmarks that take seconds, made smaller still: they measure what they say and write it."""

import html
import json
from functools import partial

import pytest
import torch
from torch import nn

from torchsonic.lab.report import to_html, write_document

pytest.importorskip("rich")
pytest.importorskip("matplotlib")


def test_precision_benchmark_tells_the_number_types_apart(monkeypatch, tmp_path):
    from benchmarks import precision_bench, precision_report, report

    monkeypatch.setattr(precision_bench, "SIZES", ((9,), (4, 6)))
    monkeypatch.setattr(precision_bench, "DRAWS", 1)
    result = precision_bench.run_precision_bench()
    written = write_document(report.make_page(result), tmp_path, name="precision")
    assert {path.name for path in written} == {f"precision.{ending}" for ending in ("html", "md", "json", "png")}
    assert json.loads((tmp_path / "precision.json").read_text())["rows"] == result["rows"]
    errors = {
        s.name: precision_report._mean(result["rows"], "total", s.name, "sonic", "output")
        for s in precision_bench.SETTINGS
    }
    assert errors["float32"] < 1e-5
    assert 1e-5 < errors["autocast fp16"] < 2e-3
    assert 1e-4 < errors["autocast bf16"] < 2e-2
    assert errors["autocast bf16"] < errors["bf16 weights"] < 0.2
    assert "| autocast bf16 |" in (tmp_path / "precision.md").read_text()


def test_memory_benchmark_measures_what_it_estimates(tmp_path):
    from benchmarks import memory_bench, report

    result = memory_bench.run_memory_bench(memory_bench.QUICK)
    written = write_document(report.make_page(result), tmp_path, name="memory")
    assert {path.name for path in written} == {f"memory.{ending}" for ending in ("html", "md", "json", "png")}
    for row in result["sweep"]:
        assert row["estimated"] == pytest.approx(row["measured"], rel=0.2)
    large = result["large"]
    chosen = next(row for row in large["estimates"] if row["mode_chunk"] == large["mode_chunk"])
    assert chosen["estimated"] == pytest.approx(large["peak"], rel=0.2)
    assert large["process"] > large["peak"] + large["held"]


def test_compile_benchmark_reports_what_cannot_be_compiled(monkeypatch):
    from benchmarks import compile_bench, report

    class Reader(torch.nn.Module):
        def forward(self, x):
            return x * float(x.sum().numpy())

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    result = compile_bench.run_compile_bench([compile_bench.Subject("reader", Reader, (2, 8, 4, 4))], repeats=1)
    (failed,) = result["subjects"]
    assert set(failed) == {"name", "shape", "failure"}
    page = report.make_page(result)
    assert failed["failure"] in html.unescape(to_html(page))
    assert len(page.figures[0].data) > 1000


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight.expand_as(x)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).sum((0, 1))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return Scale.apply(x.mT, self.weight).mT.neg()


def test_operations_are_counted_inside_autograd_functions_and_views_are_not():
    from benchmarks.operations import count_step

    module, x = Scaled(), torch.randn(3, 8, 8, requires_grad=True)
    found = count_step(module, x, torch.randn_like(x))
    size, weight = x.nbytes, module.weight.nbytes
    multiply, negate, both, add_up = 2 * size + weight, 2 * size, 3 * size, size + weight
    assert found["forward"] == {"operations": 2, "bytes": multiply + negate}
    assert found["backward"] == {"operations": 4, "bytes": negate + multiply + both + add_up}


def test_operations_inside_custom_operators_are_counted():
    from benchmarks.operations import OperationCounter

    @torch.library.custom_op("torchsonic_tests::double_sine", mutates_args=())
    def double_sine(x: torch.Tensor) -> torch.Tensor:
        return (2 * x).sin()

    x = torch.randn(5)
    with OperationCounter() as counter:
        double_sine(x)
    assert counter.operations == {"mul": 1, "sin": 1}


def test_what_is_overwritten_is_not_read():
    from benchmarks.operations import OperationCounter

    x, y = torch.randn(5, 4), torch.empty(5, 4)
    for call, times in ((lambda: y.copy_(x), 2), (lambda: torch.add(x, x, out=y), 3), (lambda: y.add_(x), 3)):
        with OperationCounter() as counter:
            call()
        assert counter.operations.total() == 1
        assert counter.bytes == times * x.nbytes


@pytest.mark.parametrize("name", ["floor_complex", "floor_real"])
def test_the_floor_is_products_and_transforms_alone(name):
    from benchmarks.entries import Entry
    from benchmarks.floor import FLOORS
    from benchmarks.operations import OperationCounter

    floor = FLOORS[name](Entry("small", 2, 6, 3, (4, 5)), torch.device("cpu"))
    with OperationCounter() as counter:
        floor.step()
    transforms = {"floor_complex": {"_fft_c2c": 4}, "floor_real": {"_fft_r2c": 2, "_fft_c2r": 2}}[name]
    assert counter.operations == {"bmm": 6, **transforms}


def record(name, **seconds):
    times = {contender: {"train_step": {"best_s": s, "median_s": s}} for contender, s in seconds.items()}
    return {"name": name, "group": "low-rank", "size": [64, 64], "times": {"kept": times}}


def test_the_faster_floor_counts():
    from benchmarks.goals import step_over_floor

    assert step_over_floor(record("a", sonic=6.0, floor_complex=5.0, floor_real=4.0), "kept") == 1.5
    assert step_over_floor(record("a", sonic=6.0), "kept") is None


RUN = {"commit": "0" * 40, "cpu": "fast", "device": "cpu", "threads": 2}


def test_stored_results_are_compared_by_ratios():
    from benchmarks.baseline import compare_with_stored
    from benchmarks.operator_report import operator_warnings

    now = [
        record("a", sonic=6.0, conv3=12.0, floor_real=5.0),
        record("b", sonic=1.0, conv3=3.0),
        record("new", sonic=1.0),
    ]
    before = [record("a", sonic=3.0, conv3=6.0, floor_real=3.0), record("b", sonic=0.25, conv3=1.0)]
    baseline = compare_with_stored(now, {"format": 2, "run": RUN, "entries": before}, RUN)
    changes = {(row["entry"], row["quantity"]): row["change"] for row in baseline["rows"]}
    assert changes == {
        ("a", "step / 3x3 convolution"): pytest.approx(1.0),
        ("a", "step / floor"): pytest.approx(1.2),
        ("b", "step / 3x3 convolution"): pytest.approx(4 / 3),
    }
    slower = operator_warnings({"baseline": baseline})
    assert [text.split(":")[0] for text in slower] == ["a, pages kept", "b, pages kept"]
    assert operator_warnings({"baseline": None}) == []


def test_stored_results_of_the_first_format_are_those_of_pages_not_kept():
    from benchmarks.baseline import compare_with_stored

    now, before = record("a", sonic=6.0, conv3=12.0), record("a", sonic=3.0, conv3=12.0)
    before["times"] = before["times"]["kept"]
    stored = {"run": RUN, "entries": [before]}
    assert compare_with_stored([now], stored, RUN)["rows"] == []
    now["times"] = {"not kept": now["times"]["kept"]}
    (row,) = compare_with_stored([now], stored, RUN)["rows"]
    assert row["change"] == pytest.approx(2.0)


def test_results_of_another_processor_are_named_and_not_compared():
    from benchmarks.baseline import compare_with_stored
    from benchmarks.operator_report import _baseline_table

    before, now = record("a", sonic=1.0, conv3=6.0), record("a", sonic=6.0, conv3=6.0)
    for other in ({"cpu": "slow"}, {"device": "cuda"}):
        baseline = compare_with_stored([now], {"format": 2, "run": RUN, "entries": [before]}, {**RUN, **other})
        assert baseline["rows"] == []
        (table,) = _baseline_table(baseline)
        assert "fast, 2 threads. They were measured on another processor" in table.notes[0]


def test_operator_results_of_the_first_format_are_not_drawn(tmp_path):
    from benchmarks import report

    path = tmp_path / "operator.json"
    path.write_text(json.dumps({"kind": "operator", "entries": []}))
    with pytest.raises(ValueError, match="run: torchsonic bench operator"):
        report.read_result(path)


def test_goals_are_about_sizes_of_their_kind():
    from benchmarks.goals import GOALS

    small, large = record("small", sonic=1.5, floor_real=1.0), record("large", sonic=1.2, floor_real=1.0)
    small["size"] = [14, 14]
    rows = {
        goal.title: goal.row([small, large]) for goal in GOALS if "floor" in goal.title and goal.group == "low-rank"
    }
    met = {title: (row["measured"], row["met"]) for title, row in rows.items()}
    assert met == {
        "step / floor, 64 px and more, pages kept": (1.2, True),
        "step / floor, below 64 px, pages kept": (1.5, False),
    }


def test_volumes_benchmark_can_be_run_in_part():
    pytest.importorskip("monai")
    from benchmarks.volumes_bench import FULL, REFERENCE, UNET, select_patches

    (hearts,) = select_patches(FULL, ["10x124x128"], [REFERENCE])
    assert hearts.reference == UNET
    assert REFERENCE in hearts.without
    assert len(select_patches(FULL, [], [])) == len(FULL)
    with pytest.raises(ValueError, match="--without: 'MONAI UNet' cannot be left out"):
        select_patches(FULL, ["10x124x128"], [UNET])
    with pytest.raises(ValueError, match="--patches: there is no '1x2x3'; choose from 32x192x192"):
        select_patches(FULL, ["1x2x3"], [])


def test_roofline_counts_on_cuda_and_predicts(tmp_path):
    from benchmarks import costs, entries, fake_cuda, report, roofline

    pytest.importorskip("triton")
    if (reason := fake_cuda.absent()) is not None:
        pytest.skip(reason)
    (entry,) = entries.select_entries(["2d-512-32-14"])
    result = roofline.run_roofline([entry], repeats=1, budget=1.0)
    rows = {row["contender"]: row for row in result["rows"]}
    assert rows["conv3"]["operations"] == 2
    # Forward, and both gradients: three times the multiply-adds of a 3x3 kernel.
    assert rows["conv3"]["flops"] == 3 * 2 * 9 * 512**2 * 8 * 14**2
    assert rows["sonic"]["operations"] < rows["paper_order"]["operations"] / 3
    assert all(row["cpu_measured"] > 0 for name, row in rows.items() if name != "attention")
    write_document(report.make_page(result), tmp_path, name="roofline")
    assert "Predicted, not measured." in (tmp_path / "roofline.md").read_text()
    slow, fast = roofline.Device(1e9, 1e12, 0.0), roofline.Device(1e12, 1e9, 0.0)
    step = [costs.Cost("a", 1e9, 1e9)]
    assert roofline.predict(step, slow) == roofline.predict(step, fast) == 1.0
    assert roofline.predict(step, roofline.Device(1e12, 1e12, 2.0)) == 2.0


def test_orbits_are_compared_at_as_many_channels_and_modes():
    from benchmarks.contenders import UnavailableError, sonic, sonic_orbit
    from benchmarks.entries import GROUPS

    compared = []
    for entry in (entry for entries in GROUPS.values() for entry in entries):
        try:
            layer = sonic_orbit(entry)
        except UnavailableError:
            continue
        compared.append(entry.name)
        assert layer.mixing(torch.float32)[0].shape == sonic(entry).mixing(torch.float32)[0].shape
    assert compared == ["2d-128-16-128", "2d-128-128-32"]
