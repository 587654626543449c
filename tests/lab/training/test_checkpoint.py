import hashlib
import os
import random

import numpy as np
import pytest
import torch

from torchsonic.lab.training.checkpoint import (
    CheckpointError,
    Checkpoints,
    random_state,
    read_checkpoint,
    restore_random_state,
    write_checkpoint,
)


def state(step: int) -> dict:
    return {"step": step, "weights": torch.full((3,), float(step))}


@pytest.fixture
def checkpoints(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        checkpoints.save(state(step), best=step == 2)
    return checkpoints


def test_the_two_newest_and_the_best_are_kept(checkpoints):
    steps = {path.stem: read_checkpoint(path)["step"] for path in checkpoints.folder.iterdir()}
    assert steps == {"last": 3, "previous": 2, "best": 2}
    assert checkpoints.load()["weights"].tolist() == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("damage", ["cut", "empty", "bit", "foreign"])
def test_a_damaged_checkpoint_falls_back_to_the_previous_one(checkpoints, damage):
    content = bytearray(checkpoints.last.read_bytes())
    content[len(content) // 2] ^= 1
    changed = {"cut": content[:-7], "empty": b"", "bit": content, "foreign": b"PK\x03\x04 something else"}[damage]
    checkpoints.last.write_bytes(changed)
    with pytest.warns(UserWarning, match=r"last\.ckpt is .*; resuming from previous\.ckpt"):
        assert checkpoints.load()["step"] == 2
    checkpoints.previous.write_bytes(b"")
    with pytest.raises(CheckpointError, match="delete them to start over"):
        checkpoints.load()


def test_a_kill_between_the_renames_loses_nothing(checkpoints):
    write_checkpoint(checkpoints.folder / "next.ckpt", state(4))
    os.replace(checkpoints.last, checkpoints.previous)
    assert checkpoints.load()["step"] == 4
    checkpoints.save(state(5))
    assert checkpoints.load()["step"] == 5


def test_a_kill_before_the_rename_leaves_the_old_one(checkpoints):
    write_checkpoint(checkpoints.folder / "next.ckpt", state(4))
    assert checkpoints.load()["step"] == 3


def test_no_run_is_no_error(tmp_path):
    assert Checkpoints(tmp_path / "new").load() is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot write .*another folder"):
        write_checkpoint(tmp_path / "file" / "last.ckpt", state(1))


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Harm:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "harm"),))

    write_checkpoint(tmp_path / "last.ckpt", {"harm": Harm()})
    words = r"contains more than numbers.* not loaded: it asks for (posix|nt)\.mkdir$"
    with pytest.raises(CheckpointError, match=words):
        read_checkpoint(tmp_path / "last.ckpt")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("payload", [b"", b"no weights at all", b"PK\x03\x04 cut short"])
def test_a_checksum_that_fits_does_not_make_a_checkpoint(checkpoints, payload):
    digest = hashlib.sha256(payload).hexdigest().encode()
    checkpoints.last.write_bytes(b"torchsonic checkpoint 1 " + digest + b"\n" + payload)
    with pytest.warns(UserWarning, match=r"last\.ckpt is .*; resuming from previous\.ckpt"):
        assert checkpoints.load()["step"] == 2


def test_random_numbers_go_on_where_they_stopped(tmp_path):
    torch.manual_seed(1), np.random.seed(2), random.seed(3)
    write_checkpoint(tmp_path / "last.ckpt", {"random": random_state()})
    expected = torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()
    restore_random_state(read_checkpoint(tmp_path / "last.ckpt")["random"])
    assert (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()) == expected
