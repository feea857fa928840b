"""The machine that a run was trained on: processor, versions, threads. Unlike machines give other last bits."""

import contextlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fulcrum.spec.run import System

MACHINE = "machine"  # where the facts stand in a cell's files


def machine_facts(system: System) -> dict[str, Any]:
    """What numbers may depend on beside the description of a run, and the version that wrote them."""
    return {
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name() if system.device == "cuda" else "cpu",
        "threads": system.threads,
        "processes": system.processes,
        "torch": torch.__version__,
        "fulcrum": fulcrum_version(),
    }


def machine_words(cell: Mapping[str, Any]) -> str:
    """The machine of a cell that is finished or has failed, in one line; empty where its files do not say."""
    facts = cell.get(MACHINE)
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
    """What of two machines differs, each in words; facts that one of them does not tell are left out."""
    return [f"{name}: {before[name]} -> {now[name]}" for name in now if name in before and before[name] != now[name]]


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Did two cells run on unlike machines? A cell that does not say where it ran is not held against another.

    Fulcrum's own version does not count: what changes numbers there changes a cell's key or the name of its files.
    """
    sides = [{name: fact for name, fact in cell.get(MACHINE, {}).items() if name != "fulcrum"} for cell in (one, other)]
    return all(sides) and sides[0] != sides[1]


@cache
def fulcrum_version() -> str:
    return version("fulcrum-lab")


@cache
def _processor() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()
