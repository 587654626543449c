import pytest
import torch
import torch.nn.functional as F

from torchsonic.lab.training.segmentation import (
    IGNORE,
    cross_entropy_and_dice,
    inverse_frequency_weights,
    soft_dice_loss,
    weighted_cross_entropy,
)


@pytest.fixture
def batch():
    torch.manual_seed(0)
    logits = torch.randn(4, 3, 5, 6, dtype=torch.float64)
    labels = torch.randint(0, 3, (4, 5, 6))
    labels[0, 0] = IGNORE
    return logits, labels


def test_cross_entropy_is_its_formula(batch):
    logits, labels = batch
    weights = torch.tensor([0.5, 1.0, 3.0])
    expected = []
    for one, truth in zip(logits.log_softmax(1), labels, strict=True):
        heard = truth != IGNORE
        picked = one[:, heard].gather(0, truth[heard][None])[0]
        expected.append((-picked * weights[truth[heard]]).mean())
    torch.testing.assert_close(
        weighted_cross_entropy(logits, labels, weights).double(), torch.stack(expected).mean(), rtol=1e-5, atol=1e-6
    )


def test_dice_is_its_formula(batch):
    logits, labels = batch
    scores = []
    for one, truth in zip(logits.softmax(1), labels, strict=True):
        heard = truth != IGNORE
        for k in range(3):
            p, t = one[k][heard], (truth[heard] == k).double()
            scores.append((2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1))
    expected = 1 - torch.stack(scores).mean()
    torch.testing.assert_close(soft_dice_loss(logits, labels).double(), expected, rtol=1e-5, atol=1e-6)


def test_the_loss_of_a_batch_is_the_mean_of_its_parts(batch):
    logits, labels = batch
    weights = torch.tensor([0.5, 1.0, 3.0])
    whole = cross_entropy_and_dice(logits, labels, weights)
    parts = [cross_entropy_and_dice(logits[i : i + 2], labels[i : i + 2], weights) for i in (0, 2)]
    torch.testing.assert_close(whole, torch.stack(parts).mean())


def test_a_perfect_answer_costs_nothing_and_ignored_pixels_do_not_matter(batch):
    logits, labels = batch
    perfect = 50.0 * F.one_hot(labels.clamp_min(0), 3).movedim(-1, 1).double()
    assert cross_entropy_and_dice(perfect, labels) < 1e-6
    changed = logits.clone()
    changed[0, :, 0] += 10 * torch.randn(3, 6)
    torch.testing.assert_close(cross_entropy_and_dice(changed, labels), cross_entropy_and_dice(logits, labels))


def test_class_weights_are_inverse_to_frequency_with_mean_one():
    weights = inverse_frequency_weights(torch.tensor([900, 90, 10]))
    torch.testing.assert_close(weights[1] / weights[0], torch.tensor(10.0))
    assert (weights * torch.tensor([0.9, 0.09, 0.01])).sum().item() == pytest.approx(1)
