"""An operator as plain numbers does what the layer does."""

import pytest
import torch

from tests.layers import make_layer
from torchsonic.functional import sonic_conv

LIMITS = [{}, {"band_order": 2}, {"magnitude": 0.7}, {"magnitude": 2.0, "soft": True}]
SIZES = [(1, (21,)), (2, (9, 9)), (3, (5, 5, 5))]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize(("num_axes", "size"), SIZES)
def test_applying_the_numbers_is_applying_the_layer(num_axes, size, variant, limits):
    layer = make_layer(num_axes, variant=variant, field=size[0], standardise=False, spacing=0.5, limits=limits)
    operator = layer.reference_operator()
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(sonic_conv(x, operator, layer.bias, spacing=0.5), layer(x))


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize(("num_axes", "size"), SIZES)
def test_the_symbol_is_the_transform_of_the_kernel(num_axes, size, variant, limits):
    layer = make_layer(num_axes, variant=variant, field=size[0], limits=limits)
    axes = tuple(range(2, 2 + num_axes))
    expected = torch.fft.fftn(layer.kernel(size).detach(), dim=axes).movedim((0, 1), (-2, -1))
    steps = [2 * torch.pi * torch.fft.fftfreq(n, dtype=torch.float64) for n in size]
    omega = torch.stack(torch.meshgrid(*steps, indexing="ij"), dim=-1)
    torch.testing.assert_close(layer.reference_operator().symbol(omega).detach(), expected)


def test_chosen_channels_and_modes_are_those_of_the_whole():
    operator = make_layer(2, limits={"band_order": 1}).reference_operator().to(torch.float64)
    omega = torch.randn(7, 2, dtype=torch.float64)
    whole = operator.symbol(omega)
    torch.testing.assert_close(operator.between([2, 0], [1]).symbol(omega), whole[:, [1]][..., [2, 0]])
    parts = sum(operator.select([mode]).symbol(omega) for mode in range(6))
    torch.testing.assert_close(parts, whole)


def test_the_mean_power_of_an_exact_mode_is_one():
    layer = make_layer(2, spacing=(2.0, 0.5))
    powers = layer.reference_operator().mean_powers(layer.reference_spacing)
    torch.testing.assert_close(powers.detach(), torch.ones(6, dtype=torch.float64))


def test_numbers_that_are_none_are_refused_with_the_name_of_the_layer():
    layer = make_layer(1)
    with torch.no_grad():
        layer.mix_out[0, 0] = torch.inf
    with pytest.raises(ValueError, match=r"layer stem has modes that are not finite \(mix_out\)"):
        layer.reference_operator().check_finite("stem")
    make_layer(1).reference_operator().check_finite("stem")
