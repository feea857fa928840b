"""Memory that this process may still take: of a device, of the machine, of its limit, or of its control group."""

import contextlib
import resource
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
NO_LIMIT = 1 << 60  # what version 1 of control groups writes where there is none


def free_memory(root: Path = GROUPS) -> float:
    """Bytes of the host's: what the machine has available, or what is left of the control group if that is less."""
    free = [float("inf"), _left_of_the_limit()]
    with contextlib.suppress(OSError, ValueError, StopIteration):
        line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
        free.append(float(line.split()[1]) * 1024)
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
            most = float((root / limit).read_text())
            if most < NO_LIMIT:
                free.append(max(most - float((root / used).read_text()) + _cached((root / limit).parent), 0.0))
    return min(free)


def _left_of_the_limit() -> float:
    """What `ulimit -v` leaves of the address space."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return float("inf")
    with contextlib.suppress(OSError, ValueError):
        return max(float(most - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()), 0.0)
    return float("inf")


def free_on(device: str) -> float:
    """Bytes of the device that a run computes on."""
    if device != "cuda":
        return free_memory()
    import torch

    return float(torch.cuda.mem_get_info()[0])


def _cached(group: Path) -> float:
    """Of what a group has in use, pages of files that are given up when others want the memory."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (group / "memory.stat").read_text().splitlines()
        return float(next(line for line in lines if line.startswith(("inactive_file ", "total_inactive_file "))).split()[1])
    return 0.0
