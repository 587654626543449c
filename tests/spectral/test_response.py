import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.layers import make_layer
from torchsonic.functional import frequency_grid, grid_gain, mode_response, reference_gain


def random_modes(num_modes, num_axes):
    direction = torch.nn.functional.normalize(torch.randn(num_modes, num_axes, dtype=torch.float64), dim=-1)
    scale = torch.rand(num_modes, dtype=torch.float64) + 0.5
    pole = torch.complex(
        -0.05 - torch.rand(num_modes, dtype=torch.float64), torch.randn(num_modes, dtype=torch.float64)
    )
    return direction, scale, pole, torch.rand(num_modes, dtype=torch.float64)


@given(st.integers(1, 3))
def test_response_is_the_papers_formula(num_axes):
    direction, scale, pole, transverse = random_modes(5, num_axes)
    omega = torch.randn(7, num_axes, dtype=torch.float64)
    response = mode_response(omega, direction, scale, pole, transverse)
    for m in range(5):
        for n in range(7):
            along = omega[n] @ direction[m]
            across = omega[n] - along * direction[m]
            expected = 1 / (1j * scale[m] * along - pole[m] + transverse[m] * across @ across)
            torch.testing.assert_close(response[m, n], expected)


@given(st.integers(1, 3))
def test_response_is_bounded_by_the_damping(num_axes):
    direction, scale, pole, transverse = random_modes(5, num_axes)
    response = mode_response(100 * torch.randn(50, num_axes, dtype=torch.float64), direction, scale, pole, transverse)
    assert (response.abs() <= (1 + 1e-12) / -pole.real[:, None]).all()


def test_gain_gives_unit_power_on_a_fine_lattice_of_the_aligned_cell():
    for num_axes, size in [(1, (4096,)), (2, (512, 512))]:
        _, scale, pole, transverse = random_modes(4, num_axes)
        direction = torch.zeros(4, num_axes, dtype=torch.float64)
        direction[:, 0] = 1.0
        gain = reference_gain(direction, scale, pole, transverse, 2.0)
        omega = frequency_grid(size, 2.0, dtype=torch.float64)
        power = (gain[:, *[None] * num_axes] * mode_response(omega, direction, scale, pole, transverse)).abs().square()
        torch.testing.assert_close(power.flatten(1).mean(1), torch.ones(4, dtype=torch.float64), rtol=5e-3, atol=0)


def test_gain_stays_smooth_when_a_narrow_resonance_moves():
    # A lattice of samples would jump; the slope here is finite and the same from both sides.
    direction = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    ones = torch.ones(1, dtype=torch.float64)

    def gain(oscillation):
        return reference_gain(direction, ones, torch.complex(-1e-3 * ones, oscillation * ones), ones, 1.0)

    steps = torch.stack([gain(torch.tensor(0.7 + 1e-3 * i, dtype=torch.float64)) for i in range(50)])
    assert ((steps[1:] - steps[:-1]).abs() < 1e-3 * steps[0]).all()


def test_gain_does_not_overflow_at_extreme_parameters():
    direction = torch.tensor([[1.0, 0.0]])
    for scale, damping, oscillation, transverse in [(1e-6, 1e-6, 0, 0), (1e4, 1e-6, 1e4, 1e6), (1e-6, 1e4, 1e3, 1e-6)]:
        pole = torch.complex(torch.tensor([-damping]), torch.tensor([float(oscillation)]))
        gain = reference_gain(direction, torch.tensor([scale]), pole, torch.tensor([float(transverse)]), 1.0)
        assert torch.isfinite(gain).all()
        assert (gain > 0).all()


def test_the_papers_gain_depends_on_the_grid_and_ours_does_not():
    modes = random_modes(4, 2)
    coarse, fine = (grid_gain(frequency_grid((n, n), 16 / n, half=True, dtype=torch.float64), *modes) for n in (16, 32))
    assert ((fine - coarse).abs() / coarse).max() > 0.1
    layer = make_layer(2)
    ours = [layer._shape((n, n), torch.full((1, 2), 16 / n), torch.float64).gain for n in (16, 32)]
    assert torch.equal(*ours)
