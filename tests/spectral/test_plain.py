"""Any of a mode's parameters may be shared by the batch or one's own, whatever the others are."""

import pytest
import torch
import torch.nn.functional as F

from torchsonic.functional import ModeShape, spectral_conv
from torchsonic.spectral.plain import plain_conv

BATCH, MODES, SIZE = 3, 4, (8, 7)


def plain(x, mix_in, mix_out, shape, *, symmetry):
    spacing = torch.ones(1, 2, dtype=x.dtype)
    return plain_conv(x, mix_in, mix_out, shape, None, spacing=spacing, out_size=SIZE, symmetry=symmetry)


def engine(x, mix_in, mix_out, shape, *, symmetry):
    return spectral_conv(x, mix_in, mix_out, shape, spacing=torch.ones(1, 2, dtype=x.dtype), symmetry=symmetry)


def one_by_one(x, mix_in, mix_out, shape, **options):
    def of(sample):
        return shape.each(lambda t: t if t.shape[0] == 1 else t[sample])

    samples = [slice(index, index + 1) for index in range(BATCH)]
    return torch.cat([plain(x[sample], mix_in, mix_out, of(sample), **options) for sample in samples])


@pytest.mark.parametrize("symmetry", ["real", "half"])
@pytest.mark.parametrize("own", ModeShape._fields[:6])
def test_parameters_of_each_sample_mix_with_shared_ones(own, symmetry):
    torch.manual_seed(0)
    draw = {"dtype": torch.float64}
    x, mix_in, mix_out = (torch.randn(size, **draw) for size in ((BATCH, 2, *SIZE), (MODES, 2, 2), (3, MODES, 2)))
    rows = [BATCH if name == own else 1 for name in ModeShape._fields[:6]]
    numbers = [torch.rand(n, MODES, **draw) + 0.5 for n in rows[1:]]
    shape = ModeShape(F.normalize(torch.randn(rows[0], MODES, 2, **draw), dim=-1), *numbers)
    shape = shape.each(lambda t: t.requires_grad_())

    def found_by(conv):
        y = conv(x, mix_in, mix_out, shape, symmetry=symmetry)
        return [y, *torch.autograd.grad(y.square().sum(), [t for t in shape if t is not None])]

    wanted = found_by(one_by_one)
    for conv in (plain, engine):
        torch.testing.assert_close(found_by(conv), wanted)
