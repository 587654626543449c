import pytest
import torch
import torch.nn.functional as F

from tests.baselines.operators import (
    SIZES,
    assert_same_with_gradients,
    average_cells,
    dense_filter,
    make_operator,
    mix,
)
from torchsonic.baselines import GFNet
from torchsonic.testing import relative_error


@pytest.mark.parametrize("size", SIZES)
def test_matches_a_dense_transform(size):
    grid = tuple(-(-n // 2) for n in size)
    layer = make_operator("gfnet", (2, 3), stride=2, spatial_dims=len(size), grid=grid)

    def reference(x):
        return mix(layer, dense_filter(average_cells(x, layer.stride), torch.view_as_complex(layer.mask)))

    assert_same_with_gradients(layer, reference, torch.randn(2, 2, *size, dtype=torch.float64))


@pytest.mark.parametrize("grid", [(5, 8), (6, 7)])
def test_interpolating_to_the_same_size_changes_nothing(grid):
    layer = make_operator("gfnet", grid=grid)
    stored = torch.view_as_complex(layer.mask)
    torch.testing.assert_close(layer.response(grid, dtype=torch.float64), stored, rtol=0, atol=0)
    # And the interpolation that other sizes go through would agree.
    finer = layer.response((2 * grid[0] - 1, 2 * (layer.mask.shape[2] * 2 - 2)), dtype=torch.float64)
    torch.testing.assert_close(finer[:, ::2, ::2], stored)


@pytest.mark.parametrize(("size", "mode"), [((11,), "linear"), ((9, 14), "bicubic"), ((4, 7, 9), "trilinear")])
def test_other_sizes_use_an_interpolated_mask(size, mode):
    layer = make_operator("gfnet", (2, 2), spatial_dims=len(size), grid=6)
    shape = (*size[:-1], size[-1] // 2 + 1)

    def reference(x):
        real, imaginary = (
            F.interpolate(p[None], shape, mode=mode, align_corners=True)[0] for p in layer.mask.unbind(-1)
        )
        return dense_filter(x, torch.complex(real, imaginary))

    assert_same_with_gradients(layer, reference, torch.randn(2, 2, *size, dtype=torch.float64))


def test_parameter_count_is_the_papers():
    assert sum(p.numel() for p in GFNet(6, 6, grid=(10, 15)).parameters()) == 2 * 6 * 10 * 8
    assert sum(p.numel() for p in GFNet(6, 5).parameters()) == 2 * 6 * 32 * 17 + 6 * 5


def test_initial_mask_has_the_papers_spread():
    assert abs(float(GFNet(64, 64).mask.detach().std()) - 0.02) < 5e-4


def test_shifting_the_input_shifts_the_output():
    layer = make_operator("gfnet")
    x = torch.randn(2, 3, 7, 10, dtype=torch.float64)
    shifted = layer(x.roll((2, 3), (2, 3)))
    assert relative_error(shifted, layer(x).roll((2, 3), (2, 3))) < 1e-12


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match=r"grid must be 1 or 2 positive integers, got \(8, 8, 8\)"):
        GFNet(3, 3, grid=(8, 8, 8))
