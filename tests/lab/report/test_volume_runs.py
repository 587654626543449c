"""Runs on volumes are evaluated on their own test cases, or on those from elsewhere."""

import json
import shutil

import numpy as np
import pytest

from tests.lab.data.nifti import make_affine, make_arrays, spoil, write, write_case, write_folder
from torchsonic.cli import main
from torchsonic.lab.data.volumes import CaseError, find_cases, read_case
from torchsonic.lab.metrics.volumes import score_case
from torchsonic.lab.report.volumes import Scoring
from torchsonic.lab.report.volumes.runs import score_runs
from torchsonic.lab.runs.volumes import VolumesConfig, load_run, predict_case, run_experiment
from torchsonic.lab.runs.volumes.split import find_learnt
from torchsonic.lab.training import TrainingConfig

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed")
pytest.importorskip("monai", reason="MONAI is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")
pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")

NAME = "sonicnet3d.light-width8-depth1-num_modes6"
TOLD, DEAF = f"{NAME}, spacing given", f"{NAME}, spacing not given"


def train(data, out, **options):
    training = TrainingConfig(steps=2, batch=2, log_every=1, accelerator="cpu")
    options = {"folds": 2, "patch": (6, 12, 12), "test_patches": 2, "test_cases": 1, "training": training, **options}
    if options.get("model") != "unet":
        options = {"model": "sonicnet3d.light", "width": 8, "depth": 1, "num_modes": 6, **options}
    config = VolumesConfig(data=data, **options)
    run_experiment(config, out / config.name, show=False)
    return out / config.name


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of four cases, both folds of a Sonic network and one of a U-Net."""
    root = tmp_path_factory.mktemp("made")
    data = write_folder(root / "data")
    runs = [train(data, root / "runs", fold=fold) for fold in (0, 1)]
    return data, runs, train(data, root / "runs", model="unet")


@pytest.fixture
def elsewhere(tmp_path):
    """Cases that no run knows, of another spacing."""
    for seed, name in enumerate(("far", "away")):
        write_case(tmp_path / "elsewhere", name, shape=(7, 18, 16), spacing=(6.0, 0.8, 0.8), seed=20 + seed)
    return tmp_path / "elsewhere"


def score(runs, out, *, external=None, data=None, **options):
    scoring = Scoring(**{"pictures": False, "show": False, **options})
    return score_runs(runs, out, external=external, data=data, scoring=scoring)


def test_folds_share_a_row_and_every_case_is_tested_by_the_run_that_did_not_see_it(made, tmp_path):
    data, runs, _ = made
    evaluation = score(runs, tmp_path)
    assert [model.name for model in evaluation.models] == [TOLD, DEAF]
    cases = {case.name: case for case in find_cases(data)}
    for model, tell in zip(evaluation.models, (True, False), strict=True):
        assert set(model.cases) == set(cases)
        for run in runs:
            network, config = load_run(run)
            for name in json.loads((run / "split.json").read_text())["test"]:
                volume = read_case(cases[name])
                labels = predict_case(network, volume, config, tell_spacing=tell)
                expected = score_case(labels, volume.label, volume.spacing, num_classes=3)
                np.testing.assert_equal(list(model.cases[name].scores), expected)
    told, deaf = evaluation.models
    assert any(told.cases[name].mean("dice") != deaf.cases[name].mean("dice") for name in cases)


def test_time_memory_and_size_are_measured(made, tmp_path):
    data, (run, _), unet = made
    evaluation = score([run, unet], tmp_path)
    assert [model.name for model in evaluation.models] == [TOLD, DEAF, "unet"]
    for model in evaluation.models:
        voxels = max(np.prod(read_case(case).image.shape) for case in find_cases(data))
        assert all(case.seconds > 0 for case in model.cases.values())
        assert all(case.peak_bytes > 4 * 8 * 6 * 12 * 12 for case in model.cases.values()), "a layer of a window"
        assert max(case.peak_bytes for case in model.cases.values()) < 10_000 * voxels
    network, _ = load_run(run)
    assert evaluation.models[0].parameters == sum(p.numel() for p in network.parameters())
    assert evaluation.models[0].origin["commit"] == json.loads((run / "results.json").read_text())["run"]["commit"]


def test_predictions_are_written_on_the_grid_of_the_image(made, tmp_path):
    data, (run, _), _ = made
    evaluation = score([run], tmp_path)
    folders = sorted((tmp_path / "predictions").iterdir())
    assert [folder.name for folder in folders] == sorted(
        name.replace(", ", "-").replace(" ", "-") for name in (TOLD, DEAF)
    )
    for name in evaluation.cases:
        written, image = (nibabel.load(f / f"{name}.nii.gz") for f in (folders[1], data / "images"))
        assert written.shape == image.shape
        np.testing.assert_allclose(written.affine, image.affine, rtol=1e-6)


def test_external_cases_must_not_be_those_of_training(made, tmp_path):
    data, (run, _), _ = made
    with pytest.raises(ValueError, match=r"which .* was trained on; use other cases"):
        score([run], tmp_path, external=data)
    copied = shutil.copytree(data, tmp_path / "copied")
    learnt = json.loads((run / "split.json").read_text())["train"]
    gone, cases = tmp_path / "gone", find_cases(copied)
    assert find_learnt(run, gone, cases, find_cases) == (learnt, []), "known by their bytes"
    for case in cases:
        case.label.write_bytes(b"other labels")
    assert find_learnt(run, gone, cases, find_cases) == ([], learnt), "known by their names alone"
    assert find_learnt(run, data, cases, find_cases) == ([], []), "names say nothing if the data can be compared"


def test_external_cases_are_all_predicted_by_every_run(made, elsewhere, tmp_path):
    _, runs, unet = made
    evaluation = score([*runs, unet], tmp_path, external=elsewhere, pictures=True)
    names = [
        f"{TOLD.split(',')[0]} fold{fold}-seed0, {told}"
        for fold in (0, 1)
        for told in ("spacing given", "spacing not given")
    ]
    assert [model.name for model in evaluation.models] == [*names, "unet"], "two answers to a case are two rows"
    assert all(set(model.cases) == {"far", "away"} for model in evaluation.models)
    assert set(evaluation.pictures) == {"far", "away"}
    assert "all cases of elsewhere" in evaluation.title


def test_only_runs_of_the_same_settings_share_a_row(made, tmp_path):
    data, (first, second), _ = made
    other = train(data, tmp_path / "runs", fold=1, foreground=0.9)
    evaluation = score([first, other], tmp_path)
    names = [model.name for model in evaluation.models]
    assert len(set(names)) == len(names) == 4
    assert all(str(folder) in " ".join(names) for folder in (first, other)), "the folder says which is which"
    assert all(len(model.cases) == 2 for model in evaluation.models)
    with pytest.raises(ValueError, match=r"is named twice.*name each run once"):
        score([second, second], tmp_path)


def test_bad_cases_are_named_or_left_out(made, elsewhere, tmp_path):
    _, (run, _), _ = made
    spoil(elsewhere, "far", "label outside the classes")
    with pytest.raises(CaseError, match=r"case far: .*labels/far.nii.gz: .*7"):
        score([run], tmp_path, external=elsewhere)
    evaluation = score([run], tmp_path, external=elsewhere, keep_going=True)
    assert set(evaluation.models[0].cases) == {"away"}
    assert [name for name, _ in evaluation.skipped] == ["far"]
    for channel in ("0000", "0001"):
        write(elsewhere / "images" / f"two_{channel}.nii.gz", make_arrays()[0], make_affine())
    write(elsewhere / "labels" / "two.nii.gz", make_arrays()[1], make_affine())
    evaluation = score([run], tmp_path, external=elsewhere, keep_going=True)
    assert "has 2 channels, but the networks expect 1" in dict(evaluation.skipped)["two"]
    spoil(elsewhere, "away", "nan")
    with pytest.raises(ValueError, match="all 3 cases were left out; the first because: case away"):
        score([run], tmp_path, external=elsewhere, keep_going=True)


def test_data_may_have_moved(made, tmp_path):
    data, (run, _), _ = made
    moved, copied = tmp_path / "moved", tmp_path / "run"
    shutil.copytree(data, moved)
    shutil.copytree(run, copied)
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "data": "gone/away"}))
    with pytest.raises(ValueError, match="there is no folder gone/away"):
        score([copied], tmp_path)
    assert score([copied], tmp_path, data=moved).cases
    test = json.loads((run / "split.json").read_text())["test"][0]
    (moved / "images" / f"{test}.nii.gz").unlink()
    (moved / "labels" / f"{test}.nii.gz").unlink()
    with pytest.raises(ValueError, match=rf"case {test} of .*run is not in .*moved; add it, or use --external"):
        score([copied], tmp_path, data=moved)


def test_runs_that_cannot_be_evaluated_are_named(made, tmp_path):
    _, (run, _), _ = made
    with pytest.raises(ValueError, match="nowhere contains no finished run on volumes"):
        score([tmp_path / "nowhere"], tmp_path)
    half = tmp_path / "half"
    shutil.copytree(run, half)
    (half / "results.json").unlink()
    with pytest.raises(ValueError, match="half contains no finished run on volumes"):
        score([half], tmp_path)
    with pytest.raises(ValueError, match="--classes has 3 names, but these runs have classes 1 to 2"):
        score([run], tmp_path, classes=("a", "b", "c"))
    with pytest.raises(ValueError, match="--lesions must be a class from 1 to 2, got 5"):
        score([run], tmp_path, lesion_class=5)
    other = train(write_folder(tmp_path / "binary", classes=2), tmp_path / "runs")
    with pytest.raises(ValueError, match="different numbers of classes"):
        score([run, other], tmp_path)


def test_lesions_of_runs_come_from_their_probabilities(made, tmp_path):
    pytest.importorskip("picai_eval", reason="picai_eval is not installed")
    _, (run, _), _ = made
    evaluation = score([run], tmp_path, lesion_class=2)
    plain = score([run], tmp_path)
    for model, same in zip(evaluation.models, plain.models, strict=True):
        found = model.lesions(0.5)
        assert found is not None
        assert found["overall"]["lesions"] == len(model.cases)
        for name, case in model.cases.items():
            np.testing.assert_equal(list(case.scores), list(same.cases[name].scores))


def test_the_command_finds_the_kind_of_the_run_and_validates_outside(made, elsewhere, tmp_path, capsys):
    _, (run, _), _ = made
    out = tmp_path / "out"
    assert (
        main(["evaluate", str(run), "--external", str(elsewhere), "--classes", "wall", "core", "--out", str(out)]) == 0
    )
    shown = capsys.readouterr().out
    assert "given" in shown
    assert "wall" in shown
    data = json.loads((out / "report.json").read_text())
    assert [model["name"] for model in data["models"]] == [TOLD, DEAF]
    assert {case["case"] for case in data["cases"]} == {"far", "away"}
    assert data["differences"][0]["first"] == TOLD
    assert (out / "predictions").is_dir()
    assert "Differences" in (out / "report.html").read_text()
