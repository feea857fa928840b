"""The machine that a process runs on: device, free memory, heap, and the facts that are
recorded."""

import contextlib
import ctypes
import platform
import resource
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import Device, System

# --------------------------------------------------------------------------------------------------
# The device that a run computes on: asked for before anything is spent, and the one way that
# tensors get there.
#
# Everything random is keyed and travels with its batch: the same bits on every device, on whichever
# of them it was made.


def require_device(device: str, processes: int = 1) -> None:
    """Refuse a device that this machine does not have, or has fewer of than processes, before
    anything is spent."""
    if device == "cuda" and not torch.cuda.is_available():
        build = (
            "was built without CUDA"
            if torch.version.cuda is None
            else f"was built for CUDA {torch.version.cuda}"
        )
        raise BadInput(
            "the device is 'cuda', but torch finds no GPU",
            'set --device cpu (in a plan: device = "cpu"), or install a CUDA build of torch:'
            f" {torch.__version__} {build}",
        )
    if device == "cuda" and torch.cuda.device_count() < processes:
        raise BadInput(
            f"{processes} processes need a GPU each, and torch finds {torch.cuda.device_count()}",
            "start at most that many: torchrun --nproc-per-node, or `processes` in a plan",
        )


def moved(value: Any, device: str | torch.device) -> Any:
    """Tensors, and the tuples, records and dicts that hold them, on the device; whatever is there
    already is not copied."""
    if isinstance(value, Tensor):
        # pinned, so that the host need not wait for the copy
        if value.is_cpu and torch.device(device).type == "cuda":
            return value.pin_memory().to(device, non_blocking=True)
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(one, device) for name, one in value.items()}
    if isinstance(value, tuple):
        parts = [moved(one, device) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def settled(network: Any, device: str | torch.device) -> Any:
    """A network, moved in place; what is no module computes wherever its own code says."""
    if isinstance(network, nn.Module) and torch.device(device).type != "cpu":
        network.to(device)
    return network


def at_hand(device: Device) -> Device:
    """The device, or the CPU where this machine has none: for what is done beside the cells of
    another machine."""
    return device if device != "cuda" or torch.cuda.is_available() else "cpu"


def wait_for(device: str) -> None:
    """Until the device has done what it was asked: a clock that is read before tells how long the
    asking took."""
    if device == "cuda":
        torch.cuda.synchronize()


# --------------------------------------------------------------------------------------------------
# Memory that this process may still take: of a device, of the machine, of its limit, or of its
# control group.


GROUPS = Path("/sys/fs/cgroup")
NO_LIMIT = 1 << 60  # what version 1 of control groups writes where there is none


def free_memory(root: Path = GROUPS) -> float:
    """Bytes of the host's: what the machine has available, or what is left of the control group if
    that is less."""
    free = [float("inf"), _left_of_the_limit()]
    with contextlib.suppress(OSError, ValueError, StopIteration):
        line = next(
            line
            for line in Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("MemAvailable")
        )
        free.append(float(line.split()[1]) * 1024)
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
            most = float((root / limit).read_text())
            if most < NO_LIMIT:
                free.append(
                    max(
                        most - float((root / used).read_text()) + _cached((root / limit).parent),
                        0.0,
                    )
                )
    return min(free)


def _left_of_the_limit() -> float:
    """What `ulimit -v` leaves of the address space."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return float("inf")
    with contextlib.suppress(OSError, ValueError):
        return max(
            float(
                most - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            ),
            0.0,
        )
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
        return float(
            next(
                line
                for line in lines
                if line.startswith(("inactive_file ", "total_inactive_file "))
            ).split()[1]
        )
    return 0.0


# --------------------------------------------------------------------------------------------------
# Memory that was freed stays with the process, so that every step finds its buffers where the last
# one left them.


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
# bytes of one block: glibc's own upper bound; kept larger ones made the heap grow without end
LARGEST_KEPT = 2**25
MOST_KEPT = 2**30  # free bytes at the end of the heap
LARGEST_BESIDE_OTHERS = 2**23  # bytes of one block, where a large model is shared among processes
LARGE = 100_000_000  # parameters of a model whose gathered matrices are larger than that


@cache
def keep_freed_memory() -> bool:
    """Ask glibc to keep freed blocks; false where there is another allocator.

    Left alone, it gives the end of its heap back to the kernel and gets it again, page by page, at
    the next step. How much depends on the first allocations: of equal processes some took no page
    fault a step, some 5,000 (11 of 75 ms).
    """
    return _set(M_MMAP_THRESHOLD, LARGEST_KEPT) and _set(M_TRIM_THRESHOLD, MOST_KEPT)


def give_back_gathered(parameters: int, processes: int) -> bool:
    """Let the kernel have large blocks back as soon as they are free, where processes share a model
    of many parameters.

    Each gathers a block's matrices and frees them, over and over, and glibc finds no second use for
    most of the holes: with 192 M parameters a process held 2.64 GB, of which 1.8 were in use, and
    so holds 2.17. Page faults cost some 5 % there.
    """
    return processes > 1 and parameters >= LARGE and _set(M_MMAP_THRESHOLD, LARGEST_BESIDE_OTHERS)


def _set(name: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl
        return False
    return bool(mallopt(name, value))


# --------------------------------------------------------------------------------------------------
# The machine that a run was trained on: processor, versions, threads. Unlike machines give other
# last bits.


MACHINE = "machine"  # where the facts stand in a cell's files


def machine_facts(system: System) -> dict[str, Any]:
    """What numbers may depend on beside the description of a run, and the version that wrote
    them."""
    return {
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name() if system.device == "cuda" else "cpu",
        "threads": system.threads,
        "processes": system.processes,
        "torch": torch.__version__,
        "fulcrum": fulcrum_version(),
    }


def machine_words(facts: Mapping[str, Any]) -> str:
    """The machine of a cell in one line, from its facts; empty where there are none."""
    if not facts:
        return ""
    threads, processes = facts["threads"], facts["processes"]
    return ", ".join(
        [
            f"{facts['processor']} ({facts['instructions']})",
            *([facts["device"]] if facts["device"] != "cpu" else []),
            f"{threads} thread{'s' * (threads > 1)}",
            *([f"{processes} processes"] if processes > 1 else []),
            f"torch {facts['torch']}",
            f"fulcrum {facts['fulcrum']}",
        ]
    )


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What of two machines differs, each in words; facts that one of them does not tell are left
    out."""
    return [
        f"{name}: {before[name]} -> {now[name]}"
        for name in now
        if name in before and before[name] != now[name]
    ]


@cache
def fulcrum_version() -> str:
    return version("fulcrum-lab")


@cache
def _processor() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return (
            next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
        )
    return platform.processor() or platform.machine()
