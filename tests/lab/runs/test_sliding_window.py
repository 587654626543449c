"""Windows cover every voxel, weigh as they should, and disappear where one of them is enough."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import torchsonic
from torchsonic.lab.runs.volumes.sliding_window import gaussian_weights, sliding_window, window_starts


def make_network():
    torch.manual_seed(0)
    return torchsonic.create_model(
        "sonicnet3d.light", in_channels=2, num_classes=3, width=8, depth=2, num_modes=6
    ).eval()


@given(st.integers(1, 60), st.integers(1, 30), st.floats(0, 0.9))
def test_windows_cover_an_axis_and_overlap_enough(size, window, overlap):
    starts = window_starts(size, window, overlap)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    if size <= window:
        assert starts == [0]
        return
    assert starts[-1] == size - window
    farthest = max(1, int(window * (1 - overlap)))
    assert all(b - a <= farthest for a, b in pairwise(starts))


def test_one_window_that_covers_the_case_is_a_single_forward():
    model, image = make_network(), torch.randn(2, 6, 10, 12)
    spacing = (5.0, 1.0, 1.5)
    with torch.no_grad():
        whole = sliding_window(lambda x: model(x, spacing=spacing), image, (6, 10, 12))
        assert torch.equal(whole, model(image[None], spacing=spacing)[0])


def test_a_smaller_case_is_a_single_forward_of_the_padded_one():
    model, image = make_network(), torch.randn(2, 3, 10, 7)
    padded = nn.functional.pad(image[None], (1, 2, 0, 0, 2, 3), mode="replicate")
    with torch.no_grad():
        result = sliding_window(model, image, (8, 10, 10))
        assert result.shape == (3, 3, 10, 7)
        assert torch.equal(result, model(padded)[0, :, 2:5, :, 1:8])


@given(
    st.tuples(*[st.integers(1, 9)] * 3),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.sampled_from([0.0, 0.25, 0.5, 0.8]),
    st.integers(1, 4),
)
def test_what_looks_at_single_voxels_does_not_see_the_windows(size, window, overlap, batch):
    image = torch.randn(2, *size)
    result = sliding_window(lambda x: x.square() + 1, image, window, overlap=overlap, batch=batch)
    torch.testing.assert_close(result, image.square() + 1, rtol=1e-5, atol=1e-5)


def test_the_result_is_the_weighted_mean_over_windows():
    model, image, window = make_network(), torch.randn(2, 7, 12, 12), (4, 8, 8)
    with torch.no_grad():
        result = sliding_window(model, image, window, batch=3)
        total, mass, weights = torch.zeros(3, 7, 12, 12), torch.zeros(7, 12, 12), gaussian_weights(window)
        for d in (0, 2, 3):  # the last one is moved in
            for h in (0, 4):
                for w in (0, 4):
                    box = (slice(d, d + 4), slice(h, h + 8), slice(w, w + 8))
                    total[(slice(None), *box)] += weights * model(image[(None, slice(None), *box)])[0]
                    mass[box] += weights
    torch.testing.assert_close(result, total / mass)


def test_windows_agree_with_monai():
    inferers = pytest.importorskip("monai.inferers", reason="monai is not installed")
    model, image = make_network(), torch.randn(2, 8, 16, 12)
    with torch.no_grad():
        ours = sliding_window(model, image, (4, 8, 6), overlap=0.5)
        theirs = inferers.sliding_window_inference(image[None], (4, 8, 6), 2, model, overlap=0.5, mode="gaussian")[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_weights_are_symmetric_highest_in_the_middle_and_never_zero():
    weights = gaussian_weights((5, 8, 9))
    assert weights.shape == (5, 8, 9)
    for axis in range(3):
        torch.testing.assert_close(weights, weights.flip(axis))
    assert weights[2, 3, 4] == weights.max()
    assert weights.min() >= 1e-3


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="overlap must be in"):
        sliding_window(nn.Identity(), torch.zeros(1, 4, 4, 4), (2, 2, 2), overlap=1.0)
    with pytest.raises(ValueError, match=r"image must be \(C, 3 axes\)"):
        sliding_window(nn.Identity(), torch.zeros(4, 4, 4), (2, 2, 2))
