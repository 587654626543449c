"""Benchmarks that take seconds, made smaller still: they measure what they say and write it."""

import json
from functools import partial

import pytest
import torch

pytest.importorskip("rich")
pytest.importorskip("matplotlib")


def test_precision_benchmark_tells_the_number_types_apart(monkeypatch, tmp_path):
    from benchmarks import precision_bench, precision_report, report

    monkeypatch.setattr(precision_bench, "SIZES", ((9,), (4, 6)))
    monkeypatch.setattr(precision_bench, "DRAWS", 1)
    result = precision_bench.run_precision_bench()
    report.write_result(result, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"precision.json", "precision.md", "precision.png"}
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
    report.write_result(result, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"memory.json", "memory.md", "memory.png"}
    for row in result["sweep"]:
        assert row["estimated"] == pytest.approx(row["measured"], rel=0.2)
    large = result["large"]
    chosen = next(row for row in large["estimates"] if row["mode_chunk"] == large["mode_chunk"])
    assert chosen["estimated"] == pytest.approx(large["peak"], rel=0.2)
    assert large["process"] > large["peak"] + large["held"]


def test_compile_benchmark_reports_what_cannot_be_compiled(monkeypatch, tmp_path):
    from benchmarks import compile_bench, report

    class Reader(torch.nn.Module):
        def forward(self, x):
            return x * float(x.sum().numpy())

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    result = compile_bench.run_compile_bench([compile_bench.Subject("reader", Reader, (2, 8, 4, 4))], repeats=1)
    (failed,) = result["subjects"]
    assert set(failed) == {"name", "shape", "failure"}
    report.write_result(result, tmp_path)
    assert failed["failure"] in (tmp_path / "compile.md").read_text()
    assert (tmp_path / "compile.png").stat().st_size > 1000
