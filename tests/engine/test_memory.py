"""Freed memory is used again, not handed back to the system."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from torchsonic.engine import memory
from torchsonic.functional import keep_all_pages

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def fill():
    block = torch.ones(64 << 20, dtype=torch.uint8)  # above every threshold that glibc adapts to
    del block

def counted():
    before = faults()
    for _ in range(4):
        fill()
    return faults() - before

def repeated():
    fill()
    return min(counted() for _ in range(3))  # a small block of the interpreter's may come to lie in the way, once

counts = [repeated()]
assert keep_all_pages()
counts.append(repeated())
assert keep_all_pages()
memory.free_bytes = lambda device: 1 << 20  # the machine is nearly full
assert not keep_all_pages()
counts.append(repeated())
memory.free_bytes = lambda device: 1 << 40
assert not keep_all_pages()  # it would be full again
print(*counts)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_large_blocks_cost_no_new_pages_while_all_are_kept_and_are_given_back_when_memory_is_short():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, kept, after = map(int, done.stdout.split())
    assert before > 100  # even with huge pages of 2 MiB
    assert kept < before / 10
    assert after > before / 2
