"""The runner of recipes: every command is printed, done once, and named when it fails."""

import subprocess
from argparse import Namespace
from importlib.util import find_spec

import pytest

pytest.importorskip("tyro", reason="tyro is not installed")

from recipes import table2, table3, table4
from recipes.runner import Problem, Step, run_recipe, script
from torchsonic import cli


def options(out, **changes):
    return Namespace(**{"out": out, "dry_run": False, "budget": "paper", "partial": False, **changes})


def writing(path, text):
    return ["python", "-c", f"open({str(path)!r}, 'a').write({text!r})"]


def test_steps_run_in_order_and_only_once(tmp_path, capsys):
    log = tmp_path / "log"
    steps = [Step("one", writing(log, "1")), Step("two", writing(log, "2"))]
    assert run_recipe(steps, [], options(tmp_path)) == 0
    assert run_recipe(steps, [], options(tmp_path)) == 0
    assert log.read_text() == "12"
    assert capsys.readouterr().out.count("done before") == 2
    # Another command or variable is another step.
    assert run_recipe([steps[0], Step("two", steps[1].command, {"A": 1})], [], options(tmp_path)) == 0
    assert log.read_text() == "122"


def test_a_step_that_fails_stops_the_recipe_which_goes_on_there(tmp_path, capsys):
    log, flag = tmp_path / "log", tmp_path / "flag"
    code = f"import os, sys; print('no flag'); sys.exit(not os.path.exists({str(flag)!r}))"
    steps = [Step("one", writing(log, "1")), Step("check", ["python", "-c", code]), Step("three", writing(log, "3"))]
    assert run_recipe(steps, [], options(tmp_path)) == 1
    said = capsys.readouterr().err
    assert "no flag" in said
    assert "check failed" in said
    assert log.read_text() == "1"
    flag.touch()
    assert run_recipe(steps, [], options(tmp_path)) == 0
    assert log.read_text() == "13"


def test_a_smoke_test_and_the_papers_run_need_folders_of_their_own(tmp_path, capsys):
    steps = [Step("one", writing(tmp_path / "log", "1"))]
    assert run_recipe(steps, [], options(tmp_path / "out", budget="smoke")) == 0
    assert run_recipe(steps, [], options(tmp_path / "out")) == 1
    assert "another --budget" in capsys.readouterr().err


def test_a_dry_run_is_a_shell_script_and_runs_nothing(tmp_path, capsys):
    log = tmp_path / "a log"
    steps = [
        Step("one", writing(log, "it's"), {"A": 1, "B": "two words"}),
        Step("two", ["echo", "$A"], {"A": 2}),
    ]
    assert run_recipe(steps, [], options(tmp_path, dry_run=True)) == 0
    assert not log.exists()
    text = capsys.readouterr().out
    assert "export A=1 B='two words'" in text
    assert "unset B\nexport A=2" in text
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("changes", "kinds", "code"),
    [
        ({}, ["count"], 1),
        ({"partial": True}, ["count"], 0),
        ({"budget": "smoke"}, ["count"], 0),
        ({"partial": True}, ["count", "data"], 1),
    ],
)
def test_wrong_counts_stop_only_the_papers_experiment(tmp_path, capsys, changes, kinds, code):
    problems = [Problem(f"trouble {kind}", kind) for kind in kinds]
    assert run_recipe([Step("one", writing(tmp_path / "log", "1"))], problems, options(tmp_path, **changes)) == code
    said = capsys.readouterr().err
    assert all(f"trouble {kind}" in said for kind in kinds)
    assert (tmp_path / "log").exists() == (code == 0)


def commands_of(recipe, arguments):
    steps = recipe.make_steps(recipe.make_options().parse_args([*arguments, "--out", "/out"]))
    assert len({step.slug for step in steps}) == len(steps), "steps with one name would overwrite each other's marks"
    for step in steps:
        if "torchsonic" in step.words or "torchsonic.cli" in step.words:
            first = step.words.index("torchsonic" if "torchsonic" in step.words else "torchsonic.cli") + 1
            assert hasattr(cli.parse(step.words[first:]), "run")
        elif step.words[:2] == ["python", "-m"]:
            assert find_spec(step.words[2]) is not None
    return {step.name: step for step in steps}, "\n".join(script(steps))


def test_table_2_is_the_papers_protocol():
    steps, text = commands_of(table2, ["--kits", "/kits", "--acdc", "/acdc"])
    trainings = [step for step in steps.values() if step.words[0] == "nnUNetv2_train"]
    assert len(trainings) == 2 * 2 * 5
    wanted = {
        "EPOCHS": "1000",
        "ITERATIONS": "250",
        "LEARNING_RATE": "0.01",
        "WEIGHT_DECAY": "1e-05",
        "BATCH_SIZE": "2",
    }
    for step in trainings:
        assert {name: step.environment[f"TORCHSONIC_NNUNET_{name}"] for name in wanted} == wanted
        assert "--val_best" in step.words
        assert step.words[step.words.index("-p") + 1] == "nnUNetResEncUNetLPlans"
    assert {step.environment.get("TORCHSONIC_NNUNET_PRESET") for step in trainings} == {None, "paper"}
    assert text.count("-pl nnUNetPlannerResEncL") == 2
    assert "--classes kidney=1,2,3 masses=2,3 tumour=2" in text


def test_table_3_predicts_elsewhere_with_the_best_checkpoints_of_all_folds():
    steps, _ = commands_of(table3, ["--picai", "/picai", "--prostate158", "/p158", "--promis", "/promis"])
    predictions = [step.words for step in steps.values() if step.words[0] == "nnUNetv2_predict"]
    assert len(predictions) == 4
    for words in predictions:
        assert words[words.index("-chk") + 1] == "checkpoint_best.pth"
        place = words.index("-f")
        assert words[place + 1 : place + 6] == ["0", "1", "2", "3", "4"]
        assert "--save_probabilities" in words
    assert "--lesions" in steps["promis: evaluate"].words


def test_table_4_trains_all_eight_with_one_preset_and_tests_the_curve():
    steps, text = commands_of(table4, ["--imagenet", "/imagenet", "--processes", "4"])
    trainings = [step.words for step in steps.values() if "train" in step.words]
    assert len(trainings) == 8
    assert all(words[words.index("--preset") + 1] == "imagenet-50m" for words in trainings)
    assert all(words[:3] == ["torchrun", "--nproc-per-node", "4"] for words in trainings)
    assert "--resolutions 96,128,160,192,224" in text


def test_the_networks_of_table_4_are_the_papers_rows():
    from torchsonic.lab.metrics import paper_results

    assert {title for title, _ in table4.NETWORKS.values()} == set(paper_results()["imagenet_50m"]["rows"])


@pytest.mark.parametrize(
    ("recipe", "folders"),
    [
        (table2, ["--acdc", "/acdc"]),
        (table3, ["--picai", "/picai", "--promis", "/promis", "--splits", "/splits.json"]),
        (table4, ["--imagenet", "/imagenet", "--networks", "vit_s16.paper"]),
    ],
)
def test_a_smoke_test_has_the_same_commands_on_a_small_scale(recipe, folders):
    paper, _ = commands_of(recipe, folders)
    smoke, text = commands_of(recipe, [*folders, "--budget", "smoke", "--device", "cpu"])
    kept = {name for name in paper if "fold " not in name or name.endswith("fold 0")}
    assert kept <= set(smoke)
    assert "--smoke" in text


@pytest.mark.parametrize("recipe", [table2, table3])
def test_a_recipe_without_a_test_set_is_refused(recipe, capsys):
    with pytest.raises(SystemExit):
        recipe.main(["--out", "/out", *(["--picai", "/picai"] if recipe is table3 else [])])
    assert "or both" in capsys.readouterr().err
