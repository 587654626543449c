import pytest
import torch
from torch import nn

import torchsonic
from torchsonic.nn import Bottleneck, HybridConv, OrbitBlock, SonicBlock, SonicConvNd, SpacedSequential


class Told(nn.Module):
    """Hands its layer a spacing that it computes itself."""

    def __init__(self):
        super().__init__()
        self.layer = torchsonic.SonicConv2d(3, 4, num_modes=3)

    def forward(self, x, spacing):
        return self.layer(x, spacing * 2, output_size=(5, 4))


def sonic(channels_in, channels_out, *, stride):
    return torchsonic.SonicConv2d(channels_in, channels_out, stride=stride)


MODELS = {
    "layer": lambda: nn.Sequential(nn.Conv2d(3, 4, 1), torchsonic.SonicConv2d(4, 4, num_modes=3), nn.ReLU()),
    "hybrid": lambda: nn.Sequential(HybridConv(3, 4, stride=2)),
    "block": lambda: nn.Sequential(SonicBlock(3, 8, stride=2, local_kernel=3, mlp_ratio=2, norm="channel")),
    "chain": lambda: nn.Sequential(SpacedSequential(SonicBlock(3, 4), SonicBlock(4, 4, stride=2, form="pre"))),
    "bottleneck": lambda: nn.Sequential(Bottleneck(sonic, 3, 4, stride=2, norm="group")),
    "orbits": lambda: nn.Sequential(OrbitBlock(3, 8, group="C4", lift=True), OrbitBlock(8, 12, group="C4", stride=2)),
    "told": Told,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [(12, 10), (9, 7)])
def test_a_traced_model_is_the_model(name, size):
    model = MODELS[name]()
    traced = torch.fx.symbolic_trace(model)
    x = torch.randn(2, 3, *size, requires_grad=True)
    arguments = (x, torch.tensor([0.5, 0.7])) if name == "told" else (x,)
    called = [traced.get_submodule(node.target) for node in traced.graph.nodes if node.op == "call_module"]
    assert any(isinstance(layer, SonicConvNd) for layer in called)
    results = []
    for module in (model, traced):
        y = module(*arguments)
        results.append((y, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()])))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_a_layer_alone_cannot_be_traced_and_says_what_to_do():
    with pytest.raises(TypeError, match=r"SonicConv2d as a single node.*trace torch.nn.Sequential\(layer\)"):
        torch.fx.symbolic_trace(torchsonic.SonicConv2d(3, 4))


@pytest.mark.parametrize("inside", [False, True])
def test_a_model_that_rearranges_its_input_is_told_after_tracing(inside):
    turn = [[0.0, -1.0], [1.0, 0.0]]
    model = nn.Sequential(nn.Conv2d(1, 4, (3, 1), padding=(1, 0)), torchsonic.SonicConv2d(4, 2, num_modes=3))
    x = torch.randn(1, 1, 8, 6)
    expected = torchsonic.set_orientation(model, turn)(x)
    with pytest.raises(TypeError, match=r"does not record how a Sequential .* set_orientation with the traced one"):
        torch.fx.symbolic_trace(nn.Sequential(model) if inside else model)
    traced = torch.fx.symbolic_trace(torchsonic.set_orientation(model, None))
    assert torch.equal(torchsonic.set_orientation(traced, turn)(x), expected)
