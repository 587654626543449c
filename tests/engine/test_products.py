"""Products with the mixing matrices, by whichever library runs them."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchsonic
from torchsonic.engine import products

needs_onednn = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this build of PyTorch has no oneDNN"
)


@pytest.fixture(params=["batched", *(pytest.param(way, marks=needs_onednn) for way in ("apart", "joined"))])
def way(request, monkeypatch):
    monkeypatch.setattr(products, "_onednn_helps", lambda: request.param != "batched")
    monkeypatch.setattr(products, "SAMPLE_WORK", 0 if request.param == "apart" else float("inf"))
    monkeypatch.setattr(products, "JOINED_WORK", 0)
    if request.param != "batched":
        assert products._way(torch.ones(2, 3, 4), 5) == request.param
    return request.param


def close(actual, expected):
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)


def test_products_are_those_of_matrices(way):
    matrix, signals = torch.randn(6, 5), torch.randn(3, 5, 4, 7)
    expected = torch.einsum("rc,bcij->brij", matrix.double(), signals.double())
    close(products.mix(matrix, signals), expected)
    close(products.mix(matrix.mT.contiguous().mT, signals[:1]), expected[:1])
    y, bias = torch.full((3, 6, 4, 7), torch.nan), torch.randn(6)
    products.add_product(y, matrix, signals, first=True, bias=bias)
    close(y, expected + bias.double()[:, None, None])
    products.add_product(y, matrix, signals, first=True)
    products.add_product(y, matrix, signals, first=False, bias=bias)
    close(y, 2 * expected)
    for a, b in ((y, signals), (signals, y)):
        close(products.correlate(a, b), torch.einsum("brij,bcij->rc", a.double(), b.double()))


def test_a_layer_has_the_same_output_and_gradients(way):
    layer, x = torchsonic.SonicConv2d(4, 6, num_modes=3), torch.randn(2, 4, 6, 5, requires_grad=True)
    reference, wide = (
        torchsonic.SonicConv2d(4, 6, num_modes=3, dtype=torch.float64),
        x.detach().double().requires_grad_(),
    )
    reference.load_state_dict(layer.state_dict())
    for order in torchsonic.functional.ORDERS:
        layer.order = order
        y, expected = layer(x), reference(wide)
        grad = torch.randn_like(y)
        found = torch.autograd.grad(y, [x, *layer.parameters()], grad)
        wanted = torch.autograd.grad(expected, [wide, *reference.parameters()], grad.double())
        for a, b in zip((y, *found), (expected, *wanted), strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4 * b.abs().max().item())


def test_counters_see_every_product(way):
    with FlopCounterMode(display=False) as counter:
        products.mix(torch.randn(6, 5), torch.randn(3, 5, 8))
    assert counter.get_total_flops() == 2 * 6 * 5 * 3 * 8
