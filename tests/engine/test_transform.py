import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchsonic.engine.transform import analyse, analyse_adjoint, synthesise, synthesise_adjoint
from torchsonic.spectral.band import Band
from torchsonic.spectral.boundary import Boundary, extend, extend_adjoint, fast_size

sizes = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


def pairs_of_sizes():
    return sizes.flatmap(lambda s: st.tuples(st.just(s), st.tuples(*[st.integers(1, 9)] * len(s))))


def inner(a, b, band: Band):
    return (band.multiplicity(dtype=torch.float64) * (a.conj() * b).real).sum()


@given(pairs_of_sizes(), st.sampled_from(["circular", "zeros", "reflect"]))
def test_adjoints_satisfy_the_inner_product(pair, padding):
    size, out_size = pair
    band = Boundary(padding).band(size, out_size)
    x = torch.randn(size, dtype=torch.float64)
    c = torch.randn(band.shape, dtype=torch.complex128)
    y = torch.randn(out_size, dtype=torch.float64)
    # The half spectrum's self-conjugate planes only count through their Hermitian part.
    c = synthesise_adjoint(synthesise(c, band, out_size), band) if band.size_in == band.size_out else c
    left = inner(c, analyse(x, band, Boundary(padding)), band)
    right = (analyse_adjoint(c.clone(), band, size, Boundary(padding)) * x).sum() / math.prod(band.size_in)
    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)
    left = (y * synthesise(c, band, out_size)).sum()
    right = inner(c, synthesise_adjoint(y, band), band)
    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


@given(sizes)
def test_synthesis_undoes_analysis_on_the_same_grid(size):
    band = Band(size, size)
    x = torch.randn(2, *size, dtype=torch.float64)
    torch.testing.assert_close(synthesise(analyse(x, band), band, size), x)


def test_reflection_leaves_the_edge_out_as_convolutions_do():
    x = torch.arange(5.0, dtype=torch.float64)
    band = Boundary("reflect").band((5,), (5,))
    extended = synthesise(analyse(x, band, Boundary("reflect")), band, band.size_out)
    assert extended.round().tolist() == [0, 1, 2, 3, 4, 3, 2, 2, 2, 1]  # the middle of the margin is half of 1 and 3


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_reflection_at_any_size_matches_torch_pad_near_the_edge(size):
    x = torch.randn(size, dtype=torch.float64)
    band = Boundary("reflect").band((size,), (size,))
    extended = synthesise(analyse(x, band, Boundary("reflect")), band, band.size_out)
    reach = size // 2
    if reach:
        expected = torch.nn.functional.pad(x[None], (reach, reach), mode="reflect")[0]
        torch.testing.assert_close(torch.roll(extended, reach)[: size + 2 * reach], expected)


@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from([1, 2]))
def test_the_mirror_image_of_a_flipped_image_is_flipped(size, margin, stride):
    boundary = Boundary("reflect", (margin,))
    band = boundary.band((size,), (-(-size // stride),))
    x = torch.randn(size, dtype=torch.float64)
    one, other = extend(x, band, boundary), extend(x.flip(0), band, boundary)
    torch.testing.assert_close(other, one.flip(0).roll(size), rtol=0, atol=0)
    g = torch.randn_like(one)
    expected = torch.autograd.functional.vjp(lambda x: extend(x, band, boundary), x, g)[1]
    torch.testing.assert_close(extend_adjoint(g, (size,), boundary), expected)


def test_zero_padding_leaves_room_for_the_whole_kernel():
    for n in range(1, 40):
        padded = Boundary("zeros").band((n,), (n,)).size_in[0]
        assert padded >= 2 * n - 1
        assert fast_size(padded) == padded
