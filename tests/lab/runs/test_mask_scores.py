"""Scores of rotated and scaled pictures: nothing is lost but what the network loses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("PIL", reason="Pillow is not installed")
pytest.importorskip("scipy", reason="SciPy is not installed")
pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")

from tests.lab.data.discs import write_discs
from tests.lab.data.test_scaling import soft_disc
from torchsonic.lab.data.masks import find_pairs
from torchsonic.lab.runs.mask_scores import score_cases, score_rotated, score_scaled, score_volume
from torchsonic.lab.runs.masks import MasksConfig
from torchsonic.models import create_model

NAMES = ("dice", "boundary")
CONFIG = MasksConfig(num_classes=2, tolerance=2.0, test_turns=(30.0, 45.0, 90.0), test_scales=(0.5, 2.0))


class Threshold(torch.nn.Module):
    """Finds what is brighter than a level, ``shift`` away from where it is, and remembers what it was told."""

    def __init__(self, level: float = 0.5, shift: float = 0.0) -> None:
        super().__init__()
        self.level = level
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.arguments, self.told, self.shift = {"spacing": (1.0, 1.0)}, [], shift

    def forward(self, x, spacing=None):
        self.told.append((tuple(x.shape[2:]), spacing))
        level = torch.lerp(x.amin(), x.amax(), self.level)
        bright = (x[:, :1] - level).roll(round(self.shift / (spacing or (1.0, 1.0))[1]), -1)
        return torch.cat([-bright, bright], 1) * self.weight


def disc(**options):
    return replace(soft_disc(**options), spacing=(1000.0, 1.0, 1.0))


@pytest.mark.parametrize("instances", [False, True])
def test_a_network_that_turns_with_the_picture_scores_the_same_turned_by_90_degrees(instances):
    config = replace(CONFIG, num_classes=3 if instances else 2, instances=instances, test_turns=(90.0, 180.0))

    class Outline(Threshold):
        def forward(self, x, spacing=None):
            back, front = super().forward(x, spacing).unbind(1)
            return torch.stack([back, front, front - 1], 1)

    model = Outline(0.9) if instances else Threshold(0.9)
    plain, _ = score_volume(model, disc(centre=(15.0, 30.0)), config)
    assert 0.5 < plain["dice"][0] < 1.0
    for row in score_rotated(model, disc(centre=(15.0, 30.0)), config):
        assert {name: row[name] for name in row if name != "turn"} == {
            name: plain[name] for name in row if name in plain
        }
    assert ("precision" in row) == instances


def test_what_is_outside_the_picture_does_not_count():
    """One bright half goes on outside, where the network finds it, too."""
    volume = disc(size=(40, 40))
    label = np.broadcast_to(np.arange(40) < 20, (1, 40, 40)).astype(np.int32)
    volume = replace(volume, image=np.stack([label] * 3).astype(np.float32), label=label)
    for row in score_rotated(Threshold(), volume, CONFIG):
        assert row["dice"][0] > 0.98, row
        assert row["boundary"] == [1.0]


def test_a_turned_picture_is_as_bright_as_it_was():
    """Its mean and deviation are of the picture alone, not of what lies outside."""
    seen = []

    class Watch(Threshold):
        def forward(self, x, spacing=None):
            seen.append(float(x.max()))
            return super().forward(x, spacing)

    score_rotated(Watch(), disc(size=(30, 60), centre=(15.0, 15.0)), CONFIG)
    assert seen == pytest.approx([seen[-1]] * 3, rel=1e-3)


def test_a_scale_of_one_is_the_plain_test():
    plain, _ = score_volume(Threshold(), disc(), CONFIG)
    (row,) = score_scaled(Threshold(), disc(), replace(CONFIG, test_scales=(1.0,)))
    assert all(row[way][name] == plain[name] for way in ("told", "untold", "back") for name in NAMES)


def test_a_network_that_does_not_depend_on_resolution_keeps_its_scores():
    plain, _ = score_volume(Threshold(), disc(), CONFIG)
    for row in score_scaled(Threshold(), disc(), CONFIG):
        for way in ("told", "untold", "back"):
            assert row[way]["dice"] == pytest.approx(plain["dice"], abs=0.03), (row["scale"], way)
            assert row[way]["boundary"] == pytest.approx(plain["boundary"], abs=0.03), (row["scale"], way)


def test_the_tolerance_is_a_distance_and_not_a_number_of_pixels():
    for row in score_scaled(Threshold(shift=2.0), disc(), CONFIG):
        assert row["told"]["boundary"][0] > 0.9
    for row in score_scaled(Threshold(shift=4.0), disc(), CONFIG):
        assert row["told"]["boundary"][0] < 0.8


def test_networks_are_told_the_pixel_size_where_they_can_be():
    model = Threshold()
    (row,) = score_scaled(model, disc(), replace(CONFIG, test_scales=(2.0,)))
    assert model.told == [((82, 92), (0.5, 0.5)), ((82, 92), None), ((41, 46), (1.0, 1.0))]
    for untold in ({"tell_spacing": False}, {"model": "unet"}):
        model = Threshold()
        (row,) = score_scaled(model, disc(), replace(CONFIG, test_scales=(0.5,), **untold))
        assert list(row) == ["scale", "untold", "back"]
        assert model.told == [((21, 23), None), ((41, 46), None)]


def test_further_tests_leave_the_plain_one_as_it_is(tmp_path):
    cases = find_pairs(write_discs(tmp_path, 2))
    torch.manual_seed(0)
    model = create_model("sonicnet2d", in_channels=3, num_classes=3, spacing=(1.0, 1.0), width=4, depth=1, num_modes=4)
    config = replace(CONFIG, num_classes=3, instances=True)
    bare = score_cases(model, cases, replace(config, test_turns=(), test_scales=()), show=False)
    full = score_cases(model, cases, config, show=False)
    assert "rotated" not in bare
    assert "scaled" not in bare
    new = {name: full.pop(name) for name in ("rotated", "scaled")}
    tables = [{name: row.pop(name) for name in ("rotated", "scaled")} for row in full["cases"]]
    for row in (*full["cases"], *bare["cases"]):
        del row["seconds"]
    assert full == bare
    assert [row["turn"] for row in new["rotated"]] == [30.0, 45.0, 90.0]
    assert [row["scale"] for row in new["scaled"]] == [0.5, 2.0]
    each = [table["scaled"][1]["back"]["dice"][0] for table in tables]
    assert new["scaled"][1]["back"]["dice"] == pytest.approx(np.mean(each))
