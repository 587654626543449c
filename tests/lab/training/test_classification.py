"""Batches are functions of seed, step and place; a run on pictures is a function of its configuration."""

import json
import os
import pickle
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("PIL", reason="Pillow is not installed")

import torchsonic
from tests import programs
from tests.lab.data.pictures import write_pictures
from tests.lab.training.images_run import run
from torchsonic.lab.data.images.changes import ImageChanges
from torchsonic.lab.data.images.folder import find_images
from torchsonic.lab.data.images.store import ImageStore
from torchsonic.lab.metrics.classification import normalise
from torchsonic.lab.runs.images import ImagesConfig
from torchsonic.lab.runs.images.task import ClassificationTask
from torchsonic.lab.training import TrainingConfig
from torchsonic.lab.training.loggers import read_log
from torchsonic.lab.training.task import epoch_order, make_batches

MIXED = ImageChanges(mixup=0.5, cutmix=1.0)
PROGRAM = Path(__file__).parent / "images_run.py"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


def make_task(root, *, seed=3, **options):
    config = ImagesConfig(image_size=16, training=TrainingConfig(batch=6, seed=seed), **options)
    train, test = find_images(root / "train"), find_images(root / "val")
    return ClassificationTask(ImageStore(limit=0), train, test, config)


@pytest.mark.parametrize("changes", [ImageChanges(), MIXED], ids=["plain", "mixed"])
def test_any_split_of_a_batch_gives_the_same_images(pictures, changes):
    task = make_task(pictures, changes=changes)
    whole = task.batch(5, range(6))
    parts = [make_task(pictures, changes=changes).batch(5, range(a, b)) for a, b in ((0, 1), (1, 3), (3, 6))]
    for place, tensor in enumerate(whole):
        assert torch.equal(torch.cat([part[place] for part in parts]), tensor)
    other = task.batch(6, range(6))
    assert not torch.equal(other.image, whole.image)
    again = make_task(pictures, changes=changes, seed=4).batch(5, range(6))
    assert not torch.equal(again.image, whole.image)


def test_an_epoch_shows_every_image_once(pictures):
    task = make_task(pictures)
    labels = torch.cat([task.batch(step, range(6)).label for step in range(3)])
    assert torch.bincount(labels).tolist() == [6, 6, 6]
    order = epoch_order(range(18), 3, 0, 18).tolist()
    assert labels.tolist() == [task.train.labels[place] for place in order]


def test_pairs_share_what_they_mix(pictures):
    task = make_task(pictures, changes=MIXED)
    plain = make_task(pictures)
    kinds = set()
    for step in range(6):
        mixed, single = task.batch(step, range(6)), plain.batch(step, range(6))
        assert torch.equal(mixed.label, single.label)
        assert torch.equal(mixed.other, single.label[[1, 0, 3, 2, 5, 4]])
        torch.testing.assert_close(mixed.share[0::2], mixed.share[1::2])
        for own, other, found, share in zip(
            single.image, single.image[[1, 0, 3, 2, 5, 4]], mixed.image, mixed.share, strict=True
        ):
            blend = (share * own + (1 - share) * other).round()
            if (found.float() - blend).abs().max() <= 1:
                kinds.add("mixup")
            else:
                taken = (found == other).all(0) & ~(found == own).all(0)
                kinds.add("cutmix")
                assert ((found == own) | (found == other)).all()
                assert taken.float().mean() <= 1 - share + 1e-6
    assert kinds == {"mixup", "cutmix"}


def test_a_share_is_the_area_that_is_left_to_an_image(pictures):
    """On images of one value each, which place belongs to which can be counted."""

    class Flat:
        def first_good(self, files, place):
            return place, np.full((20, 20, 3), 10 + place, np.uint8)

    changes = ImageChanges(cutmix=1.0, brightness=0.0, contrast=0.0, saturation=0.0)
    task = make_task(pictures, changes=changes)
    task.images = Flat()
    shares = []
    for step in range(8):
        batch = task.batch(step, range(6))
        numbers = epoch_order(range(18), 3, step * 6, 6)
        for image, number, share in zip(batch.image, numbers.tolist(), batch.share.tolist(), strict=True):
            assert (image == 10 + number).float().mean().item() == pytest.approx(share, abs=1e-6)
            shares.append(share)
    assert len(set(shares)) > 8


@pytest.mark.filterwarnings("ignore:skipped")  # by a process in which the test cannot expect it
def test_images_that_other_processes_replace_are_known(tmp_path):
    root = write_pictures(tmp_path)
    task = make_task(root)
    task.train.files[4].write_bytes(b"broken")
    config = TrainingConfig(steps=3, batch=6, workers=1)
    labels = torch.cat([batch.label for batch in make_batches(task, config, start=0, rank=0, world=1)])
    assert len(labels) == 18
    assert task.replaced.nonzero().flatten().tolist() == [4]
    sent = pickle.loads(pickle.dumps(task))  # to processes that are not forked
    assert torch.equal(torch.cat([sent.batch(step, range(6)).label for step in range(3)]), labels)


class Answer(torch.nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, x):
        return self.logits[: x.shape[0]] + 0.0 * x.mean()


def test_the_loss_is_cross_entropy_with_soft_targets(pictures):
    task = make_task(pictures, changes=MIXED, label_smoothing=0.1)
    batch = task.batch(0, range(6))
    logits = torch.randn(6, 3, dtype=torch.float64).float()
    one, two = F.one_hot(batch.label, 3).float(), F.one_hot(batch.other, 3).float()
    target = 0.9 * (batch.share[:, None] * one + (1 - batch.share[:, None]) * two) + 0.1 / 3
    expected = -(target * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(task.loss(Answer(logits), batch), expected)


def test_accuracy_is_counted_over_all_test_images(pictures):
    task = make_task(pictures)
    logits = torch.tensor([[2.0, 1.0, 0.0]]).repeat(9, 1)
    assert task.evaluate(Answer(logits)) == {"score": pytest.approx(1 / 3), "top1": pytest.approx(1 / 3), "top5": 1.0}


def test_bytes_are_normalised_like_everyones():
    image = torch.tensor([0.485, 0.456, 0.406]).mul(255).round().to(torch.uint8).view(1, 3, 1, 1)
    assert normalise(image).abs().max() < 0.01
    white = torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)
    torch.testing.assert_close(normalise(white)[0, :, 0, 0], torch.tensor([2.2489, 2.4286, 2.6400]), atol=1e-3, rtol=0)


def losses(folder):
    return [entry["loss"] for entry in read_log(folder / "log.jsonl") if "loss" in entry]


def words(folder, data, **options):
    return [PROGRAM, folder, data, json.dumps(options)]


@pytest.fixture(scope="module")
def whole(pictures, tmp_path_factory):
    pytest.importorskip("lightning_fabric", reason="lightning-fabric is not installed")
    folder = tmp_path_factory.mktemp("whole")
    run(folder, pictures)
    return folder


def test_a_killed_run_resumes_bit_identical_with_other_workers(whole, pictures, tmp_path):
    process = programs.start(words(tmp_path, pictures))
    log, deadline = tmp_path / "log.jsonl", time.monotonic() + 200
    while process.exitcode is None and time.monotonic() < deadline:
        if log.exists() and len(losses(tmp_path)) >= 4:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.005)
    process.join(100)
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "done").exists()
    assert programs.run(words(tmp_path, pictures, workers=1)) == 0
    expected, state = (torchsonic.from_pretrained(folder / "model").state_dict() for folder in (whole, tmp_path))
    assert all(torch.equal(state[key], expected[key]) for key in expected)
    assert losses(tmp_path) == losses(whole)
    assert all("waiting" in entry for entry in read_log(log) if "loss" in entry)


def test_two_processes_give_the_loss_curve_of_one_with_batch_norm(whole, pictures, tmp_path):
    programs.run_ranks(words(tmp_path, pictures))
    torch.testing.assert_close(torch.tensor(losses(tmp_path)), torch.tensor(losses(whole)), rtol=1e-4, atol=1e-4)
    expected, state = (torchsonic.from_pretrained(folder / "model").state_dict() for folder in (whole, tmp_path))
    torch.testing.assert_close(state["bn1.running_mean"], expected["bn1.running_mean"], rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(state["bn1.running_var"], expected["bn1.running_var"], rtol=1e-2, atol=1e-3)
