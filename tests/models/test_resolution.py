"""One model, any sampling: what Sonic classifiers promise and the others do not."""

import copy
import functools

import pytest
import torch

import torchsonic
from torchsonic.functional import resample
from torchsonic.testing import relative_error

SONIC = ("sonic_tiny", "resnet50_sonic")
RIVALS = (
    "resnet50",
    "resnet50_s4nd",
    "resnet50_niff",
    "resnet50_gfnet",
    "resnet50_replk",
    "resnet50_dilated",
    "vit_s16",
)


@functools.cache
def make(name: str, **options):
    """For all tests: they change no model, unless it is a copy."""
    torch.manual_seed(0)
    if name.startswith("resnet50"):
        options["zero_init_last"] = False  # all that is there is heard
    model = torchsonic.create_model(name, num_classes=10, **options)
    with torch.no_grad():  # statistics of norms, without which evaluation means little
        for _ in range(3):
            model(torch.randn(4, 3, 64, 64))
    return model.eval()


@pytest.fixture(scope="module")
def image():
    """A band-limited image, coarse and twice as fine."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.randn(2, 3, 64, 64, generator=generator)
    fine = resample(coarse, 128)
    return fine[..., ::2, ::2], fine


def change(model, coarse, fine) -> float:
    """How far the logits move when the same image is sampled twice as fine."""
    with torch.no_grad():
        reference = model(coarse)
        told = model(fine, spacing=0.5) if model.takes_spacing else model(fine)
    return relative_error(told, reference)


@pytest.mark.parametrize("name", SONIC)
@pytest.mark.parametrize("grid", ["reference", "input"])
def test_features_before_the_first_nonlinearity_do_not_depend_on_the_sampling(name, grid, image):
    coarse, fine = image
    model = torchsonic.create_model(name, grid=grid, stem="linear" if name == "sonic_tiny" else "sonic")
    stem = model.stem if name == "sonic_tiny" else model.conv1
    with torch.no_grad():
        expected, got = stem(coarse), stem(fine, spacing=0.5)
    # The finer grid of `input` holds more frequencies; on the coarse one they are the same.
    assert relative_error(resample(got, expected.shape[2:]), expected) < 1e-4
    assert got.shape == (expected.shape if grid == "reference" else (*expected.shape[:2], 32, 32))


@pytest.mark.parametrize("name", SONIC)
@pytest.mark.parametrize("size", [96, 56, 65])
@pytest.mark.parametrize("kind", ["deep", "local"])
def test_stems_give_the_same_features_on_every_grid(name, size, kind, image):
    model = make(name, stem=kind)
    stem = model.stem if name == "sonic_tiny" else model.conv1
    smooth = resample(resample(image[0], 48), 64)  # fits all of the samplings
    with torch.no_grad():
        expected, got = stem(smooth), stem(resample(smooth, size), spacing=64 / size)
    assert relative_error(got, expected) < 1e-4
    assert expected.std() > 0.1


@pytest.mark.parametrize(("name", "linear"), [("sonic_tiny", "linear"), ("resnet50_sonic", "sonic")])
def test_other_stems_see_what_a_linear_one_of_stride_4_cannot(name, linear):
    """A grating of 5 pixels: beyond the grid of a quarter of the pixels, within that of a half."""
    place = torch.arange(80.0)
    grating = torch.sin(2 * torch.pi * place / 5).expand(1, 3, 80, 80)
    seen = {}
    for stem in (linear, "deep", "local"):
        torch.manual_seed(0)
        model = torchsonic.create_model(name, stem=stem).eval()
        first = model.stem if name == "sonic_tiny" else model.conv1
        with torch.no_grad():
            seen[stem] = (first(grating) - first(torch.zeros_like(grating))).std().item()
    assert seen[linear] < 1e-5
    assert min(seen["deep"], seen["local"]) > 0.05


@pytest.mark.parametrize("stem", ["deep", "local"])
@pytest.mark.parametrize("spacing", [(0.5, 1.0), (0.25, 0.5), (2.0, 1.0)])
def test_logits_do_not_depend_on_an_anisotropic_sampling(spacing, stem, image):
    coarse = resample(resample(image[0], (32, 64)), 64)  # fits the coarsest of the samplings
    model = make("sonic_tiny", stem=stem)
    other = resample(coarse, [round(64 / d) for d in spacing])
    with torch.no_grad():
        assert relative_error(model(other, spacing=spacing), model(coarse)) < 1e-4


@pytest.mark.parametrize("name", SONIC)
@pytest.mark.parametrize("size", [36, 62, 65, 67, 100])
def test_sizes_that_the_strides_do_not_divide_are_no_exception(name, size):
    model = make(name)
    fine = resample(torch.randn(1, 3, size, size), 2 * size)
    coarse = fine[..., ::2, ::2]
    with torch.no_grad():
        expected = model(coarse)
        assert relative_error(model(fine, spacing=0.5), expected) < 1e-3  # float32 through fifty layers
        assert relative_error(model(coarse, spacing=torch.ones(1, 2)), expected) < 1e-4
        assert relative_error(model(coarse, spacing=1.0), expected) < 1e-4


@pytest.mark.parametrize("name", SONIC)
def test_a_spacing_told_in_the_call_wins_over_one_set_before(name):
    model = copy.deepcopy(make(name))
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        torchsonic.set_spacing(model, 0.5)
        assert relative_error(model(x, spacing=1.0), expected) < 1e-5


def test_strides_are_found_whatever_the_model_was_told():
    model = copy.deepcopy(make("sonic_tiny"))
    before = [layer.input_stride for _, layer in torchsonic.nn.spaced_layers(model)]
    torchsonic.infer_strides(torchsonic.set_spacing(model, 0.5), torch.zeros(1, 3, 64, 64))
    assert [layer.input_stride for _, layer in torchsonic.nn.spaced_layers(model)] == before
    assert model.stem[0].spacing == (0.5, 0.5)


@pytest.mark.parametrize("stem", ["linear", "deep", "local"])
def test_a_spacing_in_single_precision_is_the_same_spacing(stem):
    """0.1 is a little more in float32; of 900 pixels that makes a part of one, which must not become a pixel."""
    model = torchsonic.create_model("sonic_tiny", widths=(8,), depths=(1,), stem=stem, spacing=0.1).stem
    x = torch.randn(1, 3, 8, 900)
    for spacing in (torch.full((1, 2), 0.1), torch.tensor([0.1, 0.1])):
        with torch.no_grad():
            assert relative_error(model(x, spacing=spacing), model(x)) < 1e-5


@pytest.mark.parametrize("name", SONIC)
def test_the_smallest_images_are_brought_to_the_grid_of_training(name):
    model, x = make(name), torch.randn(1, 3, 8, 9)
    with torch.no_grad():
        expected = model(resample(x, 128))
        assert relative_error(model(x, spacing=(128 / 8, 128 / 9)), expected) < 1e-4


def test_a_spacing_beyond_reason_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"enlarge an image of \(64, 64\) to .*use grid='input'"):
        make("sonic_tiny")(torch.randn(1, 3, 64, 64), spacing=256.0)


def test_the_papers_preset_keeps_a_stem_of_pixels_and_so_moves(image):
    """Its 7x7 convolution sees pixels as they come: the default has them on its own grid for a reason."""
    assert change(make("resnet50_sonic.paper"), *image) > 100 * change(make("resnet50_sonic"), *image)


def test_on_its_input_grid_a_sonic_classifier_still_moves_less(image):
    model = torchsonic.create_model("sonic_tiny", num_classes=10, grid="input", stem="deep")
    model.load_state_dict(make("sonic_tiny", stem="deep").state_dict())
    assert change(model.eval(), *image) < min(change(make(name), *image) for name in ("resnet50", "vit_s16"))


def test_sonic_logits_move_less_than_every_rivals(image):
    sonic = {name: change(make(name), *image) for name in SONIC}
    rivals = {name: change(make(name), *image) for name in RIVALS}
    assert max(sonic.values()) < 1e-3
    assert max(sonic.values()) < min(rivals.values()), (sonic, rivals)


INSIDE = (..., slice(8, -8), slice(8, -8))
WRAPPING, BORDER = {"padding_mode": "circular"}, {}


# Nonlinearities make frequencies that the coarse grid folds. Zeros beyond the edge are a step, which no grid holds:
# near the border two grids see different fields, and some of that reaches the inside.
@pytest.mark.parametrize(
    ("options", "everywhere", "inside"),
    [(WRAPPING, 0.02, 0.02), ({**WRAPPING, "mlp_ratio": 2}, 0.02, 0.02), (BORDER, 0.15, 0.08)],
    ids=["plain", "mlp", "border"],
)
def test_a_segmentation_told_the_spacing_is_the_same_field(image, options, everywhere, inside):
    coarse, fine = image
    smooth = resample(resample(coarse, 16), 64), resample(resample(fine, 16), 128)
    torch.manual_seed(0)
    model = torchsonic.create_model("sonicnet2d", norm="channel", **options).eval()
    with torch.no_grad():
        expected, told, untold = model(smooth[0]), model(smooth[1], spacing=0.5), model(smooth[1])
    told, untold = told[..., ::2, ::2], untold[..., ::2, ::2]
    assert relative_error(told, expected) < everywhere
    assert relative_error(told[INSIDE], expected[INSIDE]) < inside
    assert relative_error(told, expected) < 0.2 * relative_error(untold, expected)


def test_a_stem_that_counts_pixels_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="always uses grid='reference'; use stem='deep'"):
        torchsonic.create_model("sonic_tiny", grid="input")
    model, x = make("sonic_tiny"), torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(x, spacing=0.5)
        assert relative_error(model(x, spacing=torch.full((2, 2), 0.5)), expected) < 1e-6
        with pytest.raises(ValueError, match=r"no common grid .* call the model once per spacing"):
            model(x, spacing=torch.tensor([[0.5, 0.5], [1.0, 1.0]]))


def test_per_sample_spacing_is_taken_by_classifiers():
    model = make("sonic_tiny", stem="deep")
    x = resample(torch.randn(2, 3, 16, 16), 64)  # fits the grids of both samples
    spacing = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    with torch.no_grad():
        torch.testing.assert_close(model(x, spacing=spacing), model(x), rtol=1e-4, atol=1e-5)
        mixed = model(x, spacing=torch.tensor([[1.0, 1.0], [0.5, 2.0]]))
        alone = model(x)
        assert relative_error(mixed[1:], model(x[1:], spacing=(0.5, 2.0))) < 1e-5
    # Each sample has its own grid.
    assert relative_error(mixed[0], alone[0]) < 1e-5 < 0.05 < relative_error(mixed[1], alone[1])
