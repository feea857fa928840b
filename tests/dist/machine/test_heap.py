"""Freed memory is found again without asking the kernel, and the heap does not grow for it."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

# glibc's thresholds as they are at first: it moves them by what it has seen freed, and may then
# keep memory by itself.
FIXED = os.environ | {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}

STEPS = """
import json, resource, sys
import torch
from fulcrum.training.dist.machine import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024

kept = keep_freed_memory() if sys.argv[1] == "kept" else False
counts, sizes = [], []
for _ in range(12):
    before = faults()
    held = [torch.full((2**20,), 1.0) for _ in range(40)]  # 160 MiB in blocks of 4
    held.clear()
    counts.append(faults() - before)
    sizes.append(resident())
print(json.dumps([kept, counts, sizes]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_later_steps_find_the_pages_of_the_first() -> None:
    def measured(how: str) -> Any:
        command = [sys.executable, "-c", STEPS, how]
        return json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True, env=FIXED).stdout
        )

    (kept, counts, sizes), (_, plain, _) = measured("kept"), measured("plain")
    assert kept and max(counts[-4:]) < 1000, counts
    assert sizes[-1] <= sizes[3] + 16, sizes
    assert min(plain[-4:]) > 10_000, "the kernel took nothing back: this test proves nothing here"


HOLES = """
import json, sys
import torch
from fulcrum.training.dist.machine import LARGE, give_back_gathered, keep_freed_memory

def resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024

keep_freed_memory()
given = give_back_gathered(LARGE, int(sys.argv[1]))
before = resident()
matrices, held = [], []
for _ in range(20):  # a matrix of 16 MiB, and behind it a little that stays
    matrices.append(torch.full((2**22,), 1.0))
    held.append(torch.full((2**18,), 1.0))
matrices.clear()
print(json.dumps([given, resident() - before]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_matrices_that_processes_gather_leave_no_holes() -> None:
    def measured(processes: int) -> Any:
        command = [sys.executable, "-c", HOLES, str(processes)]
        return json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True, env=FIXED).stdout
        )

    (alone, kept), (shared, left) = measured(1), measured(2)
    assert (alone, shared) == (False, True)
    assert left < 40 < 300 < kept, "MiB: 20 stay, 320 were freed"
