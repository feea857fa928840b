"""The GPUs that an estimate knows: what each can do at most, what it holds, and what an hour of it is taken to cost.

Peaks are the makers' own for dense products that sum in fp32. Prices are nobody's offer: an assumption in dollars that
--price replaces. No torch in here.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from fulcrum.spec.errors import BadInput, nearest

NODE = 8  # GPUs of one machine, joined by fast links
NETWORK = 50e9  # bytes a second that a GPU sends to another machine: one 400 Gb/s port each
MOST = 65_536  # GPUs of an estimate
LONGEST = 20  # digits of their number that are read


class GpuType(NamedTuple):
    """One GPU of a kind."""

    bf16: float  # FLOP/s
    fp32: float  # FLOP/s outside of the matrix units
    memory: float  # bytes
    bandwidth: float  # bytes a second of its own memory
    link: float  # bytes a second to a GPU of the same machine, one way
    price: float  # dollars an hour, an assumption


GPUS: Mapping[str, GpuType] = {
    "B200": GpuType(2250e12, 75e12, 180e9, 8.0e12, 900e9, 4.5),
    "H200": GpuType(989e12, 67e12, 141e9, 4.8e12, 450e9, 2.0),  # the price that the published speed run names
    "H100": GpuType(989e12, 67e12, 80e9, 3.35e12, 450e9, 2.0),
    "A100": GpuType(312e12, 19.5e12, 80e9, 2.04e12, 300e9, 1.3),
    "A100-40GB": GpuType(312e12, 19.5e12, 40e9, 1.56e12, 300e9, 1.1),
    "L40S": GpuType(362e12, 91.6e12, 48e9, 0.864e12, 32e9, 0.9),
    "A10": GpuType(125e12, 31.2e12, 24e9, 0.6e12, 32e9, 0.6),
    "RTX4090": GpuType(165e12, 82.6e12, 24e9, 1.008e12, 32e9, 0.4),
}


class Machine(NamedTuple):
    """So many GPUs of one kind."""

    number: int
    name: str

    @property
    def gpu(self) -> GpuType:
        return GPUS[self.name]

    @property
    def shards(self) -> int:
        """GPUs that share the weights: those of one machine; the machines are copies of each other."""
        return min(self.number, NODE)

    def __str__(self) -> str:
        return f"{self.number}x{self.name}"


def read_machine(text: str) -> Machine:
    """8xH100, 8 x h100 or H100."""
    found = re.fullmatch(r"(?:([+-]?\d+)\s*[xX*×]\s*)?([A-Za-z][\w-]*)", text.strip())
    if found is None:
        raise BadInput(
            f"'{text[:40]}' does not say how many GPUs of which kind",
            "write a number, an x and a name: --gpus 8xH100; known: " + ", ".join(GPUS),
        )
    asked = found.group(1) or "1"
    count = int(asked) if len(asked) <= LONGEST else 0
    if not 1 <= count <= MOST:
        many = f"{count:,}" if len(asked) <= LONGEST else f"a number of {len(asked):,} digits of"
        raise BadInput(f"--gpus {text[:40]} asks for {many} GPUs", f"an estimate is for 1 to {MOST:,}: --gpus 8xH100")
    by_letters = {_letters(name): name for name in GPUS}
    name = by_letters.get(_letters(found.group(2)))
    if name is None:
        raise BadInput(
            f"no GPU is known as '{found.group(2)}'",
            f"{nearest(found.group(2).upper(), GPUS)}\n  their peaks and prices: fulcrum estimate",
        )
    return Machine(count, name)


def _letters(name: str) -> str:
    """A name as people write it: H100, h100, RTX-4090."""
    return re.sub(r"[\W_]", "", name).upper()
