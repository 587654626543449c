import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounterWithBackend

from torchsonic.functional import resample
from torchsonic.testing import band_limited_field


@given(st.integers(1, 3), st.data())
def test_a_band_limited_field_is_sampled_exactly(num_axes, data):
    wavenumber = 2
    size, target = (tuple(data.draw(st.integers(5, 12)) for _ in range(num_axes)) for _ in range(2))
    coarse = band_limited_field(size, wavenumber, 2, batch=2)
    expected = band_limited_field(target, wavenumber, 2, batch=2)
    torch.testing.assert_close(resample(coarse, target), expected, rtol=1e-11, atol=1e-11)


@given(st.integers(1, 11), st.integers(0, 12))
def test_enlarging_and_shrinking_again_gives_the_input(size, extra):
    x = torch.randn(1, 2, size, size + 1, dtype=torch.float64)
    there = resample(x, (size + extra, size + 1 + extra))
    torch.testing.assert_close(resample(there, (size, size + 1)), x, rtol=1e-11, atol=1e-11)


def test_shrinking_does_not_alias():
    n = torch.arange(16, dtype=torch.float64)
    fast = torch.cos(2 * torch.pi * 7 * n / 16)[None, None]
    assert resample(fast, 8).abs().max() < 1e-12


def test_the_nyquist_wave_of_a_smaller_grid_survives_both_ways():
    def wave(n):
        return torch.cos(2 * torch.pi * 4 * torch.arange(n, dtype=torch.float64) / n)[None, None]

    for size, target in [(8, 12), (8, 13), (12, 8), (13, 8)]:
        torch.testing.assert_close(resample(wave(size), target), wave(target), rtol=1e-11, atol=1e-11)


@given(st.integers(1, 3), st.data())
def test_centred_grids_sample_the_same_field_about_its_centre(num_axes, data):
    """Sampled where they lie, as a sum of waves with the wavenumbers that both grids have."""
    size, target = (tuple(data.draw(st.integers(5, 12)) for _ in range(num_axes)) for _ in range(2))
    wavenumbers = torch.randint(-2, 3, (3, num_axes))
    phases = torch.rand(3, dtype=torch.float64)

    def field(grid):
        places = [(torch.arange(n, dtype=torch.float64) + 0.5) / n for n in grid]
        points = torch.stack(torch.meshgrid(*places, indexing="ij"), -1)
        return torch.cos(2 * torch.pi * (points @ wavenumbers.T.double() + phases)).sum(-1)[None, None]

    torch.testing.assert_close(resample(field(size), target, centred=True), field(target), rtol=1e-11, atol=1e-11)


@given(st.integers(1, 11), st.integers(0, 12))
def test_centred_grids_enlarge_and_shrink_without_loss_and_commute_with_flips(size, extra):
    x = torch.randn(1, 2, size, size + 1, dtype=torch.float64)
    there = resample(x, (size + extra, size + 1 + extra), centred=True)
    torch.testing.assert_close(resample(there, (size, size + 1), centred=True), x, rtol=1e-11, atol=1e-11)
    target = (size // 2 + 1, 2 * size)
    flipped = resample(x.flip(2).transpose(2, 3), target[::-1], centred=True)
    torch.testing.assert_close(
        flipped, resample(x, target, centred=True).flip(2).transpose(2, 3), rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("target", [4, 7, 16, 21])
def test_centred_grids_have_the_gradient_of_their_matrix_and_compile(target):
    x = torch.randn(1, 2, 12, 9, dtype=torch.float64, requires_grad=True)
    call = lambda t: resample(t, target, centred=True)  # noqa: E731
    assert torch.autograd.gradcheck(call, (x,))
    assert torch.autograd.gradgradcheck(call, (x,))
    torch.testing.assert_close(torch.compile(call, backend="aot_eager", fullgraph=True)(x), call(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(call(x.float()), call(x).float(), rtol=1e-5, atol=1e-5)


def test_half_precision_comes_back_in_half_precision():
    x = torch.randn(1, 1, 15)
    y = resample(x.bfloat16(), 21)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), resample(x, 21), rtol=0.05, atol=0.05)


def test_an_empty_batch_gives_an_empty_batch_and_gradient():
    x = torch.zeros(0, 3, 8, 9, requires_grad=True)
    y = resample(x, (4, 12))
    assert y.shape == (0, 3, 4, 12)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_gradients_flow_through_resampling():
    x = torch.randn(1, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: resample(t, (7, 4)), (x,))


@pytest.mark.parametrize(
    ("x", "size", "error", "words"),
    [
        (torch.zeros(2, 3), 4, ValueError, "1 to 3 axes"),
        (torch.zeros(1, 1, 4, dtype=torch.long), 4, TypeError, "floating-point"),
        (torch.zeros(1, 1, 4), (4, 4), ValueError, "1 or 1 positive integers"),
        (torch.zeros(1, 1, 4), 0, ValueError, "positive integers"),
        (torch.zeros(1, 1, 0), 4, ValueError, "empty axis"),
    ],
)
def test_bad_input_is_refused_by_name(x, size, error, words):
    with pytest.raises(error, match=words):
        resample(x, size)


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5)])
def test_nothing_is_resampled_to_nothing(shape):
    x = torch.zeros(shape, requires_grad=True)
    for run in (resample, torch.compile(resample, fullgraph=True, backend="aot_eager")):
        y = run(x, (8, 3))
        assert y.shape == (*shape[:2], 8, 3)
        assert torch.autograd.grad(y.sum(), x)[0].shape == shape


def test_compiled_resampling_needs_one_graph_for_odd_and_even_sizes():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(resample, fullgraph=True, dynamic=True, backend=counter)
    for size, target in [((8, 9), (5, 12)), ((7, 6), (4, 11)), ((9, 10), (6, 13)), ((10, 5), (3, 8))]:
        x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
        y, expected = compiled(x, target), resample(x, target)
        weight = torch.randn_like(y)
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(*(torch.autograd.grad(t, x, weight)[0] for t in (y, expected)))
    assert counter.frame_count == 1
