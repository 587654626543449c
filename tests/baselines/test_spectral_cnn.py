import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from tests.baselines.operators import assert_same_with_gradients, make_operator
from torchsonic.baselines import SpectralCNN

CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def kernel_by_definition(layer):
    """The Fourier series of the stored coefficients, tap by tap, its real part."""
    size = layer.kernel_size
    stored = torch.view_as_complex(layer.spectrum)
    taps = []
    for place in itertools.product(*[range(-(n // 2), n // 2 + 1) for n in size]):
        total = 0
        for k in itertools.product(*map(range, stored.shape[2:])):
            phase = 2 * math.pi * sum(i * r / n for i, r, n in zip(k, place, size, strict=True))
            weight = 1 if k[-1] == 0 else 2
            total = total + weight * (stored[(..., *k)] * complex(math.cos(phase), math.sin(phase))).real
        taps.append(total / math.prod(size))
    return torch.stack(taps, -1).reshape(*stored.shape[:2], *size)


def resized_by_definition(x, target):
    """Each axis by its trigonometric series; what the smaller grid cannot hold is dropped."""
    for axis, m in enumerate(target, start=2):
        n = x.shape[axis]
        if n == m:
            continue
        shorter = min(n, m)
        matrix = torch.zeros(m, n, dtype=torch.float64)
        for k in range(-(shorter // 2), shorter // 2 + 1):
            # Both signs of the source's Nyquist wavenumber share its one coefficient.
            weight = 0.5 if 2 * abs(k) == n else 1.0
            angle = 2 * math.pi * k * (torch.arange(m).double()[:, None] / m - torch.arange(n).double() / n)
            matrix = matrix + weight / n * torch.cos(angle)
        x = torch.tensordot(matrix, x, dims=([1], [axis])).movedim(0, axis)
    return x


@pytest.mark.parametrize("size", [(9,), (7, 11), (9, 1), (5, 3, 7)])
@pytest.mark.parametrize(("stride", "band"), [(1, 1.0), (1, 0.5), (2, 1.0), (2, 0.3)])
def test_matches_a_convolution_and_a_cut_series(size, stride, band):
    layer = make_operator("spectral_cnn", (2, 3), stride=stride, spatial_dims=len(size), band=band)

    def reference(x):
        y = CONVOLVE[len(size)](x, kernel_by_definition(layer), padding=1)
        target = [-(-n // stride) for n in size]
        kept = [min(math.ceil(band * n), m) for n, m in zip(size, target, strict=True)]
        return resized_by_definition(resized_by_definition(y, kept), target)

    assert_same_with_gradients(layer, reference, torch.randn(2, 2, *size, dtype=torch.float64))


def test_without_pooling_it_is_a_small_convolution():
    layer = make_operator("spectral_cnn", band=1.0)
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x), F.conv2d(x, layer.kernel(dtype=torch.float64), padding=1))


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match=r"band must be in \(0, 1\], got 0"):
        SpectralCNN(3, 3, band=0)
    with pytest.raises(ValueError, match="kernel_size must be odd"):
        SpectralCNN(3, 3, kernel_size=4)
