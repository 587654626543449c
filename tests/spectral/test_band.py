import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchsonic.functional import Band, as_spacing, frequency_axes, frequency_grid


@given(st.integers(1, 40), st.floats(1e-3, 1e3))
def test_axes_are_numpys_frequencies_in_radians(size, spacing):
    # numpy signs the Nyquist bin of an even size negative in full and positive in half spectra, as we do.
    full = frequency_axes((size,), spacing, dtype=torch.float64)[0].numpy()
    half = frequency_axes((size,), spacing, half=True, dtype=torch.float64)[0].numpy()
    np.testing.assert_allclose(full, 2 * np.pi * np.fft.fftfreq(size, spacing), rtol=1e-12)
    np.testing.assert_allclose(half, 2 * np.pi * np.fft.rfftfreq(size, spacing), rtol=1e-12)


def test_grid_follows_array_axis_order():
    grid = frequency_grid((4, 6, 3), (1.0, 2.0, 0.5), half=True, dtype=torch.float64)
    assert grid.shape == (4, 6, 2, 3)
    axes = frequency_axes((4, 6, 3), (1.0, 2.0, 0.5), half=True, dtype=torch.float64)
    for d, axis in enumerate(axes):
        index = [0, 0, 0]
        index[d] = -1
        assert grid[tuple(index)][d] == axis[-1]


def test_resized_band_keeps_both_signs_of_the_smaller_nyquist_frequency():
    band = Band((8, 8), (6, 12))
    assert band.shape == (7, 5)
    assert band.wavenumbers(0).tolist() == [0, 1, 2, 3, -3, -2, -1]
    assert band.unsigned_axes == ()


@pytest.mark.parametrize(
    "given",
    [2.0, (2.0, 2.0), [2, 2], (2,), np.float32(2), np.array([2.0, 2.0]), torch.tensor([2.0, 2.0]), torch.tensor([2])],
)
def test_spacing_takes_numbers_sequences_and_tensors(given):
    assert as_spacing(given, 2).tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (0.0, ValueError, "positive and finite, got"),
        (-1.0, ValueError, "positive and finite"),
        (float("inf"), ValueError, "positive and finite"),
        (float("nan"), ValueError, "positive and finite"),
        ((1.0, 2.0, 3.0), ValueError, "1 or 2 values"),
        ((), ValueError, "1 or 2 values"),
        (torch.ones(3), ValueError, "1 or 2 values"),
        (torch.ones(3, 2), ValueError, "same for all samples"),
        (torch.tensor([1.0, -1.0]), ValueError, "positive and finite"),
        (torch.ones(2, dtype=torch.complex64), TypeError, "real numbers"),
        (torch.ones(2, requires_grad=True), ValueError, "detach"),
        ("1.0 mm", TypeError, "must be a number"),
        (None, TypeError, "must be a number"),
        (True, TypeError, "must be a number"),
    ],
)
def test_bad_spacing_is_refused_by_name(given, error, words):
    with pytest.raises(error, match=words) as caught:
        as_spacing(given, 2)
    assert "spacing" in str(caught.value)


def test_a_spacing_belongs_to_whoever_asked_for_it():
    as_spacing(1.25, 2).mul_(2)
    assert as_spacing(1.25, 2).tolist() == [[1.25, 1.25]]


def test_per_sample_spacing_must_match_the_batch():
    assert as_spacing(torch.ones(4, 2), 2, batch=4).shape == (4, 2)
    with pytest.raises(ValueError, match="3 rows for a batch of 4"):
        as_spacing(torch.ones(3, 2), 2, batch=4)


@pytest.mark.parametrize("size", [(), (0,), (4, 0)])
def test_empty_sizes_are_refused(size):
    with pytest.raises(ValueError, match="size must be positive integers"):
        frequency_axes(size)
