"""Scenes are continuous, seeded by sample, and what the tasks say they are."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from torchsonic.lab.data import HalliGalli, SynthShape
from torchsonic.lab.data.synthetic.shapes import KINDS, REACH, Scenes, render, signed_distance
from torchsonic.lab.training.segmentation import SegmentationTask
from torchsonic.lab.training.task import _Parts

AREAS = {  # of shapes of radius 1
    1: np.pi,
    2: 1.6**2,
    3: 3 * np.sqrt(3) / 4,
    4: 4 * 0.64 - 0.64**2,
    5: 5 * 0.45 * np.sin(np.pi / 5),
}


@pytest.mark.parametrize("data", [SynthShape(seed=3), HalliGalli(seed=3, jitter=2.0, colours=True)])
def test_a_sample_is_the_same_in_any_batch(data):
    image, label = data.samples(range(20))
    other_image, other_label = data.samples([17, 4, 1003])
    assert torch.equal(other_image[:2], image[[17, 4]])
    assert torch.equal(other_label[:2], label[[17, 4]])
    assert not torch.equal(type(data)(seed=4).samples([17])[0], image[17:18])


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_change_the_data(workers):
    task = SegmentationTask(SynthShape(size=(16, 16)), range(12), range(2), batch=4, noise=0.1)
    keys = [(step, range(4)) for step in range(5)]
    loader = DataLoader(_Parts(task), batch_size=None, sampler=keys, num_workers=workers)
    for (step, samples), (image, label) in zip(keys, loader, strict=True):
        expected = task.batch(step, samples)
        assert torch.equal(image, expected[0])
        assert torch.equal(label, expected[1])
        halves = [task.batch(step, range(0, 2)), task.batch(step, range(2, 4))]
        assert torch.equal(torch.cat([half[0] for half in halves]), image)


def test_training_meets_every_sample_once_in_each_round():
    task = SegmentationTask(SynthShape(size=(8, 8)), range(100, 107), range(2), batch=3)
    met = []
    task.data = type("Record", (), {"samples": lambda self, ids: (met.extend(ids), (torch.zeros(len(ids)),) * 2)[1]})()
    for step in range(7):
        task.batch(step, range(3))
    rounds = [met[i : i + 7] for i in (0, 7, 14)]
    assert all(sorted(one) == list(range(100, 107)) for one in rounds)
    assert rounds[0] != rounds[1]


@pytest.mark.parametrize("kind", AREAS)
def test_shapes_have_their_areas_and_stay_within_reach(kind):
    axis = (np.arange(800, dtype=np.float32) + 0.5) / 400 * 1.25 - 1.25
    down, right = np.meshgrid(axis, axis, indexing="ij")
    inside = signed_distance(kind, down, right) <= 0
    assert inside.mean() * 2.5**2 == pytest.approx(AREAS[kind], rel=0.01)
    assert np.hypot(down, right)[inside].max() <= REACH
    assert np.array_equal(inside, inside[:, ::-1])


def test_one_scene_at_several_resolutions_is_one_scene():
    data = SynthShape()
    coarse, label = data.samples(range(8))
    fine, fine_label = data.samples(range(8), (256, 256))
    assert (F.avg_pool2d(fine, 4) - coarse).abs().mean() < 2e-3
    assert (fine_label[:, 2::4, 2::4] == label).double().mean() > 0.99
    wide, _ = data.samples(range(8), (64, 128))
    assert (F.avg_pool2d(wide, (1, 2)) - coarse).abs().mean() < 4e-3


def test_shapes_do_not_overlap_and_colours_say_nothing():
    data = SynthShape()
    scenes = data.scenes(range(2000))
    present = scenes.kind > 0
    assert set(np.unique(present.sum(1))) <= set(range(1, 7))
    assert present.sum(1).mean() > 3.3
    for b in range(200):
        chosen = np.flatnonzero(present[b])
        for i in chosen:
            reach = REACH * scenes.radius[b, i]
            assert (scenes.centre[b, i] >= reach).all()
            assert (scenes.centre[b, i] <= 1 - reach).all()
            for j in chosen[chosen > i]:
                apart = np.linalg.norm(scenes.centre[b, i] - scenes.centre[b, j])
                assert apart >= REACH * (scenes.radius[b, i] + scenes.radius[b, j])
    counts = np.bincount(scenes.kind[present], minlength=6)[1:]
    assert counts.min() > 0.9 * counts.mean()
    means = np.stack([scenes.colour[scenes.kind == kind].mean(0) for kind in range(1, 6)])
    assert np.ptp(means, axis=0).max() < 0.03


def test_images_are_colours_and_labels_classes():
    image, label = SynthShape().samples(range(64))
    assert image.dtype == torch.float32
    assert 0 <= image.min() < image.max() <= 1
    assert label.unique().tolist() == list(range(len(KINDS)))


def test_halligalli_asks_for_exactly_one_pair():
    data = HalliGalli()
    scenes, answer = data.scenes(range(3000))
    expected = np.array([len(set(row)) == 3 for row in scenes.kind])
    assert np.array_equal(answer == 1, expected)
    assert answer.mean() == pytest.approx(0.5, abs=0.03)
    assert len({tuple(row) for row in scenes.kind}) > 600


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_arrangements_left_out_are_drawn_in_other_orders_only(share):
    seen, unseen = (HalliGalli(unseen=share, split=3, left_out=left_out) for left_out in (False, True))
    drawn, left_out = ({tuple(row) for row in data.scenes(range(6000))[0].kind} for data in (seen, unseen))
    assert not drawn & left_out
    assert {tuple(sorted(row)) for row in left_out} <= {tuple(sorted(row)) for row in drawn}
    assert sum(len(set(row)) == 3 for row in left_out) == 360 * share
    assert len(left_out) == 360 * share + round(265 * share)
    scenes, answer = unseen.scenes(range(3000))
    assert answer.mean() == pytest.approx(0.5, abs=0.03)
    assert np.array_equal(answer == 1, [len(set(row)) == 3 for row in scenes.kind])


def test_seeds_leave_out_other_arrangements_and_without_a_share_none():
    ones, others = (HalliGalli(unseen=0.1, split=split, left_out=True).scenes(range(100))[0].kind for split in (0, 1))
    assert not np.array_equal(ones, others)
    scenes, answer = HalliGalli(unseen=1e-3, left_out=True).scenes(range(100))  # less than one, so it is one of each
    assert len({tuple(row) for row in scenes.kind}) == len(set(answer)) == 2
    assert np.array_equal(HalliGalli().scenes(range(100))[0].kind, HalliGalli(split=1).scenes(range(100))[0].kind)


def test_halligalli_tells_nothing_at_the_centre():
    image, label = HalliGalli().samples(range(50))
    assert image[:, :, 18:46, 18:46].abs().max() == 0
    heard = label != -100
    assert heard.sum((1, 2)).unique().tolist() == [4]
    assert heard[:, 31:33, 31:33].all()
    _, fine = HalliGalli(patch=4).samples(range(2), (128, 128))
    assert (fine != -100).sum((1, 2)).tolist() == [64, 64]


def test_a_shape_on_a_tiny_grid_is_still_painted():
    one = np.ones((1, 1), np.float32)
    scenes = Scenes(
        kind=one.astype(np.int64),
        centre=np.full((1, 1, 2), 0.5, np.float32),
        radius=0.4 * one,
        colour=np.ones((1, 1, 3), np.float32),
        ground=np.zeros((1, 3), np.float32),
    )
    image, label = render(scenes, (1, 2))
    assert image.shape == (1, 3, 1, 2)
    assert label.tolist() == [[[1, 1]]]


def test_kept_images_are_those_rendered():
    """Fixed scenes are kept; one that may vary, by next to nothing, is rendered each time."""
    for size in ((64, 64), (40, 24)):
        kept, _ = HalliGalli(seed=3).samples(range(30), size)
        rendered, _ = HalliGalli(seed=3, jitter=1e-9).samples(range(30), size)
        torch.testing.assert_close(kept, rendered, rtol=0, atol=1e-5)
        kept += 1  # a caller's own copy
        assert HalliGalli(seed=3).samples(range(30), size)[0].max() <= 1


@pytest.mark.parametrize(("count", "pixels"), [(64, [31, 32]), (128, [62, 63, 64, 65]), (24, [11, 12]), (5, [2])])
def test_the_patch_has_its_pixels_on_any_grid(count, pixels):
    _, label = HalliGalli().samples([0], (count, count))
    rows = (label[0] >= 0).any(1).nonzero()[:, 0].tolist()
    assert rows == pixels
    assert HalliGalli().window((count, count)) == (slice(pixels[0], pixels[-1] + 1),) * 2
