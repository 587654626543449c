"""Files appear whole, with the permissions the umask asks for, and are read without being executed."""

import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from torchsonic.io import RefusedFileError, read_json, replacing, write_json, write_whole


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o002])
def test_permissions_follow_the_umask_whoever_writes(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_json(tmp_path / "a.json", {})
        with replacing(tmp_path / "w.safetensors", durable=True) as scratch:
            save_file({"x": torch.zeros(2)}, scratch)  # by itself it makes files for their owner alone
    finally:
        os.umask(before)
    assert mode(tmp_path / "a.json") == mode(tmp_path / "w.safetensors") == 0o666 & ~mask


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"old": True})
    with pytest.raises(ZeroDivisionError), replacing(path) as scratch:
        1 / scratch.write_text("")
    assert read_json(path) == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_an_error_of_the_disk_names_the_file(tmp_path):
    with pytest.raises(OSError, match=r"absent/a\.json"):
        write_whole(tmp_path / "absent" / "a.json", "text")


def test_pipes_and_devices_are_written_to_and_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_json(pipe, {"a": 1})
    assert b'"a": 1' in os.read(reader, 100)
    os.close(reader)
    with pytest.raises(OSError, match="it is a device or a pipe; name a file"), replacing(pipe):
        pass
    assert pipe.is_fifo()


def test_a_device_that_leads_to_a_file_is_not_replaced():
    device = Path("/dev/stdout")  # a file while pytest catches what tests print
    if not device.is_file():
        pytest.skip("there is no /dev/stdout, or it leads to no file")
    with pytest.raises(OSError, match="it is a device or a pipe; name a file"), replacing(device):
        raise AssertionError("and the device would be gone")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1', "not valid JSON, perhaps cut short"),
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[1, 2]", "contains a list where an object"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_damaged_json_is_refused_by_name(tmp_path, content, reason):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(RefusedFileError, match=rf"config\.json .*{reason}"):
        read_json(path)


def test_a_folder_in_place_of_a_file_is_refused_by_name(tmp_path):
    with pytest.raises(RefusedFileError, match="cannot be read"):
        read_json(tmp_path)
