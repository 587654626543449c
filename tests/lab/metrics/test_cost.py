"""Counts against those made by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchsonic
from torchsonic.functional import make_plan
from torchsonic.lab.metrics import count_flops, count_parameters, paper_results


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def counted(function, *example):
    return count_flops(Function(function), *example)


def real_fft(signals, *size):
    return round(2.5 * signals * math.prod(size) * math.log2(math.prod(size)))


def on_meta(name, pixels=None, **overrides):
    entry, _ = torchsonic.models.model_entry(name)
    size = entry.input_size if pixels is None else (3, pixels, pixels)
    model = torchsonic.create_model(name, **overrides).to("meta")
    return count_flops(model, torch.empty(1, *size, device="meta"))


def test_linear_is_two_for_each_weight_and_sample():
    assert count_flops(nn.Linear(7, 5), torch.randn(3, 7)) == 2 * 3 * 7 * 5


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_convolution_counts_the_taps_of_its_own_group(groups):
    layer = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=groups)
    assert count_flops(layer, torch.randn(2, 8, 9, 10)) == 2 * 2 * 16 * (8 // groups) * 9 * 5 * 5


class PassesItsWeightOn(nn.Module):
    """Like escnn's layers: a submodule makes the filter of its parent's parameter."""

    def __init__(self):
        super().__init__()
        self.weight, self.expand = nn.Parameter(torch.ones(5, 7)), nn.Identity()

    def forward(self, x):
        return x @ self.expand(self.weight[:]).T


def test_weights_passed_to_a_submodule_are_no_obstacle():
    model = PassesItsWeightOn()
    assert count_flops(model, torch.randn(3, 7)) == 2 * 3 * 7 * 5
    assert model.training
    assert model.weight.requires_grad


def test_transforms_count_5_n_log2_n_and_half_of_it_for_real_signals():
    x = torch.randn(2, 3, 8, 16)
    there = real_fft(6, 8, 16)
    assert counted(lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=(8, 16)), x) == 2 * there
    assert counted(torch.fft.fft2, x.to(torch.complex64)) == 2 * there
    assert counted(lambda x: torch.fft.irfft(torch.fft.rfft(x, 9), 9), x) == 2 * real_fft(48, 9)
    assert counted(lambda x: torch.fft.rfft(x, 1), x) == 0


def test_only_complex_multiplications_count_among_elementwise_ones():
    z, x = torch.randn(4, 5, dtype=torch.complex64), torch.randn(4, 5)
    assert counted(lambda z: z * z, z) == 6 * 20
    assert counted(lambda z: z * x, z) == 2 * 20
    assert counted(lambda z: 2 * z, z) == 2 * 20
    assert counted(lambda z: z.clone().addcmul_(z, z, value=-1), z) == 8 * 20
    assert counted(lambda x: torch.addcmul(F.gelu(x * x), x, x), x) == 0


def test_complex_products_of_matrices_count_four_real_ones():
    a, b = torch.randn(3, 4, dtype=torch.complex64), torch.randn(4, 5, dtype=torch.complex64)
    assert counted(lambda a: a @ b, a) == 8 * 3 * 4 * 5
    assert counted(lambda a: torch.einsum("ij,bjk->bik", a, b.expand(2, -1, -1)), a) == 8 * 2 * 3 * 4 * 5


@pytest.mark.parametrize("order", ["modes", "channels"])
@pytest.mark.parametrize("batch", [1, 3])
def test_sonic_counts_mixing_coupling_and_the_transforms_of_its_order(order, batch):
    channels, out_channels, modes, size = 6, 10, 4, (8, 16)
    layer = torchsonic.SonicConv2d(channels, out_channels, num_modes=modes, execution={"order": order})
    samples, bins = 128, 8 * 9
    expected = 6 * modes * samples if order == "modes" else 28 * modes * bins
    for number in (channels, out_channels):
        expected += 4 * modes * number * (samples if order == "modes" else 2 * bins)
        expected += real_fft(2 * modes if order == "modes" else number, *size)
    assert count_flops(layer, torch.randn(batch, channels, *size)) == batch * expected


def test_sonic_counts_the_order_it_chooses():
    layer, x = torchsonic.SonicConv2d(16, 16, num_modes=4), torch.randn(1, 16, 20, 20)
    order = make_plan(1, 16, 16, 4, (20, 20), (20, 20)).order
    forced = torchsonic.SonicConv2d(16, 16, num_modes=4, execution={"order": order})
    assert count_flops(layer, x) == count_flops(forced, x)
    assert count_flops(layer, x, spacing=0.5) == count_flops(forced, x)


def test_attention_is_counted_on_every_device():
    dim, depth, tokens, classes = 32, 2, 1 + 4 * 4, 10
    arguments = {"dim": dim, "depth": depth, "num_heads": 4, "num_classes": classes}
    model = torchsonic.create_model("vit_s16", **arguments)
    block = 2 * tokens * (3 + 1 + 8) * dim**2 + 4 * tokens**2 * dim
    expected = 2 * 16 * dim * 3 * 16**2 + depth * block + 2 * dim * classes
    assert count_flops(model, torch.randn(1, 3, 64, 64)) == expected
    assert on_meta("vit_s16", 64, **arguments) == expected


def test_resnet_50_has_8_2_gflops():
    assert on_meta("resnet50") == pytest.approx(8.2e9, rel=0.02)


def test_the_papers_macs_of_synthetic_shapes_are_those_of_32_pixels():
    rows = {row["test"]: row["values"] for row in paper_results()["synthshape_halligalli"]["rows"]}
    for name, row in (("synthshape_convnet", "ConvNet"), ("synthshape_vit", "ViT")):
        assert round(on_meta(name, 32) / 2e9, 3) == rows["gmacs"][row]


@pytest.mark.parametrize("name", ["synthshape_sonicnet", "synthshape_s4nd", "synthshape_niff", "synthshape_gfnet"])
def test_counting_without_computing_agrees(name):
    model = torchsonic.create_model(name)
    number = count_flops(model, torch.randn(1, 3, 32, 32))
    assert number == count_flops(model, torch.randn(1, 3, 32, 32)), "a second count differs"
    assert number == on_meta(name, 32)


def test_counting_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    model[2].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    count_flops(model, torch.randn(2, 3, 8, 8))
    assert [module.training for module in model] == [True, True, False]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_parameters_are_counted_once_and_frozen_ones_left_out_on_request():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, layer, nn.Linear(4, 2).requires_grad_(False))
    assert count_parameters(model) == 30
    assert count_parameters(model, trainable=True) == 20
