import copy

import pytest
import torch
from torch import nn

import torchsonic
from torchsonic import SonicConv2d, SonicConv3d


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.valid = nn.Conv2d(8, 8, 3)
        self.replicate = nn.Conv2d(8, 8, 3, padding=1, padding_mode="replicate")
        self.dilated = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.again = self.dilated
        self.up = nn.ConvTranspose2d(8, 8, 3)

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.again(self.dilated(self.replicate(self.depthwise(x))))


def test_suitable_convolutions_are_swapped_and_others_left():
    net = Net().to(torch.float64)
    shape = net(torch.randn(1, 3, 16, 18, dtype=torch.float64)).shape
    assert torchsonic.replace_convs(net, num_modes=4, stem=True) is net
    assert isinstance(net.stem, SonicConv2d)
    assert net.stem.stride == (2, 2)
    assert net.stem.bias is None
    assert net.stem.padding_mode == "zeros"
    assert net.stem.mix_in.dtype == torch.float64
    assert isinstance(net.body[0], SonicConv2d)
    assert net.body[0].padding_mode == "reflect"
    assert net.again is net.dilated
    assert isinstance(net.dilated, SonicConv2d)
    for kept in (net.body[2], net.depthwise, net.valid, net.replicate):
        assert type(kept) is nn.Conv2d
    y = net(torch.randn(1, 3, 16, 18, dtype=torch.float64))
    assert y.shape == shape
    y.sum().backward()
    assert net.stem.raw_direction.grad is not None


def test_the_stem_stays_unless_it_is_asked_for():
    net = torchsonic.replace_convs(Net(), num_modes=4)
    assert type(net.stem) is nn.Conv2d
    assert isinstance(net.body[0], SonicConv2d)
    patches = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.Conv2d(4, 4, 3, padding=1))
    assert isinstance(torchsonic.replace_convs(patches)[1], SonicConv2d), "the stem is another one"
    lone = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1))
    with pytest.raises(ValueError, match="only stem=True replaces the first one"):
        torchsonic.replace_convs(lone)
    assert isinstance(torchsonic.replace_convs(lone, stem=True)[0], SonicConv2d)


def test_what_was_replaced_is_listed_with_its_padding():
    net = Net()
    assert torchsonic.nn.replaced_convs(net) == {}
    before = {name: repr(conv) for name, conv in net.named_modules() if name in ("body.0", "dilated")}
    found = torchsonic.nn.replaced_convs(copy.deepcopy(torchsonic.replace_convs(net, num_modes=4)))
    assert found == {
        "body.0": f"{before['body.0']} -> SonicConv2d, 4 modes, 'reflect'",
        "dilated": f"{before['dilated']} -> SonicConv2d, 4 modes, 'zeros'",
    }
    found = torchsonic.nn.replaced_convs(torchsonic.replace_convs(Net(), num_modes=4, padding=8))
    assert found["dilated"].endswith("4 modes, 'zeros', padding (8, 8)")


def test_options_reach_the_layers():
    net = torchsonic.replace_convs(
        Net(),
        stem=True,
        num_modes=lambda name, conv: 2 if name == "stem" else 5,
        select=lambda name, conv: name != "body.0",
        padding_mode="circular",
        variant="paper",
    )
    assert net.stem.num_modes == 2
    assert net.replicate.num_modes == 5
    assert net.replicate.padding_mode == "circular"
    assert net.stem.variant == "paper"
    assert type(net.body[0]) is nn.Conv2d


def test_a_lone_convolution_is_replaced_itself():
    layer = torchsonic.replace_convs(nn.Conv3d(2, 3, 3, padding="same").eval())
    assert isinstance(layer, SonicConv3d)
    assert not layer.training


@pytest.mark.parametrize(
    "conv", [nn.Conv2d(3, 4, 2), nn.Conv2d(3, 4, 4, stride=2, padding=1), nn.Conv2d(3, 4, (3, 5), padding=1)]
)
def test_kernels_that_change_the_size_stay(conv):
    with pytest.raises(ValueError, match="no suitable convolution"):
        torchsonic.replace_convs(nn.Sequential(conv))


def test_nothing_to_replace_is_an_error():
    with pytest.raises(ValueError, match="no suitable convolution in Sequential"):
        torchsonic.replace_convs(nn.Sequential(nn.Conv2d(3, 3, 1)))
