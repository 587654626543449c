"""Pictures are sampled where they say, and show what the layers do."""

import math

import pytest
import torch

from tests.layers import make_layer
from torchsonic import viz

LIMITS = [{}, {"band_order": 2}, {"magnitude": 0.7}, {"magnitude": 2.0, "soft": True}]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("variant", ["exact", "paper"])
@pytest.mark.parametrize(("num_axes", "size"), [(1, (31,)), (2, (15, 15)), (3, (7, 7, 7))])
def test_beams_are_the_kernels_of_the_layer(num_axes, size, variant, limits):
    layer = make_layer(
        num_axes, spacing=0.5, variant=variant, field=size[0], limits=limits
    )  # whose gain is the paper's
    lattice = viz.Lattice(size, (0.5,) * num_axes)
    beams = viz.mode_beams(viz.physical_operator(layer), lattice)
    kernels = torch.roll(layer.mode_kernels(size), [n // 2 for n in size], list(range(2, 2 + num_axes))).detach()
    torch.testing.assert_close(torch.view_as_real(beams).movedim(-1, 1), kernels, rtol=1e-9, atol=1e-9)


def test_chosen_modes_are_those_of_the_layer():
    layer = make_layer(2)
    modes, chosen = viz.physical_modes(layer), viz.physical_operator(layer).select([4, 1]).modes
    assert torch.equal(chosen.direction[0], modes.direction[4])
    assert torch.equal(chosen.mix_out[:, 1], modes.mix_out[:, 1])
    assert torch.equal(chosen.mix_in[0], modes.mix_in[4])


def test_the_extent_is_the_same_on_all_axes():
    lattice = viz.reference_lattice(make_layer(3, spacing=(4.0, 1.0, 1.0)), 33)
    extents = [n * step for n, step in zip(lattice.size, lattice.spacing, strict=True)]
    assert max(extents) - min(extents) <= 2 * 4.0
    assert all(n % 2 for n in lattice.size)


def test_frequencies_are_physical_and_centred():
    (omega,) = viz.Lattice((5,), (0.25,)).frequencies
    torch.testing.assert_close(omega, 2 * math.pi * torch.tensor([-2.0, -1, 0, 1, 2], dtype=torch.float64) / 1.25)


def test_numbers_that_are_none_are_refused():
    layer = make_layer(2, limits={"band_order": 1})
    with torch.no_grad():
        layer.raw_damping[2] = torch.nan
        layer.raw_cutoff[0] = torch.nan
    with pytest.raises(ValueError, match=r"layer SonicConv2d has modes that are not finite \(pole, gain, cutoff\)"):
        viz.physical_modes(layer)


@pytest.mark.parametrize(
    ("size", "spacing", "words"), [((4,), (1.0,), "odd"), ((3, 3), (1.0,), "the same number of axes")]
)
def test_a_bad_lattice_is_refused(size, spacing, words):
    with pytest.raises(ValueError, match=words):
        viz.Lattice(size, spacing)
