import pytest
import torch

from tests.baselines.operators import assert_same_with_gradients, average_cells, make_operator
from torchsonic.baselines import DoubleAttention


def matrix(layer):
    return layer.weight.flatten(1)


@pytest.mark.parametrize("size", [(9,), (5, 4), (3, 1), (2, 3, 4)])
@pytest.mark.parametrize("channels", [(3, 3), (3, 4)])
@pytest.mark.parametrize("skip", [True, False])
def test_matches_gathering_and_sharing_place_by_place(size, channels, skip):
    layer = make_operator("double_attention", channels, stride=2, spatial_dims=len(size), skip=skip)

    def reference(x):
        rows = []
        for sample in x.flatten(2):
            features, gather, share = (matrix(part) @ sample for part in (layer.phi, layer.theta, layer.rho))
            descriptors = []
            for scores in gather:
                weights = torch.exp(scores)
                descriptors.append(sum(features[:, j] * weights[j] for j in range(len(weights))) / weights.sum())
            outputs = []
            for i in range(sample.shape[1]):
                weights = torch.exp(share[:, i])
                mixed = sum(g * w for g, w in zip(descriptors, weights, strict=True)) / weights.sum()
                outputs.append(matrix(layer.out) @ mixed)
            y = torch.stack(outputs, -1)
            if skip:
                y = y + (sample if channels == (3, 3) else matrix(layer.skip) @ sample)
            rows.append(y)
        return average_cells(torch.stack(rows).unflatten(2, size), layer.stride)

    assert_same_with_gradients(layer, reference, torch.randn(2, 3, *size, dtype=torch.float64))


def test_parameter_count_is_that_of_the_docstring():
    layer = DoubleAttention(8, 16, hidden=3, num_maps=5)
    assert sum(p.numel() for p in layer.parameters()) == 8 * (3 + 2 * 5) + 3 * 16 + 8 * 16
    assert (DoubleAttention(16, 16).hidden, DoubleAttention(4, 4).num_maps) == (4, 2)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="num_maps must be at least 1, got 0"):
        DoubleAttention(3, 3, num_maps=0)
