"""What should only change speed: device, threads, compilation, processes. Outside the key, recorded in checkpoints.

So is what is done when a run goes wrong: it changes no run that goes well.
"""

import os
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from fulcrum.spec.record import Count, Record, Threads


def cores() -> int:
    """Cores that this process may use; macOS knows no such bound, only their number."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Device = Literal["cpu", "cuda"]  # never chosen by itself: another device gives other last bits
Products = Literal["auto", "native", "emulated"]  # auto: native where the device has units for bf16


def _mesh(text: str) -> str:
    if text not in ("ddp", "fsdp") and not re.fullmatch(r"[1-9]\d{0,5}x[1-9]\d{0,5}", text):
        raise ValueError(f"must be ddp, fsdp, or replicas x shards such as 2x4, found '{text}'")
    return text


def _recompute(said: Any) -> Any:
    return {False: "none", True: "full"}[said] if isinstance(said, bool) else said  # as checkpoints of before have it


MeshName = Annotated[str, AfterValidator(_mesh)]  # how processes share the weights: fulcrum/dist/mesh.py
Recompute = Annotated[Literal["none", "selective", "full"], BeforeValidator(_recompute)]  # of no block, every other, all


OnAlarm = Literal["tell", "stop", "skip", "roll_back"]


class System(Record):
    device: Device = "cpu"
    processes: Count = 1  # that share the model and every batch
    threads: Threads = 1  # cores that this process uses; one per process when cells run side by side
    compile: bool = False  # compile the denoiser: a shallow stack in one graph, a deep one by blocks
    mesh: MeshName = "fsdp"  # of many processes: who holds which weights
    microbatch: Count | None = None  # rows of a process per backward pass; None = all it has
    recompute: Recompute = "none"  # blocks whose activations are computed again in the backward instead of kept
    save_every: Count | None = None  # images between two checkpoints; None = as often as costs little
    on_alarm: OnAlarm = "tell"  # what is done when a sentinel sees something wrong: docs/when-a-run-goes-wrong.md
    bf16: Products = "auto"  # products of a run that computes in bf16: the device's own, or rounded numbers in fp32

    def bare(self) -> "System":
        """The same device and nothing else that was asked for: what draws and measures, however the run was trained."""
        return System().model_copy(update={"device": self.device})

    def differences(self, other: "System") -> list[str]:
        """What differs from `other`, in words, for the note that a resume prints."""
        return [
            f"{name}: {getattr(other, name)} -> {getattr(self, name)}"
            for name in type(self).model_fields
            if name not in ("save_every", "on_alarm")  # change no number of a run that goes well
            and getattr(self, name) != getattr(other, name)
        ]
