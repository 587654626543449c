"""First layers of classifiers: one field, sampled anyhow, on the network's own grid."""

import pytest
import torch

import torchsonic
from torchsonic.functional import resample
from torchsonic.models import DeepStem, ReferenceGrid, SonicStem
from torchsonic.testing import relative_error

STEMS = {
    "grid": lambda: ReferenceGrid(spacing=(2.0, 0.5)),
    "linear": lambda: SonicStem(3, 4, num_modes=8, spacing=(2.0, 0.5)),
    "deep": lambda: DeepStem(3, 4, num_modes=8, spacing=(2.0, 0.5)),
    "deep, input": lambda: DeepStem(3, 4, num_modes=8, spacing=(2.0, 0.5), grid="input"),
}


@pytest.mark.parametrize("name", STEMS)
@pytest.mark.parametrize("spacing", [None, 1.0, (1.5, 0.7), torch.tensor([[3.0, 0.4]] * 2)], ids=str)
def test_a_stem_knows_the_size_and_spacing_of_its_output(name, spacing):
    stem, x = STEMS[name](), torch.randn(2, 3, 21, 26)
    y, step = stem.walk(x, spacing)
    assert stem.output_size((21, 26), spacing) == tuple(y.shape[2:])
    given = torch.as_tensor((2.0, 0.5) if spacing is None else spacing).double().expand(2, 2)
    extent = torch.tensor([21.0, 26.0]) * given
    told = torch.as_tensor(step).double().expand(2, 2)
    torch.testing.assert_close(told * torch.tensor(y.shape[2:]), extent)
    if name == "grid":
        torch.testing.assert_close(stem.output_spacing((21, 26), spacing).expand(2, 2), told)
        assert (told <= torch.tensor([2.0, 0.5]) * (1 + 1e-6)).all()


@pytest.mark.parametrize("kind", ["linear", "deep", "local"])
@pytest.mark.parametrize("size", [(24, 20), (25, 40), (31, 21)])
def test_features_and_gradients_are_those_of_the_field(kind, size):
    """In float64 no more than rounding is left of the sampling."""
    torch.manual_seed(0)
    stem = torchsonic.create_model("sonic_tiny", widths=(8,), depths=(1,), stem=kind, spacing=0.3).stem.double()
    results = []
    x = torch.randn(2, 3, 24, 20, dtype=torch.float64, requires_grad=True)
    for samples in (x, resample(x, size)):
        y = stem(samples, spacing=(0.3 * 24 / samples.shape[2], 0.3 * 20 / samples.shape[3]))
        weight = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).sin().view_as(y)
        results.append((y, torch.autograd.grad((weight * y).sum(), [x, *stem.parameters()])))
    (expected, gradients), (got, others) = results
    assert expected.std() > 0.01
    assert relative_error(got, expected) < 1e-10
    largest = max(gradient.abs().max() for gradient in gradients)
    for gradient, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(other, gradient, rtol=1e-8, atol=1e-10 * float(largest))


def test_an_image_on_the_grid_stays_as_it_is():
    to_grid, x = ReferenceGrid(spacing=0.3), torch.randn(1, 1, 7, 8)
    assert to_grid(x) is x
    assert to_grid(x, spacing=0.3) is x
    assert "spacing=(0.3, 0.3)" in repr(to_grid)


def test_what_is_no_image_is_named():
    to_grid = ReferenceGrid()
    with pytest.raises(ValueError, match=r"ReferenceGrid expects \(batch, channel, 2 axes\), got shape \(3, 8, 8\)"):
        to_grid(torch.randn(3, 8, 8))
    with pytest.raises(TypeError, match=r"ReferenceGrid expects real floating-point input, got torch.int64"):
        to_grid(torch.zeros(1, 3, 8, 8, dtype=torch.long))
