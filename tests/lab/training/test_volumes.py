"""Volumes in the one training loop: patches by number, a spacing for each sample, resumption to the bit."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import torchsonic
from tests.lab.data.nifti import make_arrays
from torchsonic.lab.data.labels import IGNORE
from torchsonic.lab.data.volumes.augmentation import Augmentation
from torchsonic.lab.data.volumes.collection import Prepared, index_classes
from torchsonic.lab.training import TrainingConfig, fit
from torchsonic.lab.training.segmentation import cross_entropy_and_dice
from torchsonic.lab.training.task import make_batches
from torchsonic.lab.training.volumes import TRAINING, PatchBatch, VolumeTask

SPACINGS = ((4.0, 1.5, 1.0), (2.5, 1.0, 1.0), (6.0, 0.8, 1.1))


def make_volumes():
    volumes = {}
    for seed, spacing in enumerate(SPACINGS):
        image, label = make_arrays((5 + seed, 14, 12 + seed), spacing, seed=seed)
        image = (image[None] - image.mean()) / image.std()
        volumes[f"case{seed}"] = Prepared(f"case{seed}", image, label, spacing, index_classes(label))
    return volumes


def make_task(**options):
    options = {"num_classes": 3, "patch": (6, 8, 8), "batch": 4, "augmentation": Augmentation(chance=0.5), **options}
    return VolumeTask(make_volumes(), ["case0", "case1"], ["case2"], **options)


def make_network(**options):
    torch.manual_seed(0)
    options = {"width": 8, "depth": 2, "num_modes": 6, "spacing": SPACINGS[0], **options}
    return torchsonic.create_model("sonicnet3d.light", in_channels=1, num_classes=3, **options)


def test_a_batch_is_a_function_of_seed_step_and_place():
    whole = make_task().batch(3, range(4))
    again = make_task()
    again.batch(7, range(4))  # what came before does not matter
    parts = [again.batch(3, range(2)), again.batch(3, range(2, 4))]
    for one, joined in zip(whole, (torch.cat(part) for part in zip(*parts, strict=True)), strict=True):
        assert torch.equal(one, joined)
    assert not torch.equal(make_task(seed=1).batch(3, range(4)).image, whole.image)
    assert not torch.equal(make_task().batch(4, range(4)).image, whole.image)


def test_processes_that_prepare_data_do_not_change_it():
    config = TrainingConfig(steps=3, batch=4)
    batches = [list(make_batches(make_task(), config, start=0, rank=0, world=1))]
    config = TrainingConfig(steps=3, batch=4, workers=2)
    batches.append(list(make_batches(make_task(), config, start=0, rank=0, world=1)))
    for alone, shared in zip(*batches, strict=True):
        assert isinstance(shared, PatchBatch)
        assert all(torch.equal(a, b) for a, b in zip(alone, shared, strict=True))


def test_every_case_is_met_equally_often_with_its_own_spacing():
    batch = make_task(augmentation=None).batch(0, range(4))
    rows = sorted(map(tuple, batch.spacing.tolist()))
    assert rows == sorted(tuple(np.float32(s).tolist()) for s in (*SPACINGS[:2], *SPACINGS[:2]))


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_patches_show_foreground_at_the_asked_share(share):
    task = make_task(foreground=share, patch=(1, 1, 1), augmentation=None, batch=8)
    labels = torch.cat([task.batch(step, range(8)).label for step in range(40)]).flatten()
    by_chance = np.mean([(task.volumes[name].label > 0).mean() for name in task.train])
    expected = share + (1 - share) * by_chance
    assert (labels > 0).float().mean().item() == pytest.approx(expected, abs=0.08)
    assert share < 1 or (labels > 0).all()


def test_a_mirrored_patch_of_an_oblique_volume_shows_a_mirrored_body_that_is_not_rotated():
    tilt = torch.linalg.matrix_exp(torch.tensor([[0.0, 0.2, 0], [-0.2, 0, 0.4], [0, -0.4, 0]])).double().numpy()
    volume, slope = make_volumes()["case0"], np.array([0.3, -1.0, 0.7])
    shape = volume.label.shape
    index = np.stack(np.meshgrid(*[np.arange(n) - (n - 1) / 2 for n in shape], indexing="ij"), -1)
    image = (index * volume.spacing @ tilt.T @ slope).astype(np.float32)  # of a body that is brighter along the slope
    volumes = {"case0": replace(volume, image=image[None], orientation=tilt)}
    still = Augmentation(chance=0, shift=0)
    task = VolumeTask(volumes, ["case0"], [], num_classes=3, patch=shape, batch=1, foreground=0, augmentation=still)
    seen = set()
    for number in range(12):
        patch, _, spacing, told = task._patch(number, "case0", TRAINING)
        bodies = {s: index * spacing @ told.T @ (s * slope) for s in itertools.product((1, -1), repeat=3)}
        (signs,) = [s for s, body in bodies.items() if np.allclose(patch[0], body, atol=1e-4)]
        seen.add(signs)
    assert len(seen) > 4


def test_shifted_patches_show_their_volume_elsewhere_and_learn_nothing_beyond_it():
    """A network must not learn where volumes end: the same voxels appear at many places of a patch."""
    options = {"patch": (5, 14, 12), "foreground": 0.0, "batch": 8}  # as large as the first volume
    still = Augmentation(mirror=(), rotation=0, scale=1, gamma=1, contrast=1, brightness=0, noise=0, chance=1, shift=0)
    volume = make_volumes()["case0"]
    corners = set()
    for number in range(12):
        task = make_task(augmentation=replace(still, shift=0.4), **options)
        image, label, *_ = task._patch(number, "case0", TRAINING)
        inside = np.argwhere(label != IGNORE)
        low, high = inside.min(0), inside.max(0) + 1
        ends = list(zip(low, high, label.shape, strict=True))
        box = tuple(slice(a, b) for a, b, _ in ends)
        shown = tuple(slice(n - b, None) if a == 0 else slice(0, b - a) for a, b, n in ends)
        np.testing.assert_array_equal(image[0][box], volume.image[0][shown])
        np.testing.assert_array_equal(label[box], volume.label[shown])
        corners.add(tuple(low - np.array(label.shape) + high))
    assert len(corners) > 8
    inside = [make_task(augmentation=still, **options)._patch(number, "case0", TRAINING)[1] for number in range(4)]
    assert all((label != IGNORE).all() for label in inside)


def test_a_batch_of_mixed_spacings_is_its_samples_one_by_one():
    model, task = make_network(padding_mode="circular").double(), make_task()  # a margin would be that of the finest
    batch = task.batch(0, range(4))
    batch = PatchBatch(batch.image.double(), batch.label, batch.spacing)
    assert len(set(map(tuple, batch.spacing.tolist()))) > 1
    together = task.logits(model, batch)
    alone = [task.logits(model, PatchBatch(*[part[i : i + 1] for part in batch])) for i in range(4)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-10, atol=1e-10)
    numbers = model(batch.image[:1], spacing=tuple(batch.spacing[0].double().tolist()))
    torch.testing.assert_close(together[:1], numbers, rtol=1e-10, atol=1e-10)
    gradients = []
    for parts in ([batch], [PatchBatch(*[part[i : i + 1] for part in batch]) for i in range(4)]):
        model.zero_grad()
        sum(task.loss(model, part) / len(parts) for part in parts).backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)  # the loss itself is computed in float32


class Listener(nn.Module):
    """Remembers what it was told."""

    def __init__(self):
        super().__init__()
        self.weight, self.heard = nn.Parameter(torch.zeros(3)), []

    def forward(self, x, **told):
        self.heard.append(told)
        return self.weight[:, None, None, None].expand(len(x), 3, *x.shape[2:])


def test_a_model_is_told_the_spacing_or_nothing():
    for tell in (True, False):
        model, task = Listener(), make_task(tell_spacing=tell)
        batch = task.batch(0, range(4))
        task.loss(model, batch)
        (told,) = model.heard
        assert set(told) == ({"spacing"} if tell else set())
        if tell:
            assert isinstance(told["spacing"], np.ndarray), "mixed precision would round a tensor"
            np.testing.assert_array_equal(told["spacing"], batch.spacing.numpy())


def test_anatomy_is_scaled_by_the_spacing_told_or_by_the_image():
    only_scale = {"mirror": (), "rotation": 0.0, "gamma": 1.0, "contrast": 1.0, "brightness": 0.0, "noise": 0.0}
    still = make_task(augmentation=Augmentation(scale=1.0, chance=1.0, **only_scale)).batch(0, range(4))
    strong = Augmentation(scale=1.5, chance=1.0, **only_scale)
    by_spacing = make_task(augmentation=strong).batch(0, range(4))
    by_image = make_task(augmentation=strong, scale_by="image").batch(0, range(4))
    untold = make_task(augmentation=strong, tell_spacing=False).batch(0, range(4))
    assert torch.equal(by_spacing.image, still.image)
    factors = by_spacing.spacing / still.spacing
    torch.testing.assert_close(factors, factors[:, :1].expand(4, 3))
    assert len(set(factors[:, 0].tolist())) == 4
    assert torch.equal(by_image.spacing, still.spacing)
    assert not torch.allclose(by_image.image, still.image)
    assert torch.equal(by_image.image, untold.image)
    with pytest.raises(ValueError, match="scale_by='spacing' has no effect"):
        make_task(tell_spacing=False, scale_by="spacing")


def test_padding_teaches_nothing():
    task = make_task(patch=(9, 16, 16), augmentation=None)
    batch = task.batch(0, range(4))
    assert (batch.label == IGNORE).any()
    logits = torch.randn(4, 3, 9, 16, 16)
    outside = (batch.label == IGNORE)[:, None]
    loss = cross_entropy_and_dice(logits, batch.label, background=False)
    torch.testing.assert_close(
        cross_entropy_and_dice(torch.where(outside, 7.0, logits), batch.label, background=False), loss
    )


class Oracle(nn.Module):
    """Finds the classes by their brightness, or nothing."""

    def __init__(self, *, blind=False):
        super().__init__()
        self.blind, self.weight = blind, nn.Parameter(torch.zeros(1))

    def forward(self, x, spacing=None):
        volume = (x[:, 0] - x.min()) / (x.max() - x.min())
        found = (volume > 0.35).long() + (volume > 0.68).long()
        return nn.functional.one_hot(found * (not self.blind), 3).movedim(-1, 1).float()


def test_the_score_is_the_dice_of_the_test_patches():
    task = make_task(patch=(6, 14, 14))
    found = task.evaluate(Oracle())
    assert found["score"] > 0.95
    assert found == task.evaluate(Oracle())
    assert found["score"] == pytest.approx((found["dice_1"] + found["dice_2"]) / 2)
    assert task.evaluate(Oracle(blind=True))["score"] == 0


def test_without_test_cases_training_cases_are_scored():
    volumes = make_volumes()
    options = {"num_classes": 3, "patch": (5, 14, 12), "batch": 2}
    assert VolumeTask(volumes, ["case0"], [], **options).evaluate(Oracle())["score"] > 0.95
    with pytest.raises(ValueError, match="train names no case"):
        VolumeTask(volumes, [], ["case0"], **options)
    with pytest.raises(ValueError, match=r"foreground must be in \[0, 1\], got 2"):
        VolumeTask(volumes, ["case0"], [], foreground=2, **options)


class StopError(Exception):
    pass


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path):
    pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")
    config = TrainingConfig(steps=7, batch=4, log_every=1, checkpoint_every=2, accelerator="cpu")
    options = {"mode_dropout": 0.2}  # draws random numbers at each step, which must go on where they stopped
    whole = make_network(**options)
    curve = fit(whole, make_task(), config, tmp_path / "whole", show=False).losses
    task, real, steps = make_task(), VolumeTask.loss, []

    def loss(model, batch):
        steps.append(len(steps))
        if len(steps) == 6:
            raise StopError
        return real(task, model, batch)

    task.loss = loss
    with pytest.raises(StopError):
        fit(make_network(**options), task, config, tmp_path / "part", show=False)
    torch.rand(5)
    resumed = make_network(**options)
    rest = fit(resumed, make_task(), config, tmp_path / "part", show=False).losses
    assert rest == curve[4:]
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_training_learns_what_is_bright(tmp_path):
    pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")
    config = TrainingConfig(steps=60, batch=4, learning_rate=3e-2, log_every=10, accelerator="cpu")
    model = make_network(depth=1)
    result = fit(model, make_task(), config, tmp_path, show=False)
    assert result.metrics["score"] > 0.6
