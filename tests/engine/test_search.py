"""Measured plans: what they may change, and what keeps them."""

import json

import pytest
import torch

import torchsonic
from tests.layers import make_layer
from torchsonic.engine import kernels, search
from torchsonic.engine.call import Options, Step
from torchsonic.engine.plan import plan_step
from torchsonic.functional import ORDERS, remembered_plans, restore_plans, set_plan_search
from torchsonic.testing import relative_error


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(search, "_chosen", None)
    monkeypatch.setattr(search, "_file", None)
    monkeypatch.setattr(search, "_remembered", {})
    monkeypatch.delenv(search.VARIABLE, raising=False)


def step(layer, x):
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), list(layer.parameters()))]


def test_nothing_is_measured_unless_asked_for():
    step(make_layer(2), torch.randn(2, 3, 5, 6, dtype=torch.float64))
    assert torchsonic.plan_search() == "model"
    assert not remembered_plans()


def test_the_environment_chooses_for_a_process(monkeypatch):
    monkeypatch.setenv(search.VARIABLE, "measure")
    assert torchsonic.plan_search() == "measure"
    monkeypatch.setenv(search.VARIABLE, "guess")
    with pytest.raises(ValueError, match=f"{search.VARIABLE} must be one of model, measure, got 'guess'"):
        torchsonic.plan_search()


def test_a_measured_plan_is_the_fastest_candidate_and_is_found_once(monkeypatch):
    times = {(order, chunk): 5.0 for order in ORDERS for chunk in (1, 2, 4)}
    times["channels", 4], times["channels", 2] = 3.0, 2.0
    tried = []
    monkeypatch.setattr(search, "_time", lambda run, choice: tried.append(choice) or times[tuple(choice)])
    set_plan_search("measure")
    layer, x = make_layer(2), torch.randn(4, 3, 5, 6, dtype=torch.float64)
    step(layer, x)
    assert list(remembered_plans().values()) == [["channels", 2]]
    number = len(tried)
    step(layer, x)
    assert len(tried) == number == len(ORDERS) + 2


def test_measuring_keeps_no_more_in_memory_than_the_call(monkeypatch):
    kept = []
    monkeypatch.setattr(kernels, "backward", lambda grad_y, operands, options, plan, parts, needs: kept.append(parts))
    set_plan_search("measure")
    make_layer(2, execution={"recompute": True})(torch.randn(2, 3, 5, 6, dtype=torch.float64))
    assert kept
    assert not any(kept)


def test_results_do_not_depend_on_the_plan_beyond_rounding():
    layer, x = make_layer(2), torch.randn(3, 3, 6, 7, dtype=torch.float64)
    expected = step(layer, x)
    set_plan_search("measure")
    for a, b in zip(step(layer, x), expected, strict=True):
        assert relative_error(a, b) < 1e-11
    (key,) = remembered_plans()
    for order in ORDERS:
        restore_plans({key: [order, 2]})
        for a, b in zip(step(layer, x), expected, strict=True):
            assert relative_error(a, b) < 1e-11


def test_restored_plans_are_used_without_measuring(monkeypatch):
    set_plan_search("measure")
    layer, x = make_layer(2), torch.randn(3, 3, 6, 7, dtype=torch.float64)
    first = step(layer, x)
    plans = json.loads(json.dumps(remembered_plans()))
    monkeypatch.setattr(search, "_remembered", {})
    set_plan_search("model")
    restore_plans(plans)
    monkeypatch.setattr(search, "_time", lambda *given: pytest.fail("was measured"))
    assert all(torch.equal(a, b) for a, b in zip(step(layer, x), first, strict=True))


def test_plans_are_kept_on_disk_and_bad_files_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "plans.json"
    set_plan_search("measure", file=file)
    step(make_layer(1), torch.randn(2, 3, 8, dtype=torch.float64))
    plans = remembered_plans()
    assert json.loads(file.read_text()) == plans
    monkeypatch.setattr(search, "_remembered", {})
    set_plan_search("model", file=file)
    assert remembered_plans() == plans
    for text in ("nothing", '{"key": ["fastest", 1]}', '{"key": 3}', '{"key": ["modes", 0]}', "[1]"):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"contains no plans .*; delete it, or name another"):
            set_plan_search("model", file=file)


def test_a_file_keeps_the_plans_of_other_processes_and_needs_a_folder(tmp_path):
    file = tmp_path / "plans.json"
    set_plan_search("measure", file=file)
    file.write_text('{"of another": ["modes", 2]}')
    step(make_layer(1), torch.randn(2, 3, 8, dtype=torch.float64))
    assert json.loads(file.read_text()) == {"of another": ["modes", 2], **remembered_plans()}
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        set_plan_search("model", file=tmp_path / "nowhere" / "plans.json")
    assert torchsonic.plan_search() == "measure"


def test_what_is_measured_keeps_no_more_than_the_call(monkeypatch):
    seen = []
    forward = kernels.modes_order.forward
    monkeypatch.setattr(
        kernels.modes_order, "forward", lambda *a, keep=False: seen.append(keep) or forward(*a, keep=keep)
    )
    set_plan_search("measure")
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    for recompute in (True, False):
        seen.clear()
        step(make_layer(1, execution={"order": "modes", "recompute": recompute}), x)
        assert len(seen) > 1
        assert set(seen) == {not recompute}
    assert len(remembered_plans()) == 2


def test_tracers_and_transforms_take_the_model(monkeypatch):
    set_plan_search("measure")
    monkeypatch.setattr(search, "_time", lambda *given: pytest.fail("was measured"))
    layer, x = make_layer(2), torch.randn(3, 3, 6, 7, dtype=torch.float64)
    torch.func.vmap(layer)(x[:, None])
    assert plan_step(Step(1, 3, 4, 5, (6, 7), Options((6, 7)))).order in ORDERS
    assert not remembered_plans()
