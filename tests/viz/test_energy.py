"""Energies equal those measured in space and those of the whole symbol."""

import pytest
import torch

import torchsonic
from tests.layers import make_layer
from torchsonic import viz


@pytest.mark.parametrize(
    ("num_axes", "size", "tolerance", "options"),
    [
        (1, 4001, 1e-3, {}),
        (2, 301, 0.12, {}),
        (1, 257, 1e-9, {"variant": "paper", "gain": "dc"}),
        (2, 65, 1e-9, {"variant": "paper", "gain": "free", "limits": {"magnitude": 1.0}}),
        (2, 65, 1e-9, {"limits": {"band_order": 2}}),
        (3, 33, 1e-9, {"limits": {"magnitude": 1.0, "soft": True}}),
    ],
)
def test_energy_of_a_mode_is_that_of_its_kernel(num_axes, size, tolerance, options):
    """Parseval: mean power over the Nyquist box is the sum of squares in space; in 2-D the cell is a turned one.

    What has no closed form is a mean over samples, and equals that of a kernel on as many.
    """
    layer = make_layer(num_axes, field=16, **options)
    kernels = layer.mode_kernels(size).detach()
    norms = layer.mix_in.square().sum((1, 2)) * layer.mix_out.square().sum((0, 2))
    expected = kernels.square().flatten(1).sum(1) * norms
    torch.testing.assert_close(viz.mode_energies(layer), expected.detach(), rtol=tolerance, atol=0)


def test_energy_grows_with_the_square_of_the_mixing():
    layer = make_layer(2)
    before = viz.mode_energies(layer)
    with torch.no_grad():
        layer.mix_in[2] *= 3
    after = viz.mode_energies(layer)
    torch.testing.assert_close(after[2], 9 * before[2])
    assert torch.equal(after[[0, 1, 3]], before[[0, 1, 3]])


def test_the_strongest_modes_come_first():
    layer = make_layer(2)
    with torch.no_grad():
        layer.mix_in[4] *= 50
    index, shares = viz.strongest_modes(layer, 3)
    assert index[0] == 4
    assert shares.tolist() == sorted(shares.tolist(), reverse=True)
    assert float(viz.strongest_modes(layer)[1].sum()) == pytest.approx(1)


@pytest.mark.parametrize("num_axes", [2, 3])
def test_a_modes_turns_are_one(num_axes):
    layer = {2: torchsonic.SonicOrbitConv2d, 3: torchsonic.SonicOrbitConv3d}[num_axes](
        4, 8, num_modes=3, group="C4", dtype=torch.float64
    )
    with torch.no_grad():
        layer.mix_in[1] *= 50
    index, shares = viz.strongest_modes(layer)
    assert index[0] == 1
    assert len(index) == 3
    assert float(shares.sum()) == pytest.approx(1)
    figure = viz.draw_modes(layer, count=2, samples=9)
    assert "2 of 3 modes, each in 4 rotations" in figure.get_suptitle()
    marks = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert len(marks) == (4 if num_axes == 2 else 0)


def test_peak_gain_is_the_highest_response():
    layer = make_layer(1, channels=(1, 1), num_modes=1)
    lattice = viz.Lattice((20001,), (1.0,))
    modes = viz.physical_modes(layer)
    highest = (
        viz.mode_spectra(viz.physical_operator(layer), lattice).abs().max()
        * modes.mix_in.abs()[0, 0]
        * modes.mix_out.abs()[0, 0]
    )
    assert float(viz.peak_gains(layer)) == pytest.approx(float(highest), rel=1e-4)


@pytest.mark.parametrize("limit", [0.8, 50.0])
@pytest.mark.parametrize("variant", ["exact", "paper"])
def test_peak_gain_is_the_highest_response_within_the_limit(variant, limit):
    layer = make_layer(2, channels=(1, 1), num_modes=5, variant=variant, limits={"magnitude": limit})
    operator = viz.physical_operator(layer)
    modes = operator.modes
    peaks = viz.peak_gains(layer) / (modes.mix_in.abs()[:, 0] * modes.mix_out.abs()[0])
    doubled = 1 if variant == "exact" else 2  # where the half spectrum is not zero
    assert (peaks <= doubled * limit * (1 + 1e-12)).all()
    assert (peaks <= doubled * modes.gain / modes.pole.real.abs() * (1 + 1e-12)).all()
    assert (peaks >= viz.mode_spectra(operator, viz.reference_lattice(layer)).abs().amax((1, 2))).all()
    if variant == "exact":
        fine = viz.mode_spectra(operator, viz.Lattice((301, 301), (1.0, 1.0))).abs().amax((1, 2))
        torch.testing.assert_close(peaks, fine, rtol=0.1, atol=0)


def measured_symbol(layer, size):
    """The layer's own kernel, transformed: ``(*size, K, C)``, frequency zero in the middle."""
    axes = tuple(range(2, 2 + len(size)))
    spectrum = torch.fft.fftshift(torch.fft.fftn(layer.kernel(size).detach(), dim=axes), dim=axes)
    return spectrum.movedim((0, 1), (-2, -1))


@pytest.mark.parametrize("limits", [{}, {"band_order": 2, "magnitude": 0.5}])
@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize(("num_axes", "size"), [(1, (21,)), (2, (9, 9)), (3, (5, 5, 5))])
def test_spectral_energy_is_that_of_the_kernel(num_axes, size, variant, limits):
    layer = make_layer(num_axes, variant=variant, field=size[0], limits=limits)
    lattice = viz.Lattice(size, (1.0,) * num_axes)
    symbol = measured_symbol(layer, size)
    torch.testing.assert_close(viz.spectral_energy(layer, lattice), symbol.abs().square().sum((-2, -1)))
    torch.testing.assert_close(
        viz.pair_energies(layer, lattice), symbol.abs().square().flatten(0, num_axes - 1).mean(0)
    )
    chosen = viz.mixed_responses(layer, [3, 0], [2], lattice)
    torch.testing.assert_close(chosen, symbol[..., [3, 0], :][..., [2]].abs().movedim((-2, -1), (0, 1)))


def test_mixed_responses_of_a_volume_are_drawn_at_frequency_zero_of_its_first_axis():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    layer = make_layer(3, spacing=(2.0, 1.0, 1.0))
    figure = viz.draw_mixed(layer, outputs=[1], inputs=[0], samples=7)
    shown = torch.as_tensor(figure.axes[0].images[0].get_array().data)
    whole = viz.mixed_responses(layer, [1], [0], viz.reference_lattice(layer, 7))[0, 0]
    torch.testing.assert_close(shown, whole[whole.shape[0] // 2])


def test_a_profile_of_a_ring_stands_at_its_radius():
    lattice = viz.Lattice((101, 101), (1.0, 1.0))
    radius = lattice.omega.norm(dim=-1)
    middles, means = viz.radial_profile(((radius > 1.5) & (radius < 1.6)).double(), lattice, bins=20)
    assert abs(float(middles[means.argmax()]) - 1.55) < 0.16
    assert int((means > 0).sum()) <= 2
    flat = viz.radial_profile(torch.full((101, 101), 3.0), lattice)[1]
    torch.testing.assert_close(flat, torch.full_like(flat, 3.0))


def test_lengths_and_waves_are_physical():
    layer = make_layer(2, spacing=2.0)
    twice = make_layer(2, spacing=4.0)
    torch.testing.assert_close(viz.decay_lengths(twice), 2 * viz.decay_lengths(layer), rtol=1e-5, atol=0)
    torch.testing.assert_close(viz.wavelengths(twice), 2 * viz.wavelengths(layer), rtol=1e-5, atol=0)
