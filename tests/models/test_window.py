"""Logits in a window are those of the whole image, for every backbone, gradients included."""

import pytest
import torch

import torchsonic
from torchsonic.models.window import Projected
from torchsonic.nn.norm import ChannelNorm
from torchsonic.spectral.window import crop

WINDOW = (slice(9, 11), slice(7, 10))
BACKBONES = ["sonicnet", "convnet", "vit", "s4nd", "niff", "gfnet"]


def make_net(name, *, depth=1, norm="channel", **options):
    torch.manual_seed(0)
    options |= {} if name == "vit" else {"norm": norm}
    if name == "sonicnet":  # a filter that sees a border is no inner product with one kernel
        options = {"padding_mode": "circular", **options}
    net = torchsonic.create_model(
        f"synthshape_{name}", width=16, num_classes=2, depth=depth, head_norm=norm, backbone_options=options
    ).double()
    with torch.no_grad():
        for parameter in net.parameters():  # norms and biases too, which start at one and zero
            parameter += 0.05 * torch.randn_like(parameter)
    return net


def answer(net, image, window, place):
    """Logits in the window by the short way (`window`) or the long one, and all gradients."""
    net.zero_grad()
    image = image.clone().requires_grad_()
    logits = net(image, window=place) if window else crop(net(image), place)
    (logits * torch.arange(logits.numel()).view_as(logits).cos()).sum().backward()
    return [logits.detach(), image.grad, *[p.grad.clone() for p in net.parameters()]]


def assert_same(net, size=(24, 16), place=WINDOW):
    image = torch.randn(2, 3, *size, dtype=torch.float64)
    for short, long in zip(answer(net, image, True, place), answer(net, image, False, place), strict=True):
        torch.testing.assert_close(short, long, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", BACKBONES)
def test_one_block(name):
    assert_same(make_net(name))


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("norm", ["channel", "group"])
def test_two_blocks_and_norms_over_the_image(name, norm):
    assert_same(make_net(name, depth=2, norm=norm))


@pytest.mark.parametrize(
    "options",
    [
        {"form": "pre"},
        {"padding_mode": "zeros"},
        {"padding_mode": "zeros", "padding": None},
        {"variant": "paper"},
        {"standardise": True},
    ],
)
def test_what_cannot_be_cut_short(options):
    assert_same(make_net("sonicnet", **options))


@pytest.mark.parametrize("size", [(23, 17), (16, 11)])
@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("place", [WINDOW, (slice(0, 2), slice(1, 4)), (slice(-3, None), slice(-2, None))])
def test_odd_sizes_and_windows_at_the_edge(name, size, place):
    ends = [range(*part.indices(n)) for part, n in zip(place, size, strict=True)]
    assert_same(make_net(name), size, tuple(slice(end.start, end.stop) for end in ends))


def test_the_short_way_is_taken():
    """Else all of the above holds trivially: one block looks at no whole image of 16 channels."""
    for name in BACKBONES:
        net, widest = make_net(name), 0

        def watch(module, arguments, output):
            nonlocal widest
            widest = max(widest, output.numel())

        for part in net.modules():
            part.register_forward_hook(watch)
        with torch.no_grad():
            net(torch.randn(1, 3, 64, 64, dtype=torch.float64), window=(slice(31, 33), slice(31, 33)))
        assert widest < 16 * 64 * 64, name


def test_spacing_is_heard():
    net = make_net("sonicnet").eval()
    image = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    window = (slice(7, 9), slice(7, 9))
    torch.testing.assert_close(net(image, 0.5, window), crop(net(image, 0.5), window))
    assert not torch.allclose(net(image, 0.5, window), net(image, 1.0, window))


@pytest.mark.parametrize("name", ["sonicnet", "s4nd"])
def test_each_sample_may_have_its_spacing(name):
    net = make_net(name).eval()
    image, spacing = torch.randn(2, 3, 16, 16, dtype=torch.float64), torch.tensor([[0.5, 0.5], [1.0, 2.0]])
    window = (slice(7, 9), slice(7, 9))
    torch.testing.assert_close(net(image, spacing, window), crop(net(image, spacing), window))
    torchsonic.set_spacing(net, spacing)
    torch.testing.assert_close(net(image, window=window), crop(net(image), window))


@pytest.mark.parametrize("window", [(slice(0, 2),), (3, 4), (slice(0, 2), slice(9, 9))])
def test_wrong_windows_are_refused(window):
    with pytest.raises(ValueError, match="window"):
        make_net("convnet")(torch.randn(1, 3, 8, 8, dtype=torch.float64), window=window)


def test_norm_of_a_widened_image():
    torch.manual_seed(0)
    norm = ChannelNorm(8, eps=1e-6).double()
    torch.nn.init.normal_(norm.weight), torch.nn.init.normal_(norm.bias)
    image = Projected(torch.randn(2, 3, 5, 4).double(), torch.randn(8, 3).double())
    torch.testing.assert_close(image.normalised(norm).whole(), norm(image.whole()))


def test_mode_kernels_make_the_kernel():
    torch.manual_seed(0)
    layer = torchsonic.SonicConv2d(3, 4, num_modes=5, bias=False).double()
    first, second = layer.mode_kernels((12, 9)).unbind(1)
    (re, im), mix_out = layer.mix_in.unbind(1), layer.mix_out
    real = torch.einsum("mc,mhw->mchw", re, first) - torch.einsum("mc,mhw->mchw", im, second)
    imaginary = torch.einsum("mc,mhw->mchw", im, first) + torch.einsum("mc,mhw->mchw", re, second)
    expected = torch.einsum("kmi,imchw->kchw", mix_out, torch.stack([real, imaginary]))
    torch.testing.assert_close(layer.kernel((12, 9)), expected)
