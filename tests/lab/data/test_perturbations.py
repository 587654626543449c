import pytest
import torch

from torchsonic.lab.data import PERTURBATIONS, SynthShape, perturb


@pytest.fixture
def batch():
    return SynthShape().samples(range(6))


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_seeds_decide_and_levels_grow(batch, kind):
    image, label = batch
    low, high = PERTURBATIONS[kind].levels[0], PERTURBATIONS[kind].levels[-1]
    once, twice = perturb(image, label, kind, high, seed=1), perturb(image, label, kind, high, seed=1)
    assert torch.equal(once[0], twice[0])
    assert torch.equal(once[1], twice[1])
    assert once[0].shape == image.shape
    assert once[1].dtype == torch.int64
    assert set(once[1].unique().tolist()) <= set(range(6))
    if kind != "rescaling":
        assert not torch.equal(perturb(image, label, kind, high, seed=2)[0], once[0])
    if kind not in ("rescaling", "translation"):  # which also move shapes out of the frame
        assert (perturb(image, label, kind, low, seed=1)[0] - image).abs().mean() < (once[0] - image).abs().mean()


def test_nothing_is_done_at_no_strength(batch):
    image, label = batch
    for kind, level in {"distortion": 0, "noise": 0, "rescaling": 1.0, "rotation": 0, "translation": 0}.items():
        moved, moved_label = perturb(image, label, kind, level)
        torch.testing.assert_close(moved, image, atol=1e-5, rtol=0)
        assert torch.equal(moved_label, label)


def test_a_translation_is_a_shift(batch):
    image, label = batch
    moved, moved_label = perturb(image, label, "translation", 25.0)
    for one, truth, source, source_label in zip(moved, moved_label, image, label, strict=True):
        matches = []
        for down in (-16, 16):
            for right in (-16, 16):
                shifted = torch.zeros_like(source_label)
                rows, columns = slice(max(0, down), 64 + min(0, down)), slice(max(0, right), 64 + min(0, right))
                back = slice(max(0, -down), 64 + min(0, -down)), slice(max(0, -right), 64 + min(0, -right))
                shifted[rows, columns] = source_label[back]
                same = torch.allclose(one[:, rows, columns], source[(slice(None), *back)], atol=1e-4)
                matches.append(torch.equal(shifted, truth) and same)
        assert sum(matches) == 1


def test_a_quarter_turn_is_a_quarter_turn(batch):
    image, label = batch
    moved, moved_label = perturb(image, label, "rotation", 90)
    for one, truth, source, source_label in zip(moved, moved_label, image, label, strict=True):
        turns = [k for k in (1, 3) if torch.allclose(one, source.rot90(k, (1, 2)), atol=1e-4)]
        assert len(turns) == 1
        assert torch.equal(truth, source_label.rot90(turns[0], (0, 1)))


def test_rescaling_changes_areas_by_the_square(batch):
    image, label = batch
    small = perturb(image, label, "rescaling", 0.5)[1]
    assert (small > 0).sum() / (label > 0).sum() == pytest.approx(0.25, rel=0.1)


def test_noise_has_its_level_and_leaves_labels(batch):
    image, label = batch
    moved, moved_label = perturb(image, label, "noise", 0.2)
    assert (moved - image).std() == pytest.approx(0.2, rel=0.02)
    assert torch.equal(moved_label, label)


def test_what_comes_from_outside_is_background_or_ignored(batch):
    image, _ = batch
    label = torch.ones(6, 64, 64, dtype=torch.long)
    for outside in (0, -100):
        moved = perturb(image, label, "translation", 50.0, outside=outside)[1]
        assert set(moved.unique().tolist()) == {outside, 1}
        assert (moved == 1).double().mean() == pytest.approx(0.25)


def test_unknown_kinds_are_refused(batch):
    with pytest.raises(ValueError, match=r"kind must be one of distortion, .* got 'blur'"):
        perturb(*batch, "blur", 1)
