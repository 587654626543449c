"""Every recipe from data to page, on a few tiny cases."""

import json
import sys
from pathlib import Path

import pytest

from recipes import runner, table2, table3, table4
from tests import programs
from tests.lab.data.pictures import write_pictures
from tests.recipes import made_data
from torchsonic.lab.metrics import paper_results

SMOKE = ["--budget", "smoke", "--device", "cpu"]


@pytest.fixture(autouse=True)
def forked_steps(monkeypatch):
    """Importing nnU-Net takes longer than most steps; `test_runner` holds that steps are programs of their own."""

    def run_step(step, log):
        program, *rest = step.words
        known = {"python": [], "torchsonic": ["-m", "torchsonic.cli"]}
        words = known.get(program, [Path(sys.executable).parent / program])
        return programs.run([*words, *rest], log=log, environment=step.environment, fork_pools=True)

    monkeypatch.setattr(runner, "run_step", run_step)


def run(recipe, out, *arguments):
    """The page for programs, and in Markdown."""
    assert recipe.main([*map(str, arguments), "--out", str(out), *SMOKE]) == 0
    assert (out / "report" / "report.html").is_file()
    text = (out / "report" / "report.md").read_text()
    assert "A smoke test" in text
    return json.loads((out / "report" / "report.json").read_text()), text


@pytest.mark.slow
def test_table_4_trains_tests_and_times_classifiers(tmp_path):
    data = write_pictures(tmp_path / "photos")
    networks = ["resnet50", "resnet50_sonic.paper"]
    report, text = run(table4, tmp_path / "out", "--imagenet", data, "--networks", *networks)
    assert list(report["networks"]) == networks
    for numbers in report["networks"].values():
        assert 0 <= numbers["top1"] <= numbers["top5"] <= 100
        assert min(numbers["params_millions"], numbers["gflops"], numbers["images_per_second"]) > 0
    assert "paper 60.01" in text
    names = [name for name, _ in report["losses"]]
    assert names == [
        "ResNet-50",
        "ResNet-50, images resized back",
        "ResNet-50 Sonic, not given the spacing",
        "ResNet-50 Sonic, given the spacing",
    ]


@pytest.mark.slow
def test_table_2_plans_trains_postprocesses_and_scores_regions(tmp_path):
    pytest.importorskip("nnunetv2", reason="nnunetv2 is not installed")
    report, text = run(table2, tmp_path / "out", "--kits", made_data.make_kits(tmp_path / "kits"))
    for network in ("nnunet", "sonicnet"):
        numbers = report["networks"][network]
        assert 0 <= numbers["kits_dsc"] <= 100
        assert 0 <= numbers["kits_nsd"] <= 100
        assert numbers["acdc_dsc"] is None
        assert numbers["runtime_hours"] > 0
    assert report["networks"]["nnunet"]["params_millions"] > report["networks"]["sonicnet"]["params_millions"] > 0
    scored = json.loads((tmp_path / "out" / "evaluation" / "KiTS2023" / "report.json").read_text())
    assert scored["classes"] == ["kidney", "masses", "tumour"]
    assert f"paper {paper_results()['medical_3d']['rows']['SonicNet'][0]}" in text


@pytest.mark.slow
def test_table_3_trains_on_one_hospital_and_counts_lesions_in_two_others(tmp_path):
    pytest.importorskip("nnunetv2", reason="nnunetv2 is not installed")
    pytest.importorskip("picai_eval", reason="picai_eval is not installed")
    folders = {name: getattr(made_data, f"make_{name}")(tmp_path / name) for name in ("picai", "prostate158", "promis")}
    words = [word for name, folder in folders.items() for word in (f"--{name}", folder)]
    report, text = run(table3, tmp_path / "out", *words, "--networks", "sonicnet")
    assert set(report["tests"]) == {"prostate158, sonicnet", "promis, sonicnet"}
    for overall in report["tests"].values():
        assert overall["lesions"] == 2
        assert overall["auroc"]["value"] is not None
        assert overall["found"] + overall["missed"] == 2
    assert "paper 0.841" in text
