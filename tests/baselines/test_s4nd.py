import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchsonic
from tests.baselines.operators import SIZES, assert_same_with_gradients, average_cells, make_operator, mix
from torchsonic.baselines import S4ND
from torchsonic.baselines.s4nd import LARGEST_MATRIX, convolve_axis
from torchsonic.testing import relative_error


def run_recurrence(layer, x, spacing):
    """The definition: discretised systems run step by step along each axis, in both directions."""
    y = x
    for axis in range(layer.num_axes):
        poles = torch.complex(-layer.log_decay[axis].exp(), layer.frequency[axis])
        step = (layer.log_step[axis].exp() * spacing[axis] / layer.reference_spacing[axis])[:, None]
        transition = torch.exp(step * poles)
        drive = (transition - 1) / poles * torch.view_as_complex(layer.drive[axis])
        readout = torch.view_as_complex(layer.readout[axis])
        signal = y.movedim(2 + axis, 0)[..., None]  # (N, B, C, ..., 1)
        shape = (-1, *[1] * (layer.num_axes - 1), layer.num_states)
        transition, drive = transition.reshape(shape), drive.reshape(shape)
        outputs = [torch.zeros_like(y.movedim(2 + axis, 0)[0]) for _ in signal]
        state = torch.zeros(())
        for n in range(len(signal)):
            state = transition * state + drive * signal[n]
            outputs[n] = outputs[n] + 2 * (readout[0].reshape(shape) * state).sum(-1).real
        state = torch.zeros(())
        for n in reversed(range(len(signal) - 1)):
            state = transition * state + drive * signal[n + 1]
            outputs[n] = outputs[n] + 2 * (readout[1].reshape(shape) * state).sum(-1).real
        y = torch.stack(outputs).movedim(0, 2 + axis)
    y = y + layer.skip.reshape(-1, *[1] * layer.num_axes) * x
    return mix(layer, average_cells(y, layer.stride))


@pytest.mark.parametrize("size", [s for s in SIZES if s != (1,)])
def test_matches_the_recurrence_of_the_system(size):
    layer = make_operator("s4nd", (2, 3), stride=2, spatial_dims=len(size))
    spacing = (0.5, 1.5, 3.0)[: len(size)]
    layer.set_spacing(spacing)
    x = torch.randn(2, 2, *size, dtype=torch.float64)
    assert_same_with_gradients(layer, lambda x: run_recurrence(layer, x, spacing), x)


@pytest.mark.parametrize("size", [LARGEST_MATRIX, LARGEST_MATRIX + 1])
@pytest.mark.parametrize("axis", [2, 3])
def test_matrix_and_transform_convolve_alike(size, axis):
    shape = [2, 3, 5, 5]
    shape[axis] = size
    x = torch.randn(shape, dtype=torch.float64)
    kernel = torch.randn(3, 2 * size - 1, dtype=torch.float64)
    lines = x.movedim(axis, -1)
    rows = F.conv1d(lines.movedim(1, 2).reshape(-1, 3, size), kernel.flip(1)[:, None], padding=size - 1, groups=3)
    expected = rows.reshape(2, 5, 3, size).movedim(1, 2).movedim(-1, axis)
    assert relative_error(convolve_axis(x, kernel, axis), expected) < 1e-12


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_parameter_count_is_the_papers(num_axes):
    layer = S4ND(5, 5, spatial_dims=num_axes)
    assert sum(p.numel() for p in layer.parameters()) == 5 * (num_axes * (8 * 40 + 1) + 1)
    if num_axes == 2:
        assert sum(p.numel() for p in layer.parameters()) == 5 * 643


@pytest.mark.parametrize("num_states", [4, 40])
@pytest.mark.parametrize("size", [32, 128])
def test_noise_neither_grows_nor_fades_at_first(num_states, size):
    layer = S4ND(128, 128, num_states=num_states)
    nn.init.zeros_(layer.skip)
    power = layer(torch.randn(2, 128, size, size)).detach().square().mean((0, 2, 3))
    assert 0.3 < power.mean().sqrt() < 3
    assert power.quantile(0.1).sqrt() > 0.1


def smooth_bump(size: int, extent: float) -> torch.Tensor:
    """A blob well inside the extent, at the centres of the cells."""
    position = (torch.arange(size, dtype=torch.float64) + 0.5) * extent / size
    line = torch.exp(-0.5 * ((position - 0.45 * extent) / 3.0) ** 2) * torch.cos(0.3 * position)
    return (line[:, None] * line)[None, None].expand(1, 3, size, size)


def test_a_finer_sampling_that_is_told_gives_nearly_the_same_field():
    # Holding the input is exact for cells of constant value and otherwise of second order in their width; outputs
    # belong to the end of each cell, so those of every second fine cell lie on those of the coarse ones.
    torch.manual_seed(0)
    layer = S4ND(3, 3).double()
    errors = []
    for size in (48, 96):
        coarse = layer(smooth_bump(size, 48.0), spacing=48.0 / size)
        fine = layer(smooth_bump(2 * size, 48.0), spacing=24.0 / size)
        kernel_part = coarse - layer.skip[:, None, None] * smooth_bump(size, 48.0)
        fine_part = fine - layer.skip[:, None, None] * smooth_bump(2 * size, 48.0)
        errors.append(relative_error(fine_part[..., 1::2, 1::2], kernel_part))
    untold = layer(smooth_bump(96, 48.0))[..., 1::2, 1::2]
    assert errors[0] < 0.015  # 0.009 here, 0.002 at half the width
    assert errors[1] < errors[0] / 3
    assert relative_error(untold, layer(smooth_bump(48, 48.0))) > 0.2


def test_only_spacing_over_reference_matters():
    metres, millimetres = make_operator("s4nd", spacing=(2.0, 3.0)), make_operator("s4nd", spacing=(2000.0, 3000.0))
    x = torch.randn(1, 3, 6, 7, dtype=torch.float64)
    torch.testing.assert_close(metres(x), make_operator("s4nd")(x))
    torch.testing.assert_close(metres(x, spacing=(1.0, 6.0)), millimetres(x, spacing=(1000.0, 6000.0)))


def test_samples_of_mixed_spacing_are_treated_each_by_its_own():
    layer = make_operator("s4nd", stride=2)
    x = torch.randn(4, 3, 6, 7, dtype=torch.float64)
    spacing = torch.tensor([[1.0, 2.0], [0.5, 0.5], [1.0, 2.0], [3.0, 1.0]])
    expected = torch.cat([layer(x[i : i + 1], spacing=spacing[i].tolist()) for i in range(4)])
    torch.testing.assert_close(layer(x, spacing=spacing), expected)
    torch.testing.assert_close(layer(x[:1], spacing=spacing[:1]), expected[:1])


def test_means_of_cells_lie_a_stride_apart_whatever_the_size():
    layer = make_operator("s4nd", stride=2, spacing=(1.0, 0.5))
    torch.testing.assert_close(layer.output_spacing((9, 8)), torch.tensor([[2.0, 1.0]], dtype=torch.float64))
    assert layer.output_size((9, 8)) == (5, 4)


def test_a_network_tells_it_the_spacing_behind_strides():
    model = nn.Sequential(make_operator("s4nd", (3, 3), stride=2), make_operator("s4nd", (3, 3), seed=1))
    x = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    expected = model(x)
    torchsonic.infer_strides(model, x)
    torch.testing.assert_close(torchsonic.set_spacing(model, 1.0)(x), expected)
    torchsonic.set_spacing(model, 0.5)
    assert model[1].spacing == (1.0, 1.0)
    torch.testing.assert_close(model(x), model[1](model[0](x, spacing=0.5), spacing=1.0))


def test_bandlimit_silences_states_too_fast_for_either_spacing():
    layer = make_operator("s4nd", (2, 2), num_states=4, bandlimit=0.5)
    free = make_operator("s4nd", (2, 2), num_states=4)
    for part in (layer, free):
        nn.init.constant_(part.log_step, math.log(0.2))  # pi m * 0.2 <= 0.5 pi up to m = 2
    x = torch.randn(1, 2, 6, 5, dtype=torch.float64)
    for spacing, kept in [(1.0, 3), (2.0, 2), (0.25, 3)]:
        limited = make_operator("s4nd", (2, 2), num_states=4)
        nn.init.constant_(limited.log_step, math.log(0.2))
        with torch.no_grad():
            limited.readout[..., kept:, :] = 0
        torch.testing.assert_close(layer(x, spacing=spacing), limited(x, spacing=spacing))
        assert relative_error(layer(x, spacing=spacing), free(x, spacing=spacing)) > 0.01


def test_axis_kernels_are_the_answer_to_an_impulse():
    layer = make_operator("s4nd", (3, 3))
    nn.init.zeros_(layer.skip)
    x = torch.zeros(1, 3, 5, 7, dtype=torch.float64)
    x[:, :, 2, 3] = 1.0
    first, second = layer.axis_kernels((5, 7), dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0], first[:, 2:7, None] * second[:, None, 3:10])


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="num_states must be at least 1, got 0"):
        S4ND(3, 3, num_states=0)
    with pytest.raises(ValueError, match=r"bandlimit must be None or a positive .* got -1"):
        S4ND(3, 3, bandlimit=-1)
    with pytest.raises(ValueError, match="spacing must be positive"):
        S4ND(3, 3, spacing=0.0)
    with pytest.raises(ValueError, match="rows for a batch of 3 samples"):
        S4ND(3, 3, num_states=2)(torch.zeros(3, 3, 4, 4), spacing=torch.ones(2, 2))
