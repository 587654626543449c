import copy

import pytest
import torch

from tests.layers import make_layer
from tests.nn.test_paper_variant import plain_paper_operator
from torchsonic.testing import relative_error


def float32_errors(layer, x, call):
    """Relative errors of output, input gradient and parameter gradients against float64."""
    results = []
    for dtype in (torch.float32, torch.float64):
        model, t = copy.deepcopy(layer).to(dtype), x.to(dtype).requires_grad_()
        y = call(model, t)
        weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
        results.append([y, *torch.autograd.grad(y, [t, *model.parameters()], weight)])
    return [relative_error(a, b) for a, b in zip(*results, strict=True)]


@pytest.mark.parametrize("size", [(64,), (17, 24), (14, 14), (64, 64), (12, 10, 16)])
def test_float32_error_is_at_most_twice_that_of_the_papers_order(size):
    """Both against their own float64, output and gradients; geometric mean over seeds."""
    spacing = (1.0,) * len(size)

    def papers_order(layer, x):
        return plain_paper_operator(layer, x, spacing)

    ratios = []
    for seed in range(5):
        ours = make_layer(len(size), (8, 8), 8, dtype=torch.float32, seed=seed)
        theirs = make_layer(len(size), (8, 8), 8, dtype=torch.float32, seed=seed, variant="paper")
        x = torch.randn(2, 8, *size)
        errors = [float32_errors(ours, x, lambda layer, x: layer(x)), float32_errors(theirs, x, papers_order)]
        ratios.append((torch.tensor(errors[0]) / torch.tensor(errors[1])).log())
    typical = torch.stack(ratios).mean(0)
    assert typical[0].exp() <= 2  # output
    defined = typical.isfinite()  # in one dimension, direction and transverse penalty have no gradient
    assert defined.sum() >= 8
    assert typical[defined].mean().exp() <= 2  # output and all gradients together
