"""The laws of the operator, for the layers that ship."""

import pytest
import torch
import torch._dynamo.testing
from hypothesis import given
from hypothesis import strategies as st

from tests.layers import make_layer
from torchsonic import testing
from torchsonic.nn import SonicBlock, SpacedSequential

DTYPES = [torch.float64, torch.float32]
SIZES = {1: [(7,), (8,), (1,), (2,), (13,)], 2: [(5, 6), (8, 8), (1, 4), (7, 3)], 3: [(4, 3, 5), (2, 4, 6), (1, 5, 2)]}
CASES = [(num_axes, size) for num_axes, sizes in SIZES.items() for size in sizes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_axes", "size"), CASES)
class TestOnEveryGrid:
    spacing = (0.7, 1.9, 12.0)

    def test_equals_dense_reference(self, num_axes, size, dtype):
        testing.assert_matches_dense(make_layer(num_axes, dtype=dtype), size, self.spacing[:num_axes])

    def test_shifting_input_shifts_output(self, num_axes, size, dtype):
        testing.assert_shift_equivariant(make_layer(num_axes, dtype=dtype), size, self.spacing[:num_axes])

    def test_permuting_axes_permutes_output(self, num_axes, size, dtype):
        layer = make_layer(num_axes, dtype=dtype, spacing=(2.0, 0.5, 1.0)[:num_axes])
        testing.assert_permutes_with_axes(layer, size, self.spacing[:num_axes])

    def test_scaling_all_lengths_changes_nothing(self, num_axes, size, dtype):
        layer = make_layer(num_axes, dtype=dtype, spacing=(2.0, 0.5, 1.0)[:num_axes])
        for factor in (1e-6, 4e-5, 1e6):
            testing.assert_unit_free(layer, size, factor)

    def test_gradients_equal_those_of_dense_reference(self, num_axes, size, dtype):
        testing.assert_gradients_match_dense(make_layer(num_axes, dtype=dtype), size, self.spacing[:num_axes])

    def test_orders_and_chunks_agree(self, num_axes, size, dtype):
        testing.assert_orders_agree(make_layer(num_axes, dtype=dtype), size, self.spacing[:num_axes])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [5, 6, 9, 12])
def test_turning_image_and_directions_turns_output(size, dtype):
    testing.assert_turns_with_image(make_layer(2, dtype=dtype), size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_one_field_gives_one_output_on_every_grid(num_axes, dtype):
    grids = [(9,) * 3, (12,) * 3, (18,) * 3, (9, 18, 11), (16, 8, 30)]
    layer = make_layer(num_axes, dtype=dtype)
    testing.assert_resolution_invariant(layer, [g[:num_axes] for g in grids], extent=(16.0, 9.0, 40.0)[:num_axes])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_axis_aligned_modes_are_a_state_space_model(num_axes, dtype):
    testing.assert_state_space_limit(make_layer(num_axes, dtype=dtype))


@given(
    st.integers(1, 3),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(1, 5),
    st.data(),
)
def test_any_shape_and_spacing_equals_dense_reference(num_axes, channels, num_modes, data):
    size = tuple(data.draw(st.sampled_from([1, 2, 3, 4, 5, 6, 7])) for _ in range(num_axes))
    spacing = [10 ** data.draw(st.floats(-2, 2)) for _ in range(num_axes)]
    layer = make_layer(num_axes, channels, num_modes, seed=data.draw(st.integers(0, 99)))
    testing.assert_matches_dense(layer, size, spacing)
    testing.assert_gradients_match_dense(layer, size, spacing, tolerance=1e-9)


# Making machine code takes seconds; of images for one size, whole models do.
@pytest.mark.parametrize(("num_axes", "dynamic"), [(1, None), (2, True), (3, None)])
def test_compiled_layer_gives_the_same_output_and_gradients(num_axes, dynamic):
    layer = make_layer(num_axes, num_modes=4, dtype=torch.float32)
    compiled_layer = torch.compile(layer, fullgraph=True, dynamic=dynamic)
    for size in [(6, 5, 4), (9, 8)] if dynamic else [(6, 5, 4)]:
        x = torch.randn(2, 3, *size[:num_axes], requires_grad=True)
        y = layer(x)
        weight = torch.randn_like(y)
        expected = torch.autograd.grad(y, [x, *layer.parameters()], weight)
        compiled = compiled_layer(x)
        assert testing.relative_error(compiled, y) < 1e-5
        for a, b in zip(torch.autograd.grad(compiled, [x, *layer.parameters()], weight), expected, strict=True):
            assert testing.relative_error(a, b) < 1e-4


@pytest.mark.slow
def test_compiled_orders_agree():
    layer = make_layer(2, num_modes=4, dtype=torch.float32)

    def compiled(layer):
        torch._dynamo.reset()  # every order is a graph of its own
        return torch.compile(layer, fullgraph=True, backend="aot_eager")

    testing.assert_orders_agree(layer, (6, 5), chunks=(3,), transform=compiled)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding_mode": "zeros"},
        {"padding_mode": "reflect"},
        {"stride": 2},
        {"variant": "paper"},
        {"execution": {"recompute": True}},
    ],
)
def test_compiled_layer_takes_new_sizes_without_compiling_again(options):
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    torch._dynamo.reset()
    layer = make_layer(2, dtype=torch.float32, **options)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    for n in (8, 9, 12, 15, 16):
        x = torch.randn(2, 3, n, n + 2, requires_grad=True)
        y, expected = compiled(x), layer(x)
        assert testing.relative_error(y, expected) < 1e-5
        grads = [torch.autograd.grad(t.square().sum(), [x, layer.mix_in, layer.raw_damping]) for t in (y, expected)]
        for a, b in zip(*grads, strict=True):
            assert testing.relative_error(a, b) < 1e-4
    assert counter.frame_count <= 2


def test_compiled_layer_takes_any_spacing():
    torch._dynamo.reset()
    layer = make_layer(2, dtype=torch.float32)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    x = torch.randn(2, 3, 8, 9)
    for spacing in (0.5, 0.6, 0.7, (0.5, 2.0), (0.6, 1.0)):
        assert testing.relative_error(compiled(x, spacing=spacing), layer(x, spacing=spacing)) < 1e-5
    torch._dynamo.reset()
    dynamic = torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")
    for batch in (2, 3):
        x, spacing = torch.randn(batch, 3, 8, 9), torch.rand(batch, 2) + 0.5
        assert testing.relative_error(dynamic(x, spacing=spacing), layer(x, spacing=spacing)) < 1e-5


@pytest.mark.parametrize(
    ("options", "num_blocks"),
    [
        ({"standardise": True}, 1),
        ({"gain": "free"}, 2),
        ({"variant": "paper"}, 1),
        ({"limits": {"band_order": 2}, "local_kernel": 3}, 1),
    ],
)
def test_checkpointed_blocks_compile_for_any_size(options, num_blocks):
    torch._dynamo.reset()
    blocks = [SonicBlock(4, 4, num_modes=3, norm="channel", **options) for _ in range(num_blocks)]
    chain = SpacedSequential(*blocks).double()
    chain.checkpointing = True
    compiled = torch.compile(chain, fullgraph=True, dynamic=True, backend="aot_eager")
    x = torch.randn(2, 4, 6, 7, dtype=torch.float64, requires_grad=True)
    y, expected = compiled(x), chain(x)
    assert testing.relative_error(y, expected) < 1e-12
    grads = [torch.autograd.grad(t.square().sum(), [x, *chain.parameters()]) for t in (y, expected)]
    for a, b in zip(*grads, strict=True):
        assert testing.relative_error(a, b) < 1e-10
