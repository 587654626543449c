"""Scores of networks whose answers are known."""

import pytest
import torch
from torch import nn

from torchsonic.lab.data import PERTURBATIONS, HalliGalli, SynthShape
from torchsonic.lab.metrics.robustness import RESOLUTIONS, score_perturbations, score_resolutions, score_samples
from torchsonic.models import create_model

SHARED = {"num_classes": 6, "background": False}


class Painted(SynthShape):
    """Scenes whose red channel shows the label."""

    def samples(self, indices, size=None):
        image, label = super().samples(indices, size)
        image[:, 0] = label / 10
        return image, label


class Reader(nn.Module):
    """Reads the label from the red channel, and remembers which spacings it was told."""

    takes_spacing = True

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.told = []

    def forward(self, image, spacing=None):
        self.told.append(spacing)
        classes = torch.arange(6.0).view(1, 6, 1, 1)
        return -(image[:, :1] * 10 - classes).abs()


class Blind(nn.Module):
    """Sees background everywhere, and cannot be told anything."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, image):
        return torch.cat([image[:, :1] * 0 + 1, image.new_zeros(len(image), 5, *image.shape[2:])], dim=1)


def test_samples_are_scored_together_whatever_the_batches():
    data = Painted()
    assert score_samples(Reader(), data.samples, range(70), **SHARED) == 1.0
    assert score_samples(Blind(), data.samples, range(70), **SHARED) == 0.0


def test_rows_are_those_of_the_paper_and_get_harder():
    rows = score_perturbations(Reader(), Painted(), range(20))
    assert [(r["test"], r["level"]) for r in rows] == [(k, v) for k, p in PERTURBATIONS.items() for v in p.levels]
    noise = [r["dice"] for r in rows if r["test"] == "noise"]
    assert 1 > noise[0] > noise[1] > noise[2] > 0
    unscaled = next(r for r in rows if r["test"] == "rescaling" and r["level"] == 1.0)
    assert unscaled["dice"] == unscaled["told"] == 1.0


def test_perturbations_do_not_depend_on_the_run():
    first, second = (score_perturbations(Reader(), Painted(), range(10)) for _ in range(2))
    assert first == second


def test_resolutions_show_the_whole_scene_and_tell_its_spacing():
    reader = Reader()
    rows = score_resolutions(reader, Painted(), range(10))
    assert [row["dice"] for row in rows] == [row["told"] for row in rows] == [1.0] * len(RESOLUTIONS)
    assert set(reader.told) == {None, *[1 / level for level in RESOLUTIONS]}


@pytest.mark.parametrize("score", [score_perturbations, score_resolutions])
def test_who_cannot_be_told_is_not(score):
    rows = [row for row in score(Blind(), Painted(), range(4)) if "told" in row]
    assert rows
    assert all(row["told"] is None for row in rows)


def test_a_window_outside_which_all_is_ignored_changes_no_score():
    data = HalliGalli()
    model = create_model("synthshape_sonicnet", num_classes=2, depth=1, width=8).eval()
    options = {"num_classes": 2, "background": True}
    whole = score_samples(model, data.samples, range(60), **options)
    assert score_samples(model, data.samples, range(60), **options, window=data.window()) == whole
