"""What the page claims: SONIC does the same on every grid, the others do not."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from torchsonic.explorer.filters import (
    Subject,
    bank_of,
    compare_operators,
    kernel_of,
    mode_magnitude,
    mode_of,
    relative_difference,
)
from torchsonic.explorer.images import DETAIL, REFERENCE, SAMPLES, as_field, sample_field
from torchsonic.explorer.knobs import ModeValues
from torchsonic.functional import resample, sonic_conv

VALUES = ModeValues()
GRIDS = [(128, 128), (97, 97), (226, 113), (100, 400), (512, 512), (201, 333)]


@pytest.mark.parametrize("size", GRIDS)
@pytest.mark.parametrize("make", [mode_of, bank_of])
def test_sonic_stays_the_same_on_every_grid_that_holds_the_image(size, make):
    result = compare_operators(Subject(sample_field("shapes")), make(VALUES), size)
    assert result.lost < 1e-5
    assert result.sonic.difference < 1e-5
    assert result.conv.difference > 0.01
    assert result.gfnet.difference > 0.01


def test_all_three_repeat_themselves_on_the_reference_grid():
    result = compare_operators(Subject(sample_field("fibres")), mode_of(VALUES), REFERENCE)
    for outcome in (result.sonic, result.conv, result.gfnet):
        assert outcome.difference < 1e-5


def test_gfnet_equals_sonic_on_the_reference_grid():
    subject = Subject(sample_field("shapes"))
    result = compare_operators(subject, mode_of(VALUES), REFERENCE)
    direct = sonic_conv(subject.centred[None, None], mode_of(VALUES).modes, spacing=1.0)[0, 0]
    assert relative_difference(result.gfnet.sampled, direct) < 1e-5
    assert relative_difference(result.sonic.reference, direct) < 1e-5


def test_the_coarsest_grid_loses_detail_and_says_how_much():
    subject = Subject(sample_field("shapes"))
    result = compare_operators(subject, mode_of(VALUES), (48, 48))
    assert 0.05 < result.lost < result.sonic.difference < 1.2 * result.lost


def test_nine_taps_are_the_least_squares_fit():
    subject = Subject(sample_field("rings"))
    target = sonic_conv(subject.centred[None, None], mode_of(VALUES).modes, spacing=1.0)[0, 0]
    taps, output = subject.fit_taps(target)
    padded = F.pad(subject.centred[None, None], (1, 1, 1, 1), mode="circular")
    columns = F.unfold(padded, 3)[0].double()
    ridge = 1e-3 * columns.square().sum(1).mean() * torch.eye(9, dtype=torch.float64)
    expected = torch.linalg.solve(columns @ columns.mT + ridge, columns @ target.flatten().double())
    assert torch.allclose(taps.flatten().double(), expected, rtol=1e-3, atol=1e-4)
    assert torch.allclose(output, F.conv2d(padded, taps[None, None])[0, 0], atol=1e-4)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_band_limited_and_not_empty(name):
    field = sample_field(name)
    assert field.shape == REFERENCE
    assert field.std() > 0.02
    back = resample(resample(field[None, None], DETAIL + 1), REFERENCE)[0, 0]
    assert relative_difference(back, field) < 1e-5


def test_band_limiting_keeps_what_is_slow():
    wave = 0.5 + 0.4 * torch.cos(2 * math.pi * 20 * torch.arange(512) / 512).expand(512, 512)
    expected = 0.5 + 0.4 * torch.cos(2 * math.pi * 20 * torch.arange(256) / 256).expand(256, 256)
    assert torch.allclose(as_field(wave), expected, atol=1e-5)


def test_a_mode_points_where_its_angle_says():
    up_right = ModeValues(orientation=45, oscillation=0, transverse=2)
    kernel = kernel_of(mode_of(up_right), REFERENCE, 1.0)[0]
    strongest = np.unravel_index(int(kernel[:124, 132:].argmax()), (124, 124))
    assert kernel[128 - 12, 128 + 12] > 10 * kernel[128 + 12, 128 - 12].abs()
    assert strongest[0] > strongest[1]  # near the origin, above it and to the right
    response = mode_magnitude(mode_of(ModeValues(orientation=90, oscillation=4)), 1.0, 65)
    row, column = divmod(int(response.argmax()), 65)
    assert row < 32  # a mode that looks up resonates at upward frequencies
    assert abs(column - 32) <= 1
    assert (32 - row) / 32.5 == pytest.approx(4 / 8, abs=0.04)  # at Im a / s


def test_the_peak_of_a_mode_is_the_inverse_of_its_decay():
    values = ModeValues(orientation=0, damping=0.25, oscillation=0)
    assert float(mode_magnitude(mode_of(values), 1.0, 101).max()) == pytest.approx(4.0, rel=1e-3)


def test_words_about_a_mode_are_those_of_its_kernel():
    meaning = ModeValues(scale=8, damping=0.5, oscillation=4, transverse=9).describe()
    assert meaning == pytest.approx(
        {"decay_length": 16.0, "angular_frequency": 0.5, "wavelength": 4 * math.pi, "width": 6.0}
    )
    assert ModeValues(oscillation=0).describe()["wavelength"] is None
