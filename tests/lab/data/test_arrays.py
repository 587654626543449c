"""Arrays: what is written is read, what is damaged is refused, and images turn as one sees them."""

import gzip

import numpy as np
import pytest
import torch

from torchsonic.lab.data.arrays import Arrays, move_images, read_arrays, write_arrays
from torchsonic.lab.data.mnist import make_sets, read_digits


def test_what_is_written_is_read(tmp_path):
    written = Arrays(torch.arange(24, dtype=torch.uint8).view(4, 1, 6), torch.tensor([0, 2, 1, 0]))
    write_arrays(tmp_path / "a.npz", written)
    read = read_arrays(tmp_path / "a.npz")
    assert torch.equal(read.x, written.x)
    assert torch.equal(read.y, written.y)
    assert torch.equal(read.values(slice(1)), written.x[:1].float() / 255)


@pytest.mark.parametrize(
    ("x", "y", "problem"),
    [
        (np.zeros((2, 5)), np.zeros(2, int), r"\(N, C, \*size\)"),
        (np.zeros((2, 1, 5)), np.zeros(3, int), r"\(N, C, \*size\)"),
        (np.zeros((2, 1, 5)), np.zeros(2), "class numbers"),
        (np.zeros((2, 1, 5)), np.array([0, -1]), "class numbers"),
        (np.full((2, 1, 5), np.nan), np.zeros(2, int), "finite floats"),
        (np.zeros((2, 1, 5), np.int32), np.zeros(2, int), "bytes or finite floats"),
    ],
)
def test_arrays_that_make_no_sense_are_refused_by_their_file(tmp_path, x, y, problem):
    np.savez(tmp_path / "bad.npz", x=x, y=y)
    with pytest.raises(ValueError, match=rf"bad\.npz.*{problem}"):
        read_arrays(tmp_path / "bad.npz")


def test_missing_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no"):
        read_arrays(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match="not an NPZ file"):
        read_arrays(tmp_path / "text.npz")


def test_a_quarter_turn_is_that_of_the_array_and_goes_against_the_clock():
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    turned = move_images(x, torch.tensor([90.0, -90.0]))
    assert torch.allclose(turned[0], x[0].rot90(1, (1, 2)), atol=1e-12)
    assert torch.allclose(turned[1], x[1].rot90(-1, (1, 2)), atol=1e-12)


def test_a_shift_goes_right_and_down_whatever_the_turn():
    x = torch.zeros(2, 1, 8, 8, dtype=torch.float64)
    x[:, :, 3:5, 3:5] = 1.0
    shift = torch.tensor([[0.25, 0.125]], dtype=torch.float64).expand(2, 2)
    moved = move_images(x, torch.tensor([0.0, 90.0]), shift=shift)
    assert torch.allclose(moved, x.roll((1, 2), (2, 3)), atol=1e-12)


def test_enlarging_doubles_what_lies_in_the_middle():
    x = torch.zeros(1, 1, 16, 16)
    x[:, :, 6:10, 6:10] = 1.0
    assert float(move_images(x, torch.zeros(1), torch.tensor([2.0])).sum()) == pytest.approx(64, rel=0.1)


def test_a_constant_bend_is_a_shift_and_a_point_moves_what_is_near_it():
    x = torch.zeros(1, 1, 16, 16, dtype=torch.float64)
    x[:, :, 6:10, 6:10] = 1.0
    bend = torch.zeros(1, 2, 4, 4, dtype=torch.float64)
    bend[:, 0] = -0.125  # the places that are read lie to the left, so the image moves to the right
    still = torch.zeros(1, dtype=torch.float64)
    assert torch.allclose(move_images(x, still, bend=bend), x.roll(2, 3), atol=1e-12)
    stripes = torch.arange(16, dtype=torch.float64).expand(1, 1, 16, 16)
    bend[:], bend[0, 0, 0, 0] = 0.0, 0.125
    change = (move_images(stripes, still, bend=bend) - stripes)[0, 0, 1:-1, 1:-1].abs()
    assert change[0, 0] > 0.5
    assert change[-3:, -3:].max() < 0.05


def write_digits(folder, part, count, seed):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = generator.integers(0, 10, count, dtype=np.uint8)
    for name, values in ((f"{part}-images-idx3", images), (f"{part}-labels-idx1", labels)):
        head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">i4").tobytes()
        (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))
    return images, labels


def test_digits_are_read_as_published_and_their_sets_share_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("torchsonic.lab.data.mnist.TRAIN", 6)
    monkeypatch.setattr("torchsonic.lab.data.mnist.TEST", 9)
    images, labels = write_digits(tmp_path, "train", 12, 0)
    write_digits(tmp_path, "t10k", 4, 1)
    read = read_digits(tmp_path, "train")
    assert np.array_equal(read.x[:, 0].numpy(), images)
    assert np.array_equal(read.y.numpy(), labels)
    sets, again = make_sets(tmp_path, seed=3), make_sets(tmp_path, seed=3)
    assert {name: [len(parts["train"]), len(parts["test"])] for name, parts in sets.items()} == {
        "rotated": [6, 9],
        "upright": [6, 9],
        "sequence": [12, 4],
    }
    assert torch.equal(sets["rotated"]["train"].x, again["rotated"]["train"].x)
    assert torch.equal(sets["rotated"]["train"].y, sets["upright"]["train"].y)
    assert sets["sequence"]["train"].x.shape == (12, 1, 784)
    upright = {digit.numpy().tobytes() for digit in sets["upright"]["train"].x}
    known = {digit.tobytes() for digit in images} | {d.numpy().tobytes() for d in read_digits(tmp_path, "test").x}
    assert len(upright) == 6
    assert upright <= known


def test_files_that_are_no_digits_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"four \.gz files"):
        read_digits(tmp_path, "train")
    write_digits(tmp_path, "train", 3, 0)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x0d\x03more"))
    with pytest.raises(ValueError, match="no IDX file"):
        read_digits(tmp_path, "train")
