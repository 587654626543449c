import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.baselines.operators import assert_same_with_gradients, make_operator
from torchsonic.baselines import RepLK
from torchsonic.baselines.replk import TRANSFORM_TAPS, depthwise_conv
from torchsonic.testing import relative_error

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
# Sizes above, near and below those of the kernels.
SIZES = [(70,), (9,), (2,), (13, 20), (5, 1), (3, 4, 6)]


def trained(num_axes, **options):
    """A layer whose norms have seen data and learnt something."""
    layer = make_operator("replk", spatial_dims=num_axes, kernel_size=33 if num_axes == 1 else 7, **options)
    with torch.no_grad():
        for branch in (layer.large, layer.small):
            branch.norm.weight.uniform_(0.5, 2.0)
            branch.norm.bias.normal_()
            branch.norm.running_mean.normal_()
            branch.norm.running_var.uniform_(0.5, 2.0)
    return layer


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_matches_two_plain_convolutions_with_norms(size, training):
    layer = trained(len(size), stride=2).train(training)

    def reference(x):
        y = 0
        for branch in (layer.large, layer.small):
            weight, norm = branch.conv.weight, branch.norm
            z = CONV[len(size)](x, weight, stride=2, padding=weight.shape[-1] // 2, groups=x.shape[1])
            y = y + F.batch_norm(z, norm.running_mean, norm.running_var, norm.weight, norm.bias, training, 0.0)
        return CONV[len(size)](y, layer.pointwise.weight)

    assert_same_with_gradients(layer, reference, torch.randn(2, 3, *size, dtype=torch.float64))


@pytest.mark.parametrize(("size", "kernel"), [((40,), 31), ((12,), 31), ((56, 30), 31), ((6, 9), 31), ((5, 6, 7), 5)])
@pytest.mark.parametrize("stride", [1, 2])
def test_transforms_and_sliding_sums_agree_in_single_precision(size, kernel, stride):
    assert kernel ** len(size) >= TRANSFORM_TAPS
    x, weight = torch.randn(2, 4, *size), torch.randn(4, 1, *[kernel] * len(size))
    bias = torch.randn(4)
    expected = CONV[len(size)](x, weight, bias, stride=stride, padding=kernel // 2, groups=4)
    actual = depthwise_conv(x, weight, bias, stride=(stride,) * len(size))
    assert relative_error(actual, expected) < 1e-5


@pytest.mark.parametrize("size", SIZES)
def test_merging_keeps_the_output(size):
    layer = trained(len(size), stride=2).float().eval()
    x = torch.randn(2, 3, *size)
    expected = layer(x)
    assert layer.merge() is layer
    assert relative_error(layer(x), expected) < 1e-5
    assert set(layer.state_dict()) == {"merged.weight", "merged.bias", "pointwise.weight"}
    weight = layer.merged.weight.clone()
    layer.merge()
    torch.testing.assert_close(layer.merged.weight, weight, rtol=0, atol=0)
    torch.testing.assert_close(layer.train()(x), layer.eval()(x), rtol=0, atol=0)
    layer.train()(x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_merging_in_training_is_refused():
    layer = make_operator("replk")
    with pytest.raises(RuntimeError, match=r"call eval\(\) before merge\(\)"):
        layer.merge()
    assert layer.merged is None


def test_defaults_are_the_papers():
    layer = RepLK(6, 7)
    assert layer.large.conv.weight.shape == (6, 1, 31, 31)
    assert layer.small.conv.weight.shape == (6, 1, 5, 5)
    assert sum(p.numel() for p in layer.parameters()) == 6 * (31**2 + 5**2 + 4) + 6 * 7
    assert isinstance(RepLK(6, 6).pointwise, nn.Conv2d)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match=r"kernel_size must be odd, .* got 30"):
        RepLK(3, 3, kernel_size=30)
    with pytest.raises(ValueError, match="small_kernel must be at most kernel_size 3, got 5"):
        RepLK(3, 3, kernel_size=3)
