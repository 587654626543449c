"""ReLU is the usual one, compiled or not."""

import math

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

from torchsonic.nn import ReLU


def output_and_gradient(run, x):
    x = x.clone().requires_grad_()
    y = run(x)
    return y, *torch.autograd.grad(y, x, torch.arange(1.0, 1 + y.numel(), dtype=y.dtype).view_as(y))


def test_compiled_relu_has_the_usual_output_and_gradient():
    torch._dynamo.reset()
    x = torch.tensor([-math.inf, -2.0, -0.0, 0.0, 1e-300, 3.0, math.inf], dtype=torch.float64)
    compiled = torch.compile(ReLU(), fullgraph=True, backend="aot_eager")
    for found, expected in zip(output_and_gradient(compiled, x), output_and_gradient(torch.relu, x), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("activation", "masks"), [(ReLU(), False), (nn.ReLU(), True)])
def test_compilers_keep_no_mask_for_its_gradient(activation, masks):
    kept = []

    def watch(graph, inputs):
        kept.extend(node.meta["val"].dtype for node in graph.graph.output_node().args[0])
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    backend = aot_autograd(
        fw_compiler=watch,
        bw_compiler=watch,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    norm = nn.GroupNorm(8, 64)
    block = torch.compile(lambda x: activation(norm(x) + x), fullgraph=True, backend=backend)
    output_and_gradient(block, torch.randn(2, 64, 16, 16))
    assert (torch.bool in kept) == masks


def test_relu_differentiates_twice():
    x = torch.tensor([-1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: ReLU()(x) ** 3, x)
