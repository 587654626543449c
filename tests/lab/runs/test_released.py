"""The released protocol: what it sets, how networks differ, and that its runs are never mixed with ours."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")

from tests.lab.made_runs import make_run
from torchsonic.cli import parse
from torchsonic.lab.data.synthetic import ReleasedShapes
from torchsonic.lab.report.table1 import find_runs, make_columns, make_page, make_report, make_table, rank_lines
from torchsonic.lab.runs import synthetic
from torchsonic.lab.runs.released import RELEASED, class_weights, loss
from torchsonic.lab.runs.synthetic import (
    MODELS,
    SyntheticConfig,
    apply_preset,
    evaluate_run,
    load_run,
    make_data,
    make_model,
    make_task,
    run_experiment,
)
from torchsonic.lab.runs.table1 import plan_runs
from torchsonic.lab.training import CheckpointError, fit
from torchsonic.nn import sonic_layers


def config_of(model="sonicnet", preset="smoke", **training):
    config = apply_preset(SyntheticConfig(model=model, protocol="released"), preset)
    return replace(config, training=replace(config.training, **training))


def test_the_budget_is_the_scripts():
    config = config_of(preset="paper")
    training = config.training
    assert (training.steps, training.batch, config.test_samples) == (2000, 24, 20 * 24)
    assert (training.learning_rate, training.weight_decay, training.decay) == (1e-2, 1e-3, "all")
    assert (training.schedule, training.warmup) == ("one-cycle-momentum", 0.3)
    assert (training.mode_lr_scale, training.clip) == (1.0, 0.0)
    assert apply_preset(SyntheticConfig(), "paper").training.weight_decay == 1e-4, "ours stays as it was"


def test_classes_weigh_inversely_to_their_frequency_over_512_scenes_with_mean_one():
    task = make_task(config_of(steps=2, batch=4))
    labels = ReleasedShapes().samples(range(512))[1]
    frequency = torch.bincount(labels.flatten()).double() / labels.numel()
    expected = (1 / frequency) / (1 / frequency).mean()
    torch.testing.assert_close(task.weights.double(), expected, rtol=1e-5, atol=0)
    assert class_weights(torch.tensor([3, 1])).mean() == 1


def test_half_of_the_loss_has_no_gradient():
    torch.manual_seed(0)
    logits, weights = torch.randn(2, 6, 8, 8, requires_grad=True), torch.rand(6)
    labels = torch.randint(6, (2, 8, 8))
    loss(logits, labels, weights).backward()
    found, logits.grad = logits.grad, None
    entropy = F.cross_entropy(logits, labels, weights)
    (0.5 * entropy).backward()
    torch.testing.assert_close(found, logits.grad)
    classes, scores = logits.argmax(1), []
    for kind in range(1, 6):
        hits = ((classes == kind) & (labels == kind)).sum()
        scores.append(2 * hits / ((classes == kind).sum() + (labels == kind).sum()))
    expected = 0.5 * entropy + 0.5 * (1 - torch.stack(scores).mean())
    torch.testing.assert_close(loss(logits, labels, weights), expected)


def test_every_step_has_fresh_scenes_that_no_test_has():
    config = config_of(steps=200, batch=4)
    task = make_task(config)
    seen = set()
    for step in range(3):
        image = task.batch(step, range(4))[0]
        seen |= {sample.numpy().tobytes() for sample in image}
    assert len(seen) == 12
    assert set(task.train).isdisjoint(task.test)
    assert len(set(synthetic.test_indices(config))) == config.test_samples
    other = make_task(config_of(steps=200, batch=4, seed=1)).batch(0, range(4))[0]
    assert not {sample.numpy().tobytes() for sample in other} & seen


def test_scores_are_means_over_the_scripts_batches():
    config = replace(config_of("convnet"), test_samples=48)
    model, data = make_model(config).eval(), make_data("synthshape", "released")
    indices = list(synthetic.test_indices(config))
    clean = evaluate_run(model, config, show=False)["clean"]
    halves = [dice_of(model, data, part) for part in (indices[:24], indices[24:])]
    assert clean == pytest.approx(sum(halves) / 2)


@torch.no_grad()
def dice_of(model, data, indices):
    image, label = data.samples(indices)
    classes, scores = model(image).argmax(1), []
    for kind in range(1, 6):
        total = (classes == kind).sum() + (label == kind).sum()
        scores += [2 * ((classes == kind) & (label == kind)).sum() / total] if total else []
    return torch.stack(scores).mean().item()


def test_sonicnet_is_the_papers_and_all_its_layers_start_as_a_first_one():
    layers = [layer for _, layer in sonic_layers(make_model(config_of()))]
    assert {(layer.variant, layer.padding_mode, layer.standardise) for layer in layers} == {("paper", "circular", True)}
    assert [layer.bank for layer in layers] == [{"released": 0.0}] * 4


def test_niff_is_normalised_twice_and_rectified_and_sees_whole_bins():
    torch.manual_seed(0)
    block = make_model(config_of("niff")).backbone[0].double()
    x = torch.randn(2, 64, 6, 8, dtype=torch.float64)

    def network(part, places):
        hidden = places
        for place, linear in enumerate(part):
            hidden = linear(F.silu(hidden) if place else hidden)
        return hidden

    rows, columns = (torch.fft.fftfreq(n, 1 / n, dtype=torch.float64) for n in (6, 8))
    places = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1)
    assert places.min() == -4
    response = torch.complex(network(block.filter.real, places), network(block.filter.imaginary, places))
    filtered = torch.fft.ifft2(torch.fft.fft2(block.norm1(x)) * response.movedim(-1, 0)).real
    torch.testing.assert_close(block(x), F.relu(x + block.mlp(block.norm2(filtered))))
    assert type(block.norm2).__name__ == "GroupNorm"
    assert [part.bias for part in block.mlp if hasattr(part, "bias")] == [None, None]


def test_gfnet_has_two_paths_and_masks_that_stay_bells_over_their_stored_rows():
    torch.manual_seed(0)
    block = make_model(config_of("gfnet")).backbone[0]
    mask = block.filter.mask
    assert mask.shape == (64, 64, 33, 2)
    rows, columns = torch.linspace(-1, 1, 64)[:, None], torch.linspace(0, 1, 33)
    bell = torch.exp(-(rows**2 + columns**2) / (2 * 0.4**2))
    torch.testing.assert_close(mask.mean(0)[..., 0], bell, atol=0.006, rtol=0)
    assert (mask[..., 0] - bell).std().item() == pytest.approx(0.01, rel=0.05)
    assert mask[..., 1].std().item() == pytest.approx(0.01, rel=0.05)
    x = torch.randn(1, 64, 64, 64)
    assert not mask.requires_grad
    half = x + block.filter(block.norm1(x))
    torch.testing.assert_close(block(x), half + block.mlp(block.norm2(half)))


def test_vit_starts_without_positions_of_its_64_tokens():
    tokens = make_model(config_of("vit")).backbone.tokens
    assert (tokens.patch, tuple(tokens.positions.shape)) == (8, (1, 64, 8, 8))
    assert not tokens.positions.any()


def test_our_own_networks_stay_as_they_were():
    own = make_model(SyntheticConfig(model="niff")).backbone[0]
    assert not own.filter.bins
    assert type(own.norm2).__name__ == "Identity"
    mask = make_model(SyntheticConfig(model="gfnet")).backbone[0].filter.mask
    assert mask.std() < 0.03
    assert mask.requires_grad
    assert make_model(SyntheticConfig(model="vit")).backbone.tokens.positions.std() > 0.01


def test_the_command_takes_the_protocols_settings_unless_others_are_given():
    command = ["train", "synthshape", "--protocol", "released", "--preset", "paper"]
    (first, *others) = parse(command).configs()
    assert (first.variant, first.bank, first.padding, first.fold) == ("paper", "released", "circular", 0)
    assert (first.training.steps, len(others)) == (2000, 4)
    (exact, *_) = parse([*command, "--variant", "exact"]).configs()
    assert exact.name == "synthshape/sonicnet-released-exact/fold0-seed0"
    (convnet, *_) = parse([*command, "--model", "convnet"]).configs()
    assert (convnet.variant, convnet.name) == ("exact", "synthshape/convnet-released/fold0-seed0")
    assert parse(["train", "synthshape"]).configs()[0].protocol == "own"


def test_what_the_script_does_not_have_is_refused():
    with pytest.raises(ValueError, match="protocol must be own for HalliGalli, which was not released, got released"):
        SyntheticConfig(task="halligalli", protocol="released")
    with pytest.raises(ValueError, match="fold must be 0 for the released protocol, which has no folds, got 2"):
        SyntheticConfig(protocol="released", fold=2)


def test_a_plan_has_all_models_and_five_seeds():
    plan = plan_runs("paper", models=MODELS, tasks=["synthshape"], protocol="released")
    assert len({config.name for config in plan}) == len(plan) == 5 * len(MODELS)
    assert {config.protocol for config in plan} == {"released"}
    assert {config.variant for config in plan if config.model == "sonicnet"} == {"paper"}


def test_workers_do_not_change_a_run_and_seeds_do(tmp_path):
    def weights(folder, **changes):
        config = config_of("convnet", steps=4, checkpoint_every=2, **changes)
        model = make_model(config)
        fit(model, make_task(config), config.training, tmp_path / folder, show=False)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    whole = weights("whole")
    assert torch.equal(whole, weights("shared", workers=2))
    assert not torch.equal(whole, weights("other", seed=1))


def test_a_run_keeps_its_protocol_and_is_not_resumed_under_another(tmp_path):
    config = replace(config_of("convnet", steps=2), test_samples=24)
    results = run_experiment(config, tmp_path, show=False)
    assert results["config"]["protocol"] == "released"
    assert {row["test"] for row in results["rows"]} == set(RELEASED.perturbations)
    assert load_run(tmp_path)[1] == config
    with pytest.raises(CheckpointError, match="had protocol=released, not own"):
        run_experiment(replace(config, protocol="own"), tmp_path, show=False)


def test_the_report_names_the_protocol_and_mixes_no_rows(tmp_path):
    pytest.importorskip("matplotlib")
    settings = {"protocol": "released", **RELEASED.sonicnet}
    make_run(tmp_path, dice=0.5)
    make_run(tmp_path, dice=0.9, with_model=True, **settings)
    make_run(tmp_path, model="convnet", dice=0.7, protocol="released")
    table = make_table(make_columns(find_runs(tmp_path)[0]))
    assert [column.name for column in table.columns] == ["ConvNet", "SonicNet"], "no variants"
    for group, ours in (("SynthShape", [None, 0.5]), ("SynthShape, released protocol", [0.7, 0.9])):
        (row,) = [row for row in table.rows if row.group == f"{group}: Dice" and row.label == "noise 0.1"]
        assert [cell.ours and cell.ours.mean for cell in row.cells] == ours
        assert [cell.paper for cell in row.cells] == [0.98, 0.98]
    (line,) = rank_lines(table)
    assert line.startswith("SynthShape, released protocol: SonicNet is level with or ahead of ConvNet in 18 of 18")
    report = make_report(tmp_path)
    assert "examples_released" in [figure.name for figure in report.figures]
    text = str(make_page(report))
    assert "SynthShape, released protocol" in text
    assert "are those of the authors' released script" in text
