"""A law that cannot fail is no law: layers that break them must be caught."""

import pytest
import torch

from tests.layers import make_layer
from torchsonic import SonicConv2d, testing


class ForgetsSpacing(SonicConv2d):
    def forward(self, x, spacing=None, output_size=None):
        return super().forward(x, 1.0, output_size)


class SeesPosition(SonicConv2d):
    def forward(self, x, spacing=None, output_size=None):
        return super().forward(x * torch.linspace(0, 1, x.shape[-1], dtype=x.dtype), spacing, output_size)


class LosesGradient(SonicConv2d):
    def forward(self, x, spacing=None, output_size=None):
        return super().forward(x.detach() + 0.5 * (x - x.detach()), spacing, output_size)


class DependsOnOrder(SonicConv2d):
    def forward(self, x, spacing=None, output_size=None):
        return super().forward(x, spacing, output_size) * (1.001 if self.order == "channels" else 1.0)


class HasUnits(SonicConv2d):
    def forward(self, x, spacing=None, output_size=None):
        return super().forward(x, spacing, output_size) * (1 + self.reference_spacing[0])


def broken(kind):
    torch.manual_seed(0)
    return kind(2, 3, num_modes=4, dtype=torch.float64)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (ForgetsSpacing, lambda layer: testing.assert_matches_dense(layer, (5, 6), 2.0)),
        (ForgetsSpacing, lambda layer: testing.assert_resolution_invariant(layer, [(8, 8), (16, 16)])),
        (SeesPosition, lambda layer: testing.assert_shift_equivariant(layer, (5, 6))),
        (SeesPosition, lambda layer: testing.assert_permutes_with_axes(layer, (5, 6))),
        (SeesPosition, lambda layer: testing.assert_turns_with_image(layer, 6)),
        (LosesGradient, lambda layer: testing.assert_gradients_match_dense(layer, (3, 4))),
        (DependsOnOrder, lambda layer: testing.assert_orders_agree(layer, (3, 4))),
        (HasUnits, lambda layer: testing.assert_unit_free(layer, (3, 4))),
    ],
)
def test_a_broken_layer_is_caught(kind, law):
    law(broken(SonicConv2d))
    with pytest.raises(AssertionError, match="relative error"):
        law(broken(kind))


class AddsCheckerboard(SonicConv2d):
    def forward(self, x, spacing=None, output_size=None):
        y = super().forward(x, spacing, output_size)
        i, j = (torch.arange(n, dtype=x.dtype) for n in y.shape[2:])
        return y + (-1) ** (i[:, None] + j)


def test_a_pattern_that_the_input_lacks_is_caught():
    with pytest.raises(AssertionError, match="frequencies that the input lacks"):
        testing.assert_resolution_invariant(broken(AddsCheckerboard), [(8, 8), (16, 16)])


def test_a_gradient_that_should_be_zero_is_caught():
    layer = make_layer(1)
    original = layer.forward
    layer.forward = lambda *a, **k: original(*a, **k) + layer.raw_transverse.sum() * 1e-3  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="gradient of raw_transverse"):
        testing.assert_gradients_match_dense(layer, (5,))


def test_a_transverse_penalty_on_the_axis_is_caught():
    layer = make_layer(2)
    original = layer._shape

    def penalised(*given):
        shape = original(*given)
        return shape._replace(transverse=shape.transverse + 0.1)

    layer._shape = penalised  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match=r"exponential|relative error"):
        testing.assert_state_space_limit(layer)


@pytest.mark.parametrize(
    ("law", "least", "most"),
    [
        (lambda layer: testing.assert_shift_equivariant(layer, (16, 16)), 0.02, 2.0),
        (lambda layer: testing.assert_permutes_with_axes(layer, (16, 16)), 0.2, 5.0),
        (lambda layer: testing.assert_resolution_invariant(layer, [(16, 16), (32, 32)]), 0.1, 5.0),
    ],
)
def test_the_papers_variant_breaks_the_laws_that_the_exact_one_keeps(law, least, most):
    torch.manual_seed(0)
    law(SonicConv2d(4, 4, num_modes=8, dtype=torch.float64))
    with pytest.raises(AssertionError, match="relative error") as caught:
        law(SonicConv2d(4, 4, num_modes=8, variant="paper", dtype=torch.float64))
    error = float(str(caught.value).split("relative error ")[1].split()[0])
    assert least < error < most


def test_grids_that_cannot_hold_the_field_are_refused():
    with pytest.raises(ValueError, match="does not resolve"):
        testing.assert_resolution_invariant(make_layer(1), [(6,)])
    with pytest.raises(ValueError, match="two axes"):
        testing.assert_turns_with_image(make_layer(3), 4)
