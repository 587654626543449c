import pytest
import torch

from tests.baselines.operators import SIZES, assert_same_with_gradients, average_cells, dense_mix, make_operator
from torchsonic.baselines import FNO
from torchsonic.functional import resample
from torchsonic.testing import relative_error


def matrix_by_definition(layer, size, k):
    """R at a signed wavenumber: stored, or the conjugate of what is stored for the opposite one, or silence."""
    if any(abs(i) >= kept or 2 * abs(i) >= n for i, kept, n in zip(k, layer.num_wavenumbers, size, strict=True)):
        return torch.zeros(layer.out_channels, layer.in_channels, dtype=torch.complex128)

    def stored(wavenumber):
        *others, last = wavenumber
        place = [i + kept - 1 for i, kept in zip(others, layer.num_wavenumbers, strict=False)]
        return torch.view_as_complex(layer.weight[(slice(None), slice(None), *place, last)])

    opposite = tuple(-i for i in k)
    if k[-1] == 0:
        return (stored(k) + stored(opposite).conj()) / 2
    return stored(k) if k[-1] > 0 else stored(opposite).conj()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pointwise", [True, False])
def test_matches_a_fourier_series(size, pointwise):
    layer = make_operator("fno", (2, 3), stride=2, spatial_dims=len(size), pointwise=pointwise)

    def reference(x):
        y = dense_mix(x, lambda k: matrix_by_definition(layer, size, k))
        if pointwise:
            y = y + torch.einsum("kc,bc...->bk...", layer.pointwise.weight.flatten(1), x)
        return average_cells(y, layer.stride)

    assert_same_with_gradients(layer, reference, torch.randn(2, 2, *size, dtype=torch.float64))


def test_parameter_count_is_the_papers():
    assert sum(p.numel() for p in FNO(5, 7, num_wavenumbers=4, pointwise=False).parameters()) == 2 * 5 * 7 * 4 * 7
    assert FNO(5, 7, num_wavenumbers=(4, 3)).weight.shape == (7, 5, 7, 3, 2)


def test_a_field_sampled_more_finely_is_the_same_and_a_larger_image_is_not():
    layer = make_operator("fno")
    x = torch.randn(2, 3, 9, 11, dtype=torch.float64)
    assert relative_error(layer(resample(x, (18, 22))), resample(layer(x), (18, 22))) < 1e-12
    assert relative_error(layer(x.tile(2, 2)), layer(x).tile(2, 2)) > 0.1


def test_what_is_not_kept_is_silent_without_the_pointwise_part():
    wave = torch.cos(2 * torch.pi * 3 * torch.arange(12, dtype=torch.float64) / 12).expand(1, 3, 12, 12)
    assert make_operator("fno", num_wavenumbers=3, pointwise=False)(wave).abs().max() < 1e-12
    assert make_operator("fno", num_wavenumbers=4, pointwise=False)(wave).abs().max() > 0.1


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="num_wavenumbers must be 1 or 2 positive integers, got 0"):
        FNO(3, 3, num_wavenumbers=0)
