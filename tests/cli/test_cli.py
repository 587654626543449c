"""The command line as a user meets it."""

import json
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import torchsonic
from tests.lab.made_runs import make_run
from torchsonic.cli import main, parse
from torchsonic.cli.table import COMMANDS, KINDS, Group, checkout_commands, find_command


def test_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert torchsonic.__version__ in capsys.readouterr().out


def test_help_is_one_screen_with_an_example_of_each_kind():
    """In a process of its own, as a shell starts it; a new one for every command would take longer than they do."""
    shown = subprocess.run([sys.executable, "-m", "torchsonic", "--help"], capture_output=True, text=True)
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[4 : 4 + len(COMMANDS)]] == list(COMMANDS)
    for kind in KINDS.values():
        assert f"  torchsonic {kind.example}" in lines
        parse(kind.example.split())
    assert "bench" in lines[-1]


def leaves():
    for name, entry in {**COMMANDS, **checkout_commands()}.items():
        if isinstance(entry, Group):
            yield from ([name, member] for member in entry.members)
        else:
            yield [name]


@pytest.mark.parametrize("words", list(leaves()), ids=" ".join)
def test_every_command_explains_itself(words, capsys):
    """Every option has a sentence, which says what it is rather than of what it is."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: torchsonic {' '.join(words)}" in shown
    assert "None" not in shown
    command = find_command([*words, "--help"])[0]
    options = re.findall(r"^[ │]*(--[a-z-]+|\[?[A-Z]+\b)(?: .*?)?\n? {2,}(\S.*)$", shown, flags=re.MULTILINE)
    assert len(options) >= len(command.positional)
    wrong = [(option, text) for option, text in options if re.match(r"(Of|Likewise|Whether)\b|\(", text)]
    assert not wrong, wrong


def test_groups_show_their_commands(capsys):
    for words in (["train"], ["predict", "--help"], ["evaluate"], ["nnunet"]):
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert all(f"  {member} " in shown for member in COMMANDS[words[0]].members)
        assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["trian"], "there is no command 'trian'; did you mean 'train'?"),
        (["xyz"], "there is no command 'xyz'; choose from train, predict"),
        (["train", "volume"], "train: there is no 'volume'; did you mean 'volumes'?"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest(words, complaint, capsys):
    assert main(words) == 1
    assert f"torchsonic: {complaint}" in capsys.readouterr().err


def test_former_names_work_with_a_warning(capsys):
    assert main(["version"]) == 0
    shown = capsys.readouterr()
    assert torch.__version__ in shown.out
    assert shown.err == "warning: 'torchsonic version' is now 'torchsonic --version'\n"
    old = parse(["train", "table1", "--models", "vit", "--tasks=halligalli", "--seeds", "1", "2"])
    assert old == parse(["train", "table1", "--model", "vit", "--task", "halligalli", "--seed", "1", "2"])
    assert capsys.readouterr().err.count("warning: ") == 3
    assert [c.training.seed for c in parse(["train", "synthshape", "--seed", "3", "4"]).configs()] == [3, 4]
    assert len(parse(["train", "synthshape", "--preset", "paper"]).configs()) == 25


def test_an_unforeseen_error_keeps_its_traceback(monkeypatch):
    def fail(*arguments, **options):
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("torchsonic.models.list_models", fail)
    with pytest.raises(KeyError, match="a mistake of ours"):
        main(["models"])


def test_a_wrong_option_is_refused_without_a_traceback(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["bench", "operator", "--repeat", "3"])
    assert refused.value.code not in (None, 0)
    shown = capsys.readouterr()
    assert "--repeats" in shown.out + shown.err
    assert "Traceback" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "operator", "--repeats", "0"], "--repeats must be at least 1, got 0"),
        (["bench", "operator", "--sizes", "nonsense"], "--sizes"),
        (["bench", "models", "--batch", "0"], "--batch must be at least 1, got 0"),
        (["bench", "models", "--image-size", "-1"], "--image-size must be at least 1, got -1"),
        (["bench", "report", "--out", "no/such/folder"], "no/such/folder"),
        (["bench", "explorer", "--sizes", "1024"], "--sizes must be from 48 to 512, got (1024,)"),
        (["bench", "data", "--images", "0"], "--images must be at least 1, got 0"),
        (["bench", "data", "--processes", "0"], "--processes must be at least 1, got (0,)"),
        (["report", "no/such/folder"], "there is no folder no/such/folder"),
        (["report", str(Path(__file__).parent)], "no finished run"),
        (["train", "table1", "--folds", "5"], "fold must be 0 to 4, got 5"),
        (["data", "preview", "--seed", "-1"], "--seed must not be negative, got -1"),
        (["models", "no_such_*"], "no model matches 'no_such_*'"),
        (["models", "shapes"], "no model matches 'shapes'; for packaged networks use: torchsonic models --pretrained"),
        (["predict", "hippocampos"], "did you mean 'hippocampus'?"),
        (["export", "shapes", "--size", "0"], "--size must be at least 2, got 0"),
        (["study", "hippocampus", "--data", "no/such"], "needs the folder"),
        (["demo", "--out", __file__], "is a file; name a folder"),
        (["models", "--pretrained", "no_such_*"], "no trained network matches 'no_such_*'; there are corners"),
        (["models", "--pretrained", "--out", "x.md"], "--out x.md is for the table of models"),
        (["models", "synthshape_*", "--out", __file__], "no place for the table"),
    ],
)
def test_mistakes_end_in_one_line(arguments, words, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_missing_package_names_its_extra(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["bench", "operator"]) == 1
    assert 'pip install "torchsonic[cli]"' in capsys.readouterr().err


def test_operator_benchmark_writes_its_results(tmp_path, monkeypatch):
    from benchmarks.entries import GROUPS, Entry

    monkeypatch.setitem(GROUPS, "low-rank", (Entry("small", 2, 16, 4, (8, 8)),))
    assert main(["bench", "operator", "--sizes", "small", "--repeats", "1", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "operator.json").read_text())
    assert {p.name for p in tmp_path.iterdir()} == {f"operator.{ending}" for ending in ("html", "md", "json", "png")}
    assert result["run"]["seed"] == 0
    assert "commit" in result["run"]
    (entry,) = result["entries"]
    assert set(entry["times"]) == {"kept", "not kept"}
    for times in entry["times"].values():
        assert {"sonic", "sonic_recompute", "paper_order", "conv3", "floor_complex", "floor_real"} <= set(times)
    text = (tmp_path / "operator.md").read_text()
    (tmp_path / "operator.md").unlink()
    assert main(["bench", "report", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "operator.md").read_text() == text


def test_reference_results_can_be_drawn_again(tmp_path):
    stored = Path(__file__).parents[2] / "results" / "bench"
    kinds = {path.stem for path in stored.glob("*.json")}
    for kind in kinds:
        shutil.copy(stored / f"{kind}.json", tmp_path)
    assert main(["bench", "report", "--out", str(tmp_path)]) == 0
    for kind in kinds:
        assert (tmp_path / f"{kind}.md").read_text() == (stored / f"{kind}.md").read_text()
        assert (tmp_path / f"{kind}.png").stat().st_size > 10_000


def test_data_benchmark_writes_its_results(tmp_path):
    arguments = ["--processes", "1", "--images", "50", "--repeats", "1", "--out", str(tmp_path)]
    assert main(["bench", "data", *arguments]) == 0
    result = json.loads((tmp_path / "data.json").read_text())
    assert [row["data"] for row in result["rows"]] == ["SynthShape", "HalliGalli"]
    assert all(row["images_per_second"] > 1 for row in result["rows"])
    assert (tmp_path / "data.png").stat().st_size > 10_000


def test_explorer_benchmark_writes_its_results(tmp_path):
    assert main(["bench", "explorer", "--sizes", "64", "--moves", "2", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "explorer.json").read_text())["rows"]
    assert [(row["move"], row["size"]) for row in rows] == [(kind, 64) for kind in ("mode", "bank", "layer", "grid")]
    assert all(row["worst"] >= row["median"] > 0 for row in rows)
    assert "goal 150 ms" in (tmp_path / "explorer.md").read_text()


def test_a_refused_value_is_reported_in_our_words(capsys):
    pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")
    for option, value, words in (
        ("--steps", "0", "--steps must be at least 1, got 0"),
        ("--weight-decay", "-1", "--weight-decay must not"),
    ):
        with pytest.raises(SystemExit):
            main(["train", "synthshape", option, value])
        assert capsys.readouterr().err.startswith(f"torchsonic: {words}")
    assert main(["train", "synthshape", "--seed", "-1"]) == 1
    assert "--seed must not be negative, got -1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "synthshape", "--stepz", "3"])
    assert "--steps" in capsys.readouterr().err


def test_models_are_listed_by_pattern(capsys):
    assert main(["models", "synthshape_*net", "--no-flops"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in torchsonic.list_models("synthshape_*net"))
    assert "resnet50" not in shown
    assert "(a)" in shown
    assert main(["models", "orbit*", "--no-flops"]) == 0
    assert "(a)" not in capsys.readouterr().out  # the paper does not have these networks
    assert main(["models", "--pretrained", "shapes*"]) == 0
    shown = capsys.readouterr().out
    assert "shapes_orbit" in shown
    assert "corners" not in shown


def test_models_write_the_same_document_again(tmp_path):
    out = tmp_path / "new" / "models.md"
    arguments = ["models", "synthshape_convnet", "--out", str(out)]
    assert main(arguments) == 0
    first = out.read_text()
    assert "| synthshape_convnet | segmentation | 3 x 64 x 64 | 0.153 | 0.153 | 1.25 | 0.312 (a) |" in first
    out.write_text(f"{first}\nPeople write here.\n")
    assert main(arguments) == 0
    assert out.read_text() == f"{first}\nPeople write here.\n"


def test_models_benchmark_writes_its_results(tmp_path):
    arguments = ["--quick", "--group", "synthshape", "--repeats", "1", "--out", str(tmp_path)]
    assert main(["bench", "models", *arguments]) == 0
    result = json.loads((tmp_path / "models.json").read_text())
    assert {p.name for p in tmp_path.iterdir()} == {f"models.{ending}" for ending in ("html", "md", "json", "png")}
    (group,) = result["groups"]
    assert [model["name"] for model in group["models"]] == torchsonic.list_models("synthshape_*")
    for model in group["models"]:
        assert set(model["times"]) == {"forward", "train_step"}
        assert min(model["parameters"], model["flops"], model["peak_bytes"]) > 0
    assert result["summary"] == [], "goals are for the usual sizes"
    text = (tmp_path / "models.md").read_text()
    (tmp_path / "models.md").unlink()
    assert main(["bench", "report", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "models.md").read_text() == text


def test_models_goals_compare_with_plain_convolution():
    pytest.importorskip("rich")
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from benchmarks import models_bench, models_report

    def model(name, forward, train):
        times = {
            "forward": {"best_s": forward, "median_s": forward},
            "train_step": {"best_s": train, "median_s": train},
        }
        return {"name": name, "parameters": 1, "flops": 1, "times": times, "peak_bytes": 1}

    group = models_bench.FULL["synthshape"]
    models = [model("synthshape_convnet", 1.0, 2.0), model("synthshape_sonicnet", 1.0, 2.7)]
    record = {"group": group.name, "reference": group.reference, "image_size": 64, "batch": 32, "models": models}
    (row,) = models_bench._summary(group, record)
    assert row["measured"] == pytest.approx(1.35)
    assert row["met"] is False
    goals, table = models_report.models_tables({"summary": [row], "groups": [record]})
    assert goals.rows[0][-1].text == "not met"
    assert table.rows[1][8] == "0.74x"


def test_volumes_goals_compare_with_the_large_network_of_nnunet():
    pytest.importorskip("rich")
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from benchmarks import volumes_bench, volumes_report

    def network(name, seconds, peak):
        cost = {"parameters": 1, "flops": 1, "samples": 3}
        return {"name": name, "best_s": seconds, "median_s": seconds, "peak_bytes": peak, **cost}

    networks = [
        network("sonicnet3d.light", 3.0, 3e8),
        network("sonicnet3d.paper_size", 90.0, 9e9),
        network(volumes_bench.REFERENCE, 5.0, 1e9),
    ]
    record = {"size": (96, 96, 96), "spacing": (1.0, 1.0, 1.0), "batch": 2, "networks": networks}
    result = {"reference": volumes_bench.REFERENCE, "patches": [record]}
    goals, table = volumes_report.volumes_tables(result)
    assert [[*row[2:4], row[4].text] for row in goals.rows] == [
        ["0.60", "<= 0.50", "not met"],
        ["0.30", "<= 0.33", "met"],
        ["9.00", "<= 8", "not met"],
    ]
    assert table.rows[0][4:] == ["0.600", "0.30", "0.300"]


def test_volumes_benchmark_writes_its_results(tmp_path):
    pytest.importorskip("nnunetv2")
    assert main(["bench", "volumes", "--quick", "--repeats", "1", "--out", str(tmp_path)]) == 0
    (patch,) = json.loads((tmp_path / "volumes.json").read_text())["patches"]
    found = {network["name"]: network for network in patch["networks"]}
    assert found["nnU-Net ResEnc L"]["parameters"] > 100 * found["sonicunet3d"]["parameters"]
    assert min(network["peak_bytes"] for network in found.values()) > 1e6
    assert (tmp_path / "volumes.png").stat().st_size > 10_000


def test_compile_benchmark_counts_graphs_and_compares_with_eager(tmp_path, monkeypatch):
    # Machine code, which takes a minute to make, is compared with eager by the laws of the layers.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    assert main(["bench", "compile", "--quick", "--repeats", "1", "--out", str(tmp_path)]) == 0
    (subject,) = json.loads((tmp_path / "compile.json").read_text())["subjects"]
    assert max(subject["graphs"].values()) <= 2
    assert max(subject["output_error"], subject["gradient_error"]) < 1e-5
    assert set(subject["times"]["train_step"]) == {"eager", "compiled", "compiled for any size"}
    assert (tmp_path / "compile.png").stat().st_size > 10_000


def test_models_stand_beside_the_papers_table_as_ratios_to_resnet():
    pytest.importorskip("rich")
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from benchmarks import models_report, report

    result = report.read_result(Path(__file__).parents[2] / "results" / "bench" / "models.json")
    (table,) = [table for table in models_report.models_tables(result) if "compared with the paper" in table.title]
    rows = {row[0]: row for row in table.rows}
    measured = set(torchsonic.list_models("resnet50*")) - {"resnet50_sonic.paper"}  # which is younger
    assert measured | {"vit_s16", "vit_s16.paper"} <= set(rows)
    place = table.headers.index("forward, images/s ratio")
    plain, sonic = rows["resnet50"], rows["resnet50_sonic.paper_size"]
    assert plain[place:] == ["1.00"] * 4
    assert sonic[1:6:2] == ["ResNet-50 Sonic", "1.34", "0.81"]
    assert float(sonic[-2]) == pytest.approx(831 / 4758, abs=0.005)
    assert rows["sonic_tiny"][1] == "-"


def test_report_writes_its_files_beside_the_runs(tmp_path, capsys):
    make_run(tmp_path, with_model=True)
    (make_run(tmp_path, model="vit") / "results.json").unlink()
    assert main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "1 run, 1 left out" in shown.out
    assert "left out: synthshape/vit/fold0-seed0: not finished" in shown.err
    assert {"report.html", "report.md", "report.json"} <= {path.name for path in (tmp_path / "report").iterdir()}


def test_table1_trains_and_reports_and_then_only_reports(tmp_path, capsys):
    options = ["--steps", "2", "--batch", "2", "--test-samples", "2", "--out", str(tmp_path)]
    arguments = ["train", "table1", "--preset", "smoke", "--model", "vit", "--task", "halligalli", *options]
    assert main(arguments) == 0
    assert "run 1 of 1: halligalli/vit/fold0-seed0" in capsys.readouterr().out
    page = (tmp_path / "report" / "report.html").read_text()
    assert "ViT" in page
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "1 of 1 runs are finished already" in shown
    assert "run 1 of" not in shown


def test_preview_draws_a_sheet_for_each_task(tmp_path):
    assert main(["data", "preview", "--out", str(tmp_path), "--seed", "3"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"synthshape.png", "halligalli.png"}
    assert all(path.stat().st_size > 30_000 for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "evaluate volumes --predictions found --labels true --out place",
        "predict images nowhere --data a.png --out place/answers.json",
        "data mnist --data . --out place",
        "study hippocampus --show --out place",
        "convert weights.pt --out place/model --standardise none",
        "export shapes --to pt2 --out place/model.pt2",
        "explain shapes --out place/page.html",
        "demo --out place",
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_any_work(words, tmp_path, monkeypatch, capsys):
    pytest.importorskip("tyro")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert main(words.split()) == 1
    assert "is read-only; choose another folder" in capsys.readouterr().err
