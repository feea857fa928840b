"""Dtypes of a run: from the spec's words to torch, and whether this machine multiplies bf16 fast."""

from __future__ import annotations

import statistics
import time
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from fulcrum.spec.errors import BadInput, nearest

if TYPE_CHECKING:
    from torch.distributed.fsdp import MixedPrecisionPolicy

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Words(Protocol):
    """What is read of the spec's precision record."""

    @property
    def storage(self) -> str: ...
    @property
    def compute(self) -> str: ...
    @property
    def reduce(self) -> str: ...
    @property
    def optimizer(self) -> str: ...


def dtype(word: str) -> torch.dtype:
    if word not in DTYPES:
        raise BadInput(f"no dtype is called {word!r}", nearest(word, DTYPES))
    return DTYPES[word]


class Dtypes(NamedTuple):
    """What weights keep after an update, what matrices are multiplied in, what gradients are summed in, what the
    optimizer remembers in."""

    storage: torch.dtype = torch.float32
    compute: torch.dtype = torch.float32
    reduce: torch.dtype = torch.float32
    optimizer: torch.dtype = torch.float32

    @classmethod
    def of(cls, words: Words) -> Dtypes:
        return cls(dtype(words.storage), dtype(words.compute), dtype(words.reduce), dtype(words.optimizer))

    def policy(self) -> MixedPrecisionPolicy:
        """FSDP2's part: reduce gradients in the reduce dtype, and cast nothing.

        Cast inputs would be every floating input of a block, the time and the rotary table included. Weights gathered
        in the compute dtype would halve what is sent, but norm scales and biases would be rounded to bf16 before every
        use, which one process does not do. The linears cast for themselves.
        """
        from torch.distributed.fsdp import MixedPrecisionPolicy  # 1.2 s to import; one process does without

        return MixedPrecisionPolicy(
            param_dtype=None,
            reduce_dtype=self.reduce,
            cast_forward_inputs=False,
        )


class Bf16Report(NamedTuple):
    """GEMM speed measured here, interleaved."""

    device: str
    size: int  # of the square matrices
    fp32_gflops: float
    bf16_gflops: float

    @property
    def ratio(self) -> float:
        """How many times faster bf16 is; below one it is slower."""
        return self.bf16_gflops / self.fp32_gflops

    @property
    def fast(self) -> bool:
        return self.ratio > 1.2  # less is not worth the precision


@cache
def bf16_report(device: str = "cpu", size: int = 384, rounds: int = 5) -> Bf16Report:
    """Time square products in fp32 and bf16 in turn and take medians; once per process, under a second."""
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    inputs = {kind: torch.ones(size, size, device=device, dtype=kind) for kind in seconds}
    for _ in range(rounds + 1):
        for kind, x in inputs.items():
            begin = time.perf_counter()
            x @ x
            if x.is_cuda:
                torch.cuda.synchronize()
            seconds[kind].append(time.perf_counter() - begin)
    speed = {kind: 2 * size**3 / statistics.median(spent[1:]) / 1e9 for kind, spent in seconds.items()}
    return Bf16Report(device, size, speed[torch.float32], speed[torch.bfloat16])


def has_fast_bf16(device: str = "cpu") -> bool:
    """Whether computing in bf16 pays on this machine, by measurement."""
    return bf16_report(device).fast
