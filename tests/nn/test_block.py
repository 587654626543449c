import pytest
import torch
from torch import nn

import torchsonic
from torchsonic.functional import resample
from torchsonic.nn import Bottleneck, ChannelMLP, ChannelNorm, HybridConv, ResidualBlock, SonicBlock, SpacedSequential
from torchsonic.nn.norm import make_activation, make_norm
from torchsonic.nn.residual import DropPath
from torchsonic.testing import band_limited_field, relative_error

SIZES = {1: (18,), 2: (12, 18), 3: (6, 8, 10)}


def sonic(channels_in, channels_out, *, stride):
    return torchsonic.SonicConv2d(channels_in, channels_out, num_modes=6, stride=stride, bias=False)


def orbit(channels_in, channels_out, *, stride):
    return torchsonic.SonicOrbitConv2d(channels_in, channels_out, num_modes=2, group="C4", stride=stride)


def conv(channels_in, channels_out, *, stride):
    return nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("form", ["post", "pre"])
@pytest.mark.parametrize("local_kernel", [0, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_block_is_its_formula(axes, form, local_kernel, stride):
    block = SonicBlock(
        3, 8, num_modes=5, spatial_dims=axes, form=form, local_kernel=local_kernel, stride=stride, norm="channel"
    ).double()
    x = torch.randn(2, 3, *SIZES[axes], dtype=torch.float64)
    spacing = (0.5, 2.0, 1.5)[:axes]
    small = [n // stride for n in SIZES[axes]]
    skip = torch.einsum("kc,bc...->bk...", block.shortcut.project.weight.flatten(1), resample(x, small))

    def operator(z):
        if not local_kernel:
            return block.operator(z, spacing)
        return block.operator.sonic(z, spacing) + block.operator.local(z, spacing)

    def normalise(z):
        mean, var = z.mean(1, keepdim=True), z.var(1, keepdim=True, correction=0)
        return (z - mean) / (var + 1e-6).sqrt()

    if form == "post":
        expected = torch.relu(normalise(operator(x)) + skip)
    else:
        expected = operator(nn.functional.gelu(normalise(x))) + skip
    torch.testing.assert_close(block(x, spacing), expected)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_channel_mlp_behind_a_block_is_its_formula_at_each_pixel(axes):
    options = {"spatial_dims": axes, "norm": "channel", "mlp_ratio": 3}
    block = SonicBlock(3, 8, num_modes=5, **options).double()
    plain = SonicBlock(3, 8, num_modes=5, spatial_dims=axes, norm="channel").double()
    plain.load_state_dict({k: v for k, v in block.state_dict().items() if not k.startswith("mlp.")})
    x = torch.randn(2, 3, *SIZES[axes], dtype=torch.float64)
    pixels = plain(x).movedim(1, -1)
    mlp = block.mlp
    hidden = nn.functional.linear(
        nn.functional.layer_norm(pixels, (8,), eps=1e-6), mlp.widen.weight.flatten(1), mlp.widen.bias
    )
    assert hidden.shape[-1] == 24
    change = nn.functional.linear(nn.functional.gelu(hidden), mlp.narrow.weight.flatten(1), mlp.narrow.bias)
    torch.testing.assert_close(block(x), (pixels + change).movedim(-1, 1))


def test_the_same_channels_and_grid_are_skipped_without_weights():
    block = SonicBlock(8, 8, num_modes=4)
    assert not list(block.shortcut.parameters())
    assert sum(p.numel() for p in block.parameters()) == 2 * 8 * 4 * 2 + 6 * 4 + 1 + 16


@pytest.mark.parametrize("operator", [sonic, conv], ids=["sonic", "conv"])
@pytest.mark.parametrize("size", [(12, 18), (13, 7)])
def test_residual_and_bottleneck_blocks_keep_or_stride_any_size(operator, size):
    x = torch.randn(2, 8, *size)
    out = [-(-n // 2) for n in size]
    assert ResidualBlock(operator, 8, 16, stride=2)(x).shape == (2, 16, *out)
    assert Bottleneck(operator, 8, 4, stride=2)(x).shape == (2, 16, *out)
    assert Bottleneck(operator, 8, 2)(x).shape == x.shape


def test_a_bottleneck_of_convolutions_is_the_usual_one():
    block = Bottleneck(conv, 8, 4, stride=2).double().eval()
    x = torch.randn(2, 8, 9, 12, dtype=torch.float64)
    y = torch.relu(block.bn1(nn.functional.conv2d(x, block.conv1.weight)))
    y = torch.relu(block.bn2(nn.functional.conv2d(y, block.conv2.weight, stride=2, padding=1)))
    y = block.bn3(nn.functional.conv2d(y, block.conv3.weight))
    skip = block.downsample[1](nn.functional.conv2d(x, block.downsample[0].weight, stride=2))
    torch.testing.assert_close(block(x), torch.relu(y + skip))


def test_blocks_pass_the_spacing_on_and_strides_multiply_it():
    chain = SpacedSequential(
        SonicBlock(3, 8, num_modes=4, stride=2), nn.MaxPool2d(2), Bottleneck(sonic, 8, 2, stride=3)
    )
    last = chain[2].conv2
    assert chain.stride == (12, 12)
    assert last.input_stride == last.reference_spacing == (4.0, 4.0)
    heard = []
    last.register_forward_pre_hook(lambda layer, args: heard.append(args[1]))
    x = torch.randn(1, 3, 24, 48)
    chain.eval()(x, spacing=(0.5, 0.25))
    chain(x, spacing=torch.tensor([[0.5, 0.25]]))
    assert heard[0] == (2.0, 1.0)
    assert heard[1].tolist() == [[2.0, 1.0]]
    y, spacing = chain.walk(x, 0.5)
    assert spacing == (6.0, 6.0)
    torch.testing.assert_close(torchsonic.set_spacing(chain, 0.5)(x), y)


def test_a_class_of_layers_is_an_operator_too():
    assert ResidualBlock(torchsonic.SonicConv2d, 8, 8, stride=2).operator.stride == (2, 2)
    assert Bottleneck(HybridConv, 8, 8).conv2.sonic.num_modes == 8


@pytest.mark.parametrize("size", [16, 17])
@pytest.mark.parametrize(("operator", "centred"), [(sonic, False), (orbit, True)])
def test_the_skip_of_a_spectral_stride_has_its_grid_and_does_not_alias(operator, centred, size):
    block = Bottleneck(operator, 4, 4, stride=2).eval()
    heard = []
    block.downsample.register_forward_pre_hook(lambda _, args: heard.append(args[0]))
    x = torch.randn(1, 4, size, size)
    block(x)
    torch.testing.assert_close(heard[0], resample(x, [-(-size // 2)] * 2, centred=centred))


def test_parts_of_a_chain_go_on_knowing_their_strides():
    chain = SpacedSequential(SonicBlock(3, 4, num_modes=4, stride=2), nn.ReLU(), SonicBlock(4, 4, num_modes=4))
    assert isinstance(chain[1:], SpacedSequential)
    assert chain[:1].stride == (2, 2)
    assert chain[1:][1].operator.input_stride == (2.0, 2.0)
    chain.append(SonicBlock(4, 4, num_modes=4))
    assert chain[3].operator.input_stride == (2.0, 2.0)
    x = torch.randn(1, 3, 8, 8)
    torch.testing.assert_close(chain(x, 0.5), chain[1:](chain[:1](x, 0.5), 1.0))
    with pytest.raises(TypeError, match="build a new one"):
        chain.insert(0, nn.ReLU())


@pytest.mark.parametrize("up", [nn.ConvTranspose2d(3, 3, 2, stride=2), nn.Upsample(scale_factor=2)])
def test_layers_that_refine_the_grid_refine_the_spacing(up):
    chain = SpacedSequential(up, SonicBlock(3, 3, num_modes=4))
    assert chain[1].operator.input_stride == (0.5, 0.5)
    assert chain.walk(torch.randn(1, 3, 8, 8), 1.0)[1] == (0.5, 0.5)


def test_plain_containers_that_would_lose_the_spacing_are_refused():
    for inner in (nn.Sequential(SonicBlock(3, 3, num_modes=4)), nn.Sequential(nn.Conv2d(3, 3, 1), nn.MaxPool2d(2))):
        with pytest.raises(ValueError, match="layer 1 is a plain container"):
            SpacedSequential(nn.ReLU(), inner)
    SpacedSequential(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()))


def test_odd_sizes_keep_the_extent_of_spectral_strides_and_the_step_of_pixel_strides():
    x = torch.randn(1, 3, 9, 9)
    _, spectral = SpacedSequential(SonicBlock(3, 3, num_modes=4, stride=2)).walk(x, 1.0)
    _, pixels = SpacedSequential(ResidualBlock(conv, 3, 3, stride=2)).walk(x, 1.0)
    assert spectral == (9 / 5, 9 / 5)
    assert pixels == (2.0, 2.0)


@pytest.mark.parametrize("local_kernel", [0, 3])
def test_a_linear_block_told_the_spacing_ignores_the_sampling(local_kernel):
    block = SonicBlock(3, 4, num_modes=6, norm="none", activation="none", local_kernel=local_kernel).double()
    coarse = block(band_limited_field((24, 24), 3, 3))
    fine = block(band_limited_field((48, 48), 3, 3), spacing=0.5)
    assert relative_error(fine[..., ::2, ::2], coarse) < 1e-11


@pytest.mark.parametrize("kind", ["group", "channel", "batch", "instance", "none"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_norms_take_any_number_of_axes(kind, axes):
    x = 3 * torch.randn(4, 6, *[5] * axes) + 2
    y = make_norm(kind, 6, axes)(x)
    assert y.shape == x.shape
    if kind != "none":
        assert abs(y.mean()) < 1e-5
        assert abs(y.std() - 1) < 0.1


def test_channel_norm_looks_at_one_pixel_only():
    x = torch.randn(1, 8, 5, 5)
    changed = x.clone()
    changed[..., 0, 0] *= 100
    norm = ChannelNorm(8)
    assert torch.equal(norm(x)[..., 1:, :], norm(changed)[..., 1:, :])


def test_dropped_paths_keep_the_expectation_and_vanish_in_evaluation():
    x = torch.ones(20000, 2)
    drop = DropPath(0.25)
    y = drop(x)
    assert y.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert abs(y.mean() - 1) < 0.02
    assert torch.equal(drop.eval()(x), x)
    block = ResidualBlock(conv, 4, 4, drop_path=0.999)
    x = torch.randn(1, 4, 6, 6)
    torch.testing.assert_close(block(x), torch.relu(x))


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="form must be one of"):
        SonicBlock(3, 4, form="sandwich")
    with pytest.raises(ValueError, match="norm must be one of"):
        make_norm("layer", 3, 2)
    with pytest.raises(ValueError, match="activation must be one of"):
        make_activation("tanh")
    with pytest.raises(ValueError, match="local_kernel"):
        SonicBlock(3, 4, local_kernel=-1)
    with pytest.raises(ValueError, match="mlp_ratio"):
        SonicBlock(3, 4, mlp_ratio=-1)
    with pytest.raises(ValueError, match="ratio must be at least 1"):
        ChannelMLP(4, 0)
    with pytest.raises(ValueError, match="kernel_size must be odd"):
        HybridConv(3, 4, kernel_size=4)
    with pytest.raises(ValueError, match="probability"):
        DropPath(1.0)
