import pytest
import torch
from torch import nn

import torchsonic
from tests.layers import make_layer


def test_every_parameter_is_in_exactly_one_group():
    model = nn.Sequential(make_layer(2), nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 1))
    model[2].weight.requires_grad_(False)
    groups = torchsonic.parameter_groups(model, lr=1e-2, weight_decay=0.1, mode_lr_scale=0.01)
    grouped = [id(p) for g in groups for p in g["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    modes = next(g for g in groups if g["name"] == "modes")
    assert {id(p) for p in modes["params"]} == {id(p) for p in model[0].mode_parameters()}
    assert modes["lr"] == 1e-4
    assert [g["weight_decay"] for g in groups] == [0.1, 0.0, 0.0]


def test_modes_move_slower_than_mixing():
    layer = make_layer(2, dtype=torch.float32)
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    optimiser = torch.optim.AdamW(torchsonic.parameter_groups(layer, lr=1e-2, mode_lr_scale=0.01))
    layer(torch.randn(2, 3, 8, 8)).square().mean().backward()
    optimiser.step()
    moved = {name: (p - before[name]).abs().max().item() for name, p in layer.named_parameters()}
    assert abs(moved["mix_in"] - 1e-2) < 1e-3
    assert abs(moved["raw_damping"] - 1e-4) < 1e-5


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (make_layer(2).parameters(), {"lr": 1e-2}, r"pass the model, not model\.parameters\(\)"),
        (make_layer(2), {"lr": "1e-3"}, "lr must be a number, got '1e-3'"),
        (make_layer(2), {"lr": -1.0}, "lr must not be negative"),
    ],
)
def test_wrong_arguments_are_named(given, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        torchsonic.parameter_groups(given, **options)
