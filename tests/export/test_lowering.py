"""The operator as exporters get it equals the one that trains."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.layers import make_layer
from torchsonic.engine.lowering import lowering
from torchsonic.export.lowering.dense import analysis_matrices, dense_analyse
from torchsonic.export.lowering.exporting import Exporting
from torchsonic.export.lowering.radix import factorise
from torchsonic.functional import ORDERS, Band, resample
from torchsonic.testing import relative_error

# With the first responses and matrices are constants, with the second they are computed along the way.
BUDGETS = [1 << 30, 0]
LIMITS = {"limits": {"band_order": 2, "magnitude": 1.5, "soft": True}}


def run(layer, *arguments, transforms="matmul", budget=0, **options):
    export = Exporting(transforms, constant_bytes=budget)
    with torch.no_grad(), export.active():
        return layer(*arguments, **options)


@given(
    st.sampled_from(ORDERS),
    st.sampled_from(["circular", "zeros", "reflect"]),
    st.sampled_from(["exact", "paper"]),
    st.sampled_from(["matmul", "fft"]),
    st.sampled_from(BUDGETS),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_portable_operator_equals_the_eager_one(order, padding, variant, transforms, budget, size, out_size):
    layer = make_layer(2, (2, 3), 4, padding_mode=padding, execution={"order": order}, variant=variant, field=8)
    x = torch.randn(2, 2, *size, dtype=torch.float64)
    expected = layer(x, (0.8, 1.7), out_size)
    actual = run(layer, x, (0.8, 1.7), out_size, transforms=transforms, budget=budget)
    assert relative_error(actual, expected) < 1e-10


@pytest.mark.parametrize("padding", ["circular", "reflect"])
@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize("size", [(40, 5), (45, 6), (64, 7), (36, 4, 5)])
def test_axes_with_factors_take_two_steps(size, variant, padding):
    assert factorise(size[0]) is not None
    layer = make_layer(len(size), variant=variant, padding_mode=padding, field=8)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    for budget in BUDGETS:
        assert relative_error(run(layer, x, budget=budget), layer(x)) < 1e-10


@pytest.mark.parametrize("transforms", ["matmul", "fft"])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize("size", [(7,), (8,), (1,), (4, 3, 5), (2, 4, 6)])
def test_in_one_and_three_dimensions_and_with_strides(size, variant, budget, transforms):
    for stride in (1, 2):
        layer = make_layer(len(size), variant=variant, stride=stride, spacing=(2.0, 0.5, 1.0)[: len(size)], field=8)
        x = torch.randn(2, 3, *size, dtype=torch.float64)
        assert relative_error(run(layer, x, transforms=transforms, budget=budget), layer(x)) < 1e-10


@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize(
    "options", [LIMITS, {"limits": {"magnitude": 0.7}}, {"gain": "dc"}, {"gain": "free", "limits": {"band_order": 4}}]
)
def test_limits_and_gains_are_the_same(options, variant):
    layer = make_layer(2, variant=variant, field=8, **options)
    x = torch.randn(2, 3, 6, 7, dtype=torch.float64)
    for budget in BUDGETS:
        assert relative_error(run(layer, x, 0.5, budget=budget), layer(x, 0.5)) < 1e-10


@pytest.mark.parametrize("variant", ["exact", "paper"])
def test_each_sample_may_have_its_spacing(variant):
    layer = make_layer(2, variant=variant, field=8)
    x = torch.randn(3, 3, 6, 7, dtype=torch.float64)
    spacing = torch.rand(3, 2, dtype=torch.float64) + 0.5
    assert relative_error(run(layer, x, spacing), layer(x, spacing)) < 1e-10


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=3), st.booleans())
def test_resampling_is_one_real_product_per_axis(sizes, centred):
    x = torch.randn(2, 3, *[n for n, _ in sizes], dtype=torch.float64)
    target = [m for _, m in sizes]
    export = Exporting()
    with export.active():
        actual = resample(x, target, centred=centred)
    assert relative_error(actual, resample(x, target, centred=centred)) < 1e-12


@pytest.mark.parametrize("size", [1000, 1009, 1024])
def test_large_transforms_lose_no_digits_in_float32(size):
    band = Band((size,), (size,))
    x = torch.randn(1, 1, size)
    z = dense_analyse(x, analysis_matrices(band, (size,), torch.float32), band)[0, 0]
    expected = np.fft.rfft(x[0, 0].double().numpy()) / size
    assert np.abs(z[0].numpy() + 1j * z[1].numpy() - expected).max() < 1e-6 * np.abs(expected).max()


def test_nothing_is_portable_outside_an_export():
    layer, x = make_layer(2), torch.randn(1, 3, 5, 6, dtype=torch.float64)
    export = Exporting()
    assert lowering() is None
    with export.active():
        assert lowering() is export
    with pytest.raises(ValueError, match="channels"), export.active():
        layer(x[:, :2])
    assert lowering() is None
    assert layer(x).requires_grad
