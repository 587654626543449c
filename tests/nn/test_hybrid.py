import itertools

import pytest
import torch
from torch.autograd import gradcheck

import torchsonic
from torchsonic.nn import HybridConv, LocalConv
from torchsonic.testing import relative_error


def local(channels=(2, 4), axes=2, **options) -> LocalConv:
    torch.manual_seed(0)
    return LocalConv(*channels, spatial_dims=axes, **options).double()


def slow_local(layer: LocalConv, x: torch.Tensor, spacing) -> torch.Tensor:
    """Every tap reads the linearly interpolated, circular field at its physical place."""
    groups, per_group = layer.groups, layer.in_channels // layer.groups
    out = torch.zeros(x.shape[0], layer.out_channels, *x.shape[2:], dtype=x.dtype)
    radius = layer.kernel_size // 2
    for tap in itertools.product(range(layer.kernel_size), repeat=layer.num_axes):
        shifted = x
        for axis, index in enumerate(tap):
            offset = (index - radius) * layer.reference_spacing[axis] / spacing[axis]
            whole = int(torch.tensor(offset).floor())
            part, dim = offset - whole, 2 + axis
            shifted = (1 - part) * shifted.roll(-whole, dim) + part * shifted.roll(-whole - 1, dim)
        for k in range(layer.out_channels):
            group = k // (layer.out_channels // groups)
            for c in range(per_group):
                out[:, k] += layer.weight[(k, c, *tap)] * shifted[:, group * per_group + c]
    return out


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("factor", [1.0, 0.5, 0.3, 1.7, 5.0])
def test_taps_stay_at_their_physical_places(axes, factor):
    layer = local(axes=axes, spacing=(1.5, 0.7, 1.0)[:axes])
    spacing = [factor * d * s for d, s in zip(layer.reference_spacing, (1.0, 1.1, 0.9), strict=False)]
    x = torch.randn(2, 2, *(7, 6, 5)[:axes], dtype=torch.float64)
    torch.testing.assert_close(layer(x, spacing), slow_local(layer, x, spacing))


@pytest.mark.parametrize("mode", ["circular", "zeros", "reflect"])
def test_boundaries_are_those_of_ordinary_convolutions(mode):
    layer = local((4, 4), padding_mode=mode)
    conv = torch.nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False, padding_mode=mode).double()
    conv.weight.data.copy_(layer.weight)
    x = torch.randn(2, 4, 6, 5, dtype=torch.float64)
    torch.testing.assert_close(layer(x), conv(x))


@pytest.mark.parametrize("mode", ["circular", "zeros", "reflect"])
def test_kernels_longer_than_the_image_still_work(mode):
    layer = local((2, 2), padding_mode=mode)
    assert torch.isfinite(layer(torch.randn(1, 2, 1, 3, dtype=torch.float64), spacing=0.1)).all()


def test_a_kernel_far_larger_than_the_image_is_refused():
    with pytest.raises(ValueError, match="too fine for a local kernel"):
        local((2, 2))(torch.randn(1, 2, 16, 16, dtype=torch.float64), spacing=1e-4)


def test_gradients_are_right():
    layer = local((2, 4), stride=2)
    x = torch.randn(2, 2, 4, 6, dtype=torch.float64, requires_grad=True)

    def run(x, weight):
        return torch.func.functional_call(layer, {"weight": weight}, (x, (0.7, 1.3)))

    assert gradcheck(run, (x, layer.weight))


def test_each_sample_has_its_own_spacing():
    layer = HybridConv(2, 4, num_modes=5, spatial_dims=2).double()
    x = torch.randn(3, 2, 8, 6, dtype=torch.float64)
    spacing = torch.tensor([[1.0, 0.5], [2.0, 2.0], [1.0, 0.5]])
    expected = torch.cat([layer(x[i : i + 1], tuple(spacing[i].tolist())) for i in range(3)])
    torch.testing.assert_close(layer(x, spacing), expected)
    torch.testing.assert_close(layer(x, spacing.numpy()), expected)
    layer.set_spacing(spacing)
    torch.testing.assert_close(layer(x), expected)


def test_white_noise_leaves_both_branches_about_equally_loud():
    torch.manual_seed(0)
    layer = HybridConv(64, 64, num_modes=16, spatial_dims=2, bias=False)
    x = torch.randn(2, 64, 32, 32)
    with torch.no_grad():
        total, part = layer(x).std(), layer.local(x).std()
    assert 0.5 < part < 1.0
    assert 0.7 < total < 1.7


def test_hybrid_commutes_with_shifts():
    layer = HybridConv(3, 6, num_modes=5, spatial_dims=2).double()
    x = torch.randn(1, 3, 10, 9, dtype=torch.float64)
    assert relative_error(layer(x.roll((3, 2), (2, 3))), layer(x).roll((3, 2), (2, 3))) < 1e-12


def test_set_spacing_reaches_both_branches():
    layer = HybridConv(2, 2, num_modes=4)
    torchsonic.set_spacing(layer, (0.5, 2.0))
    assert layer.sonic.spacing == layer.local.spacing == (0.5, 2.0)
