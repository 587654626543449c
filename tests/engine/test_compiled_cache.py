"""Responses found again by value, in compiled evaluation."""

from types import SimpleNamespace

import pytest
import torch

from torchsonic import SonicConv2d, testing
from torchsonic.engine import cache


@pytest.fixture(autouse=True)
def nothing_kept():
    cache._by_value.entries.clear()
    yield
    cache._by_value.entries.clear()


@torch.no_grad()
def test_compiled_evaluation_reuses_responses_and_sees_every_change():
    layer = SonicConv2d(3, 5, num_modes=4).eval()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    x = torch.randn(2, 3, 9, 8)
    compiled(x)
    (kept,) = cache._by_value.entries.values()
    assert testing.relative_error(compiled(x), layer(x)) < 1e-6
    assert next(iter(cache._by_value.entries.values())) is kept, "evaluated once"
    layer.mode_parameters()[0].data.add_(0.3)
    layer.clear_cache()
    assert testing.relative_error(compiled(x), layer(x)) < 1e-6
    assert len(cache._by_value.entries) == 2
    assert testing.relative_error(compiled(x, spacing=2.0), layer(x, spacing=2.0)) < 1e-6
    assert len(cache._by_value.entries) == 3


def test_training_and_chunks_of_modes_keep_nothing():
    layer = SonicConv2d(3, 5, num_modes=4)
    x = torch.randn(2, 3, 9, 8)
    torch.compile(layer, fullgraph=True, backend="aot_eager")(x).sum().backward()
    with torch.no_grad():
        torch.compile(
            SonicConv2d(3, 5, num_modes=4, execution={"mode_chunk": 2}).eval(), fullgraph=True, backend="eager"
        )(x)
    assert not cache._by_value.entries


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(cache._by_value, "max_bytes", 3 * 160)
    for number in range(5):
        coupling = SimpleNamespace(num_bytes=160)
        cache.find_coupling([torch.tensor([float(number)])], "grid", lambda c=coupling: c)
    assert len(cache._by_value.entries) == 3
    found = cache.find_coupling([torch.tensor([4.0])], "grid", lambda: pytest.fail("was kept"))
    assert found is coupling
