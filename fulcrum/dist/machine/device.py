"""The device that a run computes on: asked for before anything is spent, and the one way that tensors get there.

Everything random is keyed and travels with its batch: the same bits on every device, on whichever of them it was made.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import Device


def require_device(device: str, processes: int = 1) -> None:
    """Refuse a device that this machine does not have, or has fewer of than processes, before anything is spent."""
    if device == "cuda" and not torch.cuda.is_available():
        build = "was built without CUDA" if torch.version.cuda is None else f"was built for CUDA {torch.version.cuda}"
        raise BadInput(
            "the device is 'cuda', but torch finds no GPU",
            f'set --device cpu (in a plan: device = "cpu"), or install a CUDA build of torch: {torch.__version__} {build}',
        )
    if device == "cuda" and torch.cuda.device_count() < processes:
        raise BadInput(
            f"{processes} processes need a GPU each, and torch finds {torch.cuda.device_count()}",
            "start at most that many: torchrun --nproc-per-node, or `processes` in a plan",
        )


def moved(value: Any, device: str | torch.device) -> Any:
    """Tensors, and the tuples, records and dicts that hold them, on the device; whatever is there already is not copied."""
    if isinstance(value, Tensor):
        if value.is_cpu and torch.device(device).type == "cuda":  # pinned, so that the host need not wait for the copy
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
    """The device, or the CPU where this machine has none: for what is done beside the cells of another machine."""
    return device if device != "cuda" or torch.cuda.is_available() else "cpu"


class ReadLater:
    """Numbers of a device, sent to the host at once and read when they have come: nobody waits for what was asked of the
    device after them."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers, self.sent = numbers, None
        if numbers.is_cuda:
            self.numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self.numbers.copy_(numbers, non_blocking=True)
            self.sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.sent.record()

    def read(self) -> list[float]:
        if self.sent is not None:
            self.sent.synchronize()
        read: list[float] = self.numbers.cpu().tolist()
        return read


def wait_for(device: str) -> None:
    """Until the device has done what it was asked: a clock that is read before tells how long the asking took."""
    if device == "cuda":
        torch.cuda.synchronize()
