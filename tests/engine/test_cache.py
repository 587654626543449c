import threading
from types import SimpleNamespace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.layers import make_layer
from torchsonic.engine.cache import CouplingCache
from torchsonic.functional import ResponseLimits
from torchsonic.nn import evaluation


def evaluate(layer, x, **options):
    with torch.no_grad():
        return layer(x, **options)


def test_evaluation_reuses_responses_and_agrees_with_training():
    for variant in ("exact", "paper"):
        layer = make_layer(2, variant=variant)
        x = torch.randn(2, 3, 6, 7, dtype=torch.float64)
        expected = layer(x)
        layer.eval()
        for _ in range(2):
            torch.testing.assert_close(evaluate(layer, x), expected)
        assert len(layer._cache) == 1


def test_cache_is_bounded_and_keeps_grids_apart():
    layer = make_layer(1).eval()
    for n in range(2, 30):
        x = torch.randn(1, 3, n, dtype=torch.float64)
        for spacing in (1.0, 2.0):
            torch.testing.assert_close(evaluate(layer, x, spacing=spacing), layer(x, spacing=spacing))
    assert len(layer._cache) <= layer._cache.max_entries


def made(number=0.0):
    """Stands for a coupling of 160 bytes."""
    return SimpleNamespace(num_bytes=160, number=number)


def test_bytes_of_all_grids_together_are_bounded():
    cache, parameters = CouplingCache(max_bytes=400), [torch.zeros(3)]
    for grid in range(4):
        cache.get(grid, parameters, made)
    assert len(cache) == 2
    last = cache.get(3, parameters, made)
    assert cache.get(3, parameters, lambda: made(1.0)) is last


def test_what_is_too_large_pushes_nothing_out():
    cache, parameters = CouplingCache(max_bytes=400), [torch.zeros(3)]
    kept = cache.get("small", parameters, made)
    cache.get("large", parameters, lambda: SimpleNamespace(num_bytes=401))
    assert len(cache) == 1
    assert cache.get("small", parameters, lambda: made(1.0)) is kept


def test_a_parameter_is_never_taken_for_one_that_is_gone():
    cache = CouplingCache()

    def parameter():
        return torch.empty(3, device="meta")  # whose values are not looked at, as on accelerators

    gone = parameter()
    place = id(gone)
    cache.get("grid", [gone], made)
    del gone
    later = [parameter()]
    while id(later[-1]) != place and len(later) < 10_000:
        later.append(parameter())
    assert cache.get("grid", later[-1:], lambda: made(1.0)).number == 1.0


def test_what_was_evaluated_before_a_change_is_not_kept_after_it():
    cache, parameter = CouplingCache(), torch.zeros(3)

    def evaluate_while_another_thread_changes():
        stale = made(parameter[0].item())
        parameter.data.add_(1.0)
        cache.clear()
        cache.get("other grid", [parameter], made)
        return stale

    cache.get("grid", [parameter], evaluate_while_another_thread_changes)
    assert cache.get("grid", [parameter], lambda: made(parameter[0].item())).number == 1.0


def test_large_responses_and_those_of_chunked_layers_are_not_kept():
    large, chunked = make_layer(1).eval(), make_layer(1, execution={"mode_chunk": 2}).eval()
    large._cache.max_bytes = 10
    for layer in (large, chunked):
        evaluate(layer, torch.randn(1, 3, 8, dtype=torch.float64))
        assert len(layer._cache) == 0


def test_every_way_of_changing_parameters_and_settings_is_noticed():
    layer = make_layer(2, limits={"magnitude": 2.0}).eval()
    other = make_layer(2, seed=1, limits={"magnitude": 2.0})
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)

    def in_place():
        with torch.no_grad():
            layer.raw_scale.add_(0.5)

    def through_data():
        layer.raw_damping.data.mul_(0.5)

    def replaced():
        layer.raw_oscillation = torch.nn.Parameter(layer.raw_oscillation.detach() + 0.5)

    def loaded():
        layer.load_state_dict(other.state_dict())

    def mixing():
        with torch.no_grad():
            layer.mix_in.mul_(2)

    def limited():
        layer.limits = ResponseLimits(magnitude=0.5)

    def gained():
        layer.gain = "dc"

    for change in (in_place, through_data, replaced, loaded, mixing, limited, gained):
        before = evaluate(layer, x)
        change()
        after = evaluate(layer, x)
        assert not torch.allclose(before, after)
        torch.testing.assert_close(after, layer(x))


def test_training_and_moving_drop_the_cache():
    layer = make_layer(2).eval()
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)
    evaluate(layer, x)
    layer.train()
    assert len(layer._cache) == 0
    layer.eval()
    evaluate(layer, x)
    layer.float()
    assert len(layer._cache) == 0
    assert "_cache" not in "".join(layer.state_dict())


def test_gradients_in_evaluation_mode_reach_the_modes():
    layer = make_layer(2).eval()
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)
    evaluate(layer, x)
    layer(x).sum().backward()
    assert layer.raw_direction.grad is not None


def test_inference_mode_works_before_and_after_training():
    layer = make_layer(2).eval()
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)
    with torch.inference_mode():
        first = layer(x).clone()
    layer.train()(x).sum().backward()
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(x), first)


def test_tensors_without_numbers_are_not_kept():
    layer = make_layer(2).eval()
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        layer(mode.from_tensor(x))
    torch.testing.assert_close(evaluate(layer, x), layer(x))


def test_a_recorded_graph_evaluates_for_itself(monkeypatch):
    layer = make_layer(2).eval()
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)
    expected = evaluate(layer, x)
    monkeypatch.setattr(evaluation, "recording_graph", lambda device: True)
    monkeypatch.setattr(layer._cache, "get", None)
    torch.testing.assert_close(evaluate(layer, x), expected)


def test_many_threads_get_right_answers():
    layer = make_layer(2, dtype=torch.float32).eval()
    inputs = [torch.randn(1, 3, 5 + i % 7, 6) for i in range(14)]
    expected = [layer(x).detach() for x in inputs]
    errors: list[Exception] = []

    def work(offset: int) -> None:
        try:
            for step in range(40):
                i = (step + offset) % len(inputs)
                torch.testing.assert_close(evaluate(layer, inputs[i]), expected[i])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(5 * i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
