import pytest
import torch

from tests.baselines.operators import assert_same_with_gradients, average_cells, make_operator
from torchsonic.baselines import NonLocal


def matrix(layer):
    return layer.weight.flatten(1)


def places_by_definition(features, size, subsample):
    """Largest of each cell, one by one: ``(H, places)``."""
    grid = features.reshape(-1, *size)
    cells = torch.cartesian_prod(*[torch.arange(0, n, subsample) for n in size]).reshape(-1, len(size))
    blocks = [grid[(slice(None), *[slice(i, i + subsample) for i in cell])].flatten(1).amax(1) for cell in cells]
    return torch.stack(blocks, -1)


@pytest.mark.parametrize("size", [(9,), (5, 4), (3, 1), (2, 3, 4)])
@pytest.mark.parametrize("options", [{}, {"subsample": 2}, {"skip": False}])
@pytest.mark.parametrize("channels", [(3, 3), (3, 4)])
def test_matches_sums_over_pairs_of_places(size, options, channels):
    layer = make_operator("non_local", channels, stride=2, spatial_dims=len(size), **options)

    def reference(x):
        rows = []
        for sample in x.flatten(2):
            query = matrix(layer.theta) @ sample
            key, value = (
                places_by_definition(matrix(part) @ sample, size, layer.subsample) for part in (layer.phi, layer.g)
            )
            outputs = []
            for i in range(sample.shape[1]):
                weights = torch.exp(torch.stack([query[:, i] @ key[:, j] for j in range(key.shape[1])]))
                outputs.append(matrix(layer.out) @ (value * weights / weights.sum()).sum(1))
            y = torch.stack(outputs, -1)
            if layer.skip is not None:
                y = y + (sample if channels == (3, 3) else matrix(layer.skip) @ sample)
            rows.append(y)
        return average_cells(torch.stack(rows).unflatten(2, size), layer.stride)

    assert_same_with_gradients(layer, reference, torch.randn(2, 3, *size, dtype=torch.float64))


@pytest.mark.parametrize("name", ["non_local", "double_attention"])
def test_places_are_not_told_apart(name):
    layer = make_operator(name)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    order = torch.randperm(30)
    shuffled = layer(x.flatten(2)[..., order].unflatten(2, (5, 6)))
    torch.testing.assert_close(shuffled.flatten(2), layer(x).flatten(2)[..., order])


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="hidden must be at least 1, got 0"):
        NonLocal(3, 3, hidden=0)
    assert NonLocal(8, 8).hidden == 4
