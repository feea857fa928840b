"""The GPUs that an estimate knows: what each can do at most, what it holds, and what an hour of it is taken to cost.

Peaks are the makers' own for dense products that sum in fp32. Prices are nobody's offer: an assumption in dollars that
--price replaces. No torch in here.
"""

import math
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
ALSO = {"A100-80GB": "A100", "H100-80GB": "H100", "H200-141GB": "H200"}  # as they are called too


class Machine(NamedTuple):
    """So many GPUs of one kind."""

    number: int
    name: str

    @property
    def gpu(self) -> GpuType:
        return GPUS[self.name]

    @property
    def shards(self) -> int:
        """GPUs that share the weights where nobody says: those of one machine, or an equal part of them; the rest are
        copies. No replica lies on two machines."""
        return self.number if self.number <= NODE else math.gcd(self.number, NODE)

    @property
    def mesh(self) -> str:
        """That as --mesh says it."""
        return f"{self.number // self.shards}x{self.shards}"

    def __str__(self) -> str:
        return f"{self.number}x{self.name}"


def read_machine(text: str) -> Machine:
    """8xH100, 8 x h100, H100 or, the other way round, H100x8."""
    known = {_letters(name): name for name in (*GPUS, *ALSO)}
    count, name = _count_and_name(text.strip(), known)
    if name is None:
        raise BadInput(
            f"'{text[:40]}' does not say how many GPUs of which kind",
            "write a number, an x and a name: --gpus 8xH100; known: " + ", ".join(GPUS),
        )
    if _letters(name) not in known:
        raise BadInput(
            f"no GPU is known as '{name[:40]}'",
            f"{nearest(name.upper(), GPUS)}\n  their peaks and prices: fulcrum estimate",
        )
    kind = known[_letters(name)]
    return Machine(_number(count, kind), ALSO.get(kind, kind))


def _count_and_name(text: str, known: Mapping[str, str]) -> tuple[str, str | None]:
    count, times, name = r"([+-]?\d+(?:\.\d*)?)", r"\s*[xX*×]\s*", r"([A-Za-z][\w -]*?)"
    turned = re.fullmatch(name + times + count, text)
    if turned and _letters(text) not in known:  # an RTX4090 is one GPU, not 4,090 of RT
        return turned.group(2), turned.group(1)
    plain = re.fullmatch(f"(?:{count}{times})?{name}", text)
    return (plain.group(1) or "1", plain.group(2)) if plain else ("", None)


def _number(count: str, name: str) -> int:
    whole, _, part = count.partition(".")
    if part.strip("0"):
        raise BadInput(f"--gpus {count[:40]}x{name} asks for a part of a GPU", f"give a whole number: --gpus 8x{name}")
    number = int(whole) if len(whole) <= LONGEST else 0
    if not 1 <= number <= MOST:
        many = f"{number:,}" if len(whole) <= LONGEST else f"a number of {len(whole):,} digits of"
        raise BadInput(
            f"--gpus {f'{count}x{name}'[:40]} asks for {many} GPUs", f"an estimate is for 1 to {MOST:,}: --gpus 8x{name}"
        )
    return number


def _letters(name: str) -> str:
    """A name as people write it: H100, h100, RTX-4090."""
    return re.sub(r"[\W_]", "", name).upper()
