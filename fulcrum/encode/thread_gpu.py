"""Threads that compute where their process does: CUDA gives every new thread the first GPU, whichever that is."""

from typing import Any

import torch


def on_this_gpu() -> dict[str, Any]:
    """What a pool of threads is begun with, so that they take the GPU of who begins it; nothing where none is used."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    return {"initializer": torch.cuda.set_device, "initargs": (torch.cuda.current_device(),)}
