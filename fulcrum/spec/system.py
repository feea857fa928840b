"""What should only change speed: device, threads, compilation, processes. Outside the key, recorded in checkpoints."""

import os
from typing import Literal

from fulcrum.spec.record import Count, Record, Threads


def cores() -> int:
    """Cores that this process may use; macOS knows no such bound, only their number."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Device = Literal["cpu", "cuda"]  # never chosen by itself: another device gives other last bits
Products = Literal["auto", "native", "emulated"]  # auto: native where the device has units for bf16


class System(Record):
    device: Device = "cpu"
    processes: Count = 1  # that share the model and every batch
    threads: Threads = 1  # cores that this process uses; one per process when cells run side by side
    compile: bool = False  # compile the denoiser: a shallow stack in one graph, a deep one by blocks
    microbatch: Count | None = None  # rows per backward pass; None = the whole batch
    recompute: bool = False  # activation checkpointing of the blocks
    bf16: Products = "auto"  # products of a run that computes in bf16: the device's own, or rounded numbers in fp32

    def bare(self) -> "System":
        """The same device and nothing else that was asked for: what draws and measures, however the run was trained."""
        return System().model_copy(update={"device": self.device})

    def differences(self, other: "System") -> list[str]:
        """What differs from `other`, in words, for the note that a resume prints."""
        return [
            f"{name}: {getattr(other, name)} -> {getattr(self, name)}"
            for name in type(self).model_fields
            if getattr(self, name) != getattr(other, name)
        ]
