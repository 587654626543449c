"""Waves at the Nyquist frequency, whose samples show their crests alone."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from torchsonic.functional import field_power, resample


@given(st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple))
def test_the_power_of_a_field_is_that_of_its_samples_on_a_finer_grid(size):
    x = torch.randn(2, 1, *size, dtype=torch.float64, requires_grad=True)
    axes = tuple(range(2, x.dim()))
    expected = resample(x, [2 * n + 1 for n in size]).square().mean(axes, keepdim=True)
    power = field_power(x, len(size))
    torch.testing.assert_close(power, expected)
    weight = torch.randn_like(power)
    (grad,) = torch.autograd.grad(power, x, weight)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, x, weight)[0])
