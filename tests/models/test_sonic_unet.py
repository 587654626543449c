"""SonicUNet: levels follow the reference spacing, and the answer does not follow the sampling."""

import pytest
import torch

from torchsonic import create_model, set_orientation, set_spacing
from torchsonic.functional import resample
from torchsonic.models import OctaveGrid, SonicUNet
from torchsonic.nn import sonic_layers
from torchsonic.testing import relative_error

HEARTS = (10.0, 1.4, 1.4)


def small(**options):
    torch.manual_seed(0)
    sizes = {"widths": (8, 8, 16), "num_modes": (4, 4, 8)}
    return SonicUNet(1, 3, **{"spacing": HEARTS, **sizes, **options}).eval()


def test_thick_slices_are_halved_only_when_the_others_have_become_as_coarse():
    model = create_model("sonicunet3d", spacing=HEARTS)
    strides = [layer.input_stride for _, layer in sonic_layers(model)]
    assert strides == [(1, 1, 1), (1, 2, 2), (1, 4, 4), (2, 8, 8), (4, 16, 16), (2, 8, 8), (1, 4, 4)]
    cubes = create_model("sonicunet3d", spacing=1.0)
    assert [layer.stride for _, layer in sonic_layers(cubes)] == [(2, 2, 2)] * 4 + [(1, 1, 1)] * 3


def test_the_margin_has_as_many_millimetres_on_every_axis_and_level():
    widths = [
        [n * step for n, step in zip(layer.padding, layer.reference_spacing, strict=True)]
        for _, layer in sonic_layers(small(padding=8))
    ]
    assert widths == [pytest.approx([8 * 1.4] * 3)] * 5
    assert {layer.padding for _, layer in sonic_layers(small(padding_mode="circular"))} == {None}


@pytest.mark.parametrize("options", [{}, {"padding_mode": "circular"}], ids=["border", "wrapping"])
@pytest.mark.parametrize("spacing", [(10.0, 0.7, 0.7), (5.0, 1.4, 2.8)])
def test_sampled_by_powers_of_two_finer_or_coarser_a_field_gives_the_same_logits(spacing, options):
    model = small(**options)
    field = torch.randn(1, 1, 3, 8, 8)
    size = [round(n * a / b) for n, a, b in zip((6, 32, 32), HEARTS, spacing, strict=True)]
    with torch.no_grad():
        expected = model(resample(field, (6, 32, 32)), spacing=HEARTS)
        found = resample(model(resample(field, size), spacing=spacing), (6, 32, 32))
    assert relative_error(found, expected) < 1e-4


def test_samples_of_mixed_spacing_share_a_grid_and_are_each_told_their_own():
    model, x = small(padding_mode="circular"), torch.randn(2, 1, 6, 20, 24)  # margins would be as wide as the widest
    steps = torch.tensor([[10.0, 1.4, 1.4], [9.0, 1.5, 1.5]])
    with torch.no_grad():
        together = model(x, spacing=steps)
        assert relative_error(together[:1], model(x[:1], spacing=HEARTS)) < 1e-4
        assert relative_error(together[1:], model(x[1:], spacing=(9.0, 1.5, 1.5))) < 1e-4
        assert relative_error(together[1:], model(x[1:])) > 1e-2


@pytest.mark.parametrize("told", ["in the call", "beforehand"])
def test_no_sample_depends_on_the_grids_of_the_others(told):
    model, x = small(spacing=1.0, local_kernel=3).double(), torch.randn(3, 1, 8, 8, 8, dtype=torch.float64)
    steps = torch.tensor([[1, 1, 0.7], [4, 1, 0.7], [1, 1, 0.7]], dtype=torch.float64)
    turns = torch.stack([torch.eye(3), torch.eye(3).flip(1), torch.eye(3)]).double()
    with torch.no_grad():
        for options in ({}, {"orientation": turns}):
            alone = [model(x[i : i + 1], steps[i], **{k: v[i] for k, v in options.items()}) for i in range(3)]
            if told == "in the call":
                together = model(x, steps, **options)
            else:
                set_orientation(set_spacing(model, steps), options.get("orientation"))
                together = model(x)
                set_orientation(set_spacing(model, 1.0), None)
            assert relative_error(together, torch.cat(alone)) < 1e-12


def test_samples_of_one_grid_are_computed_in_one_call():
    model, x, sizes = small(), torch.randn(3, 1, 6, 16, 16), []
    model.head.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    with torch.no_grad():
        model(x, spacing=torch.tensor([HEARTS, (9.0, 1.5, 1.5), HEARTS]))
        assert sizes == [3]
        model(x, spacing=torch.tensor([HEARTS, (10.0, 0.7, 0.7), HEARTS]))
    assert sizes == [3, 2, 1]


def test_a_spacing_in_the_wrong_unit_does_not_fill_the_memory():
    assert OctaveGrid(spacing=1.0).output_size((10, 10), spacing=(1000.0, 0.001)) == (40, 1)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"widths": (8,), "num_modes": (4,)}, "at least 2"),
        ({"widths": (8, 8), "num_modes": (4,)}, "widths and num_modes must have equal length"),
        ({"padding": 3, "padding_mode": "circular"}, "'circular' has no margin"),
        ({"local_kernel": 2}, "kernel_size must be odd"),
    ],
)
def test_what_cannot_be_built_is_refused(bad, words):
    with pytest.raises(ValueError, match=words):
        small(**bad)
