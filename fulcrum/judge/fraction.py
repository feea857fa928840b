"""Fractional designs: many levers in few combinations, chosen so that every lever's effect stands
clear of all pairs.

Each lever is on in half of the combinations. Of any three levers all eight settings occur equally
often (resolution IV): what two levers do together can never look like what a third does alone.
Pairs among themselves may stand together: which, is told by `alias_strings`. The first combination
is the baseline, all off.

R combinations, K levers
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.spec.errors import BadInput

FEWEST_LEVERS, MOST_LEVERS = 3, 16
FOLDED = 24  # combinations of the one design that is no regular fraction
SIZES = (8, 16, FOLDED, 32, 64)  # combinations that a fraction may have
# of the search for a fraction: enough for the best with few levers, a good one with many
_NODES = 1000

Pair = tuple[int, int]


class FractionTable(NamedTuple):
    """Which levers are on in which combination."""

    levers: tuple[str, ...]
    on: NDArray[np.bool_]  # (R, K)
    chosen: tuple[tuple[str, str], ...] = ()  # pairs whose interaction is asked for

    @property
    def signs(self) -> NDArray[np.float64]:
        """+1 where a lever is on, else -1.  (R, K)"""
        return np.where(self.on, 1.0, -1.0)

    def together(self, pair: tuple[str, str]) -> NDArray[np.float64]:
        """The column of an interaction: +1 where both or neither are on.  (R,)"""
        a, b = (self.signs[:, self.levers.index(lever)] for lever in pair)
        return np.asarray(a * b)

    def names(self) -> list[str]:
        """Combinations by the levers that are on; the baseline's is empty."""
        return [
            " + ".join(lever for lever, on in zip(self.levers, row, strict=True) if on)
            for row in self.on
        ]


def fraction_table(
    levers: Sequence[str], chosen: Sequence[tuple[str, str]] = (), size: int | None = None
) -> FractionTable:
    """The smallest fraction for these levers and pairs, or one of the size that was asked for."""
    if not FEWEST_LEVERS <= len(levers) <= MOST_LEVERS:
        raise BadInput(
            f"a fractional design takes {FEWEST_LEVERS} to {MOST_LEVERS} levers, found"
            f" {len(levers)}",
            'two levers are a pair: interactions = [["a", "b"]] without a design; more than can be'
            " had are two plans",
        )
    strange = [lever for pair in chosen for lever in pair if lever not in levers]
    if strange:
        raise BadInput(
            f"the interaction with '{strange[0]}' is asked for, and the stack has no such lever",
            f"the stack: {', '.join(levers)}",
        )
    pairs = tuple(
        sorted(
            (min(pair), max(pair))
            for pair in ((levers.index(a), levers.index(b)) for a, b in chosen)
        )
    )
    sizes = SIZES if size is None else (size,) if size in SIZES else ()
    on = next(
        (rows for one in sizes if (rows := _fraction(len(levers), pairs, one)) is not None), None
    )
    if on is None:
        raise _refusal(len(levers), pairs, size)
    return FractionTable(tuple(levers), on, tuple(chosen))


def _refusal(levers: int, chosen: tuple[Pair, ...], size: int | None) -> BadInput:
    """Why there is no such fraction, and what there is."""
    fitting = [one for one in SIZES if _fraction(levers, chosen, one) is not None]
    asked = f"{levers} levers" + (f" and {len(chosen)} chosen pairs" if chosen else "")
    if not fitting:
        return BadInput(
            f"the {len(chosen)} chosen pairs of {levers} levers cannot all be told apart in"
            f" {SIZES[-1]} combinations",
            "choose fewer pairs, or give some a plan of their own: finished cells are shared",
        )
    assert size is not None  # without it the first that fits was taken
    listed = ", ".join(map(str, fitting))
    if size < fitting[0]:
        return BadInput(
            f"{size} combinations are too few for {asked}: {fitting[0]} are enough",
            f"write combinations = {fitting[0]}, or leave it out",
        )
    return BadInput(
        f"there is no fraction of {size} combinations for {asked}", f"there is one of: {listed}"
    )


def alias_strings(table: FractionTable) -> list[tuple[tuple[str, str], ...]]:
    """Pairs of levers whose interactions cannot be told apart, string by string; a chosen pair
    stands first in its own.

    Empty where pairs overlap in part and not wholly, as in the folded design of 24: there no string
    says anything.
    """
    if len(table.on) == FOLDED:
        return []
    strings: dict[bytes, list[tuple[str, str]]] = {}
    wanted = {frozenset(pair) for pair in table.chosen}
    for pair in combinations(table.levers, 2):
        strings.setdefault(table.together(pair).tobytes(), []).append(pair)
    ordered = [
        tuple(sorted(string, key=lambda pair: frozenset(pair) not in wanted))
        for string in strings.values()
    ]
    return sorted(ordered, key=lambda string: frozenset(string[0]) not in wanted)


def alias_words(table: FractionTable) -> list[str]:
    """What can be told apart from what, in sentences; the strings of pairs that were not chosen are
    not listed."""
    sentences = [
        "Every lever's effect is clear of what any two others do together, not of what three do."
    ]
    if len(table.on) == FOLDED:
        return [
            *sentences,
            "Pairs that share no lever overlap by a third: none can be read by itself.",
        ]
    strings, count = alias_strings(table), len(table.chosen)
    for string in strings[:count]:
        pair, rest = named(string[0]), ", ".join(map(named, string[1:]))
        beside = (
            f"stands with {rest}, which are taken to do nothing"
            if rest
            else "is clear of every other pair"
        )
        sentences.append(f"The chosen pair {pair} {beside}.")
    return sentences


def named(pair: tuple[str, str]) -> str:
    return " × ".join(pair)


@lru_cache(maxsize=64)
def _fraction(levers: int, chosen: tuple[Pair, ...], size: int) -> NDArray[np.bool_] | None:
    """Rows of a fraction of just this size (R, K), the first all off; None where there is none."""
    if not 2 * levers <= size <= 2**levers or size <= levers + len(chosen):
        return None
    if size == FOLDED:  # pairs overlap there by a third: none can be asked for
        return None if chosen or levers < 8 else _fold_over(levers)
    columns = _columns(levers, chosen, size.bit_length() - 1)
    if columns is None:
        return None
    rows = np.arange(size)
    return np.array([[bin(row & column).count("1") % 2 == 1 for column in columns] for row in rows])


def _fold_over(levers: int) -> NDArray[np.bool_]:
    """The Hadamard matrix of order twelve (Paley: squares modulo eleven), and its mirror image
    below it."""
    squares = {number * number % 11 for number in range(1, 11)}
    core = [
        [1 if (column - row) % 11 in squares or row == column else -1 for column in range(11)]
        for row in range(11)
    ]
    half = np.array([[-1] * 12, *([1, *row] for row in (np.array(core) * -1).tolist())])
    assert (half @ half.T == 12 * np.eye(12)).all()
    return np.concatenate([half, -half])[:, :levers] > 0


def _columns(levers: int, chosen: tuple[Pair, ...], bits: int) -> list[int] | None:
    """A lever is on in the combinations that share an odd number of bits with its column. Columns
    of which none is the sum of two others give resolution IV; two pairs stand together where their
    sums are equal.

    Lever by lever, those of chosen pairs first; the best of a bounded search, always the same:
    chosen pairs may not stand together; as few others as can be stand with them, then with each
    other.
    """
    partners: dict[int, set[int]] = {lever: set() for lever in range(levers)}
    for a, b in chosen:
        partners[a].add(b)
        partners[b].add(a)
    order = sorted(range(levers), key=lambda lever: (-len(partners[lever]), lever))
    best: tuple[float, list[int] | None] = (float("inf"), None)
    nodes = 0

    def place(taken: list[int], sums: dict[int, list[bool]], fault: float) -> None:
        """`sums`: sum of two columns -> for each pair that has it, whether it is a chosen one."""
        nonlocal best, nodes
        nodes += 1
        if len(taken) == levers:
            best = (fault, list(taken))
            return
        rank = max((column.bit_length() for column in taken), default=0)
        lever, steps = order[len(taken)], []
        # every lever that is left must bring a new bit, or rows come twice
        last = levers - len(taken) <= bits - rank
        # a new bit comes alone
        for column in range(2**rank if last else 1, min(2**rank + 1, 2**bits)):
            if column in taken or column in sums:
                continue
            fresh = {
                column ^ other: order[nth] in partners[lever] for nth, other in enumerate(taken)
            }
            if any(one in taken for one in fresh) or any(
                wanted and any(sums.get(one, ())) for one, wanted in fresh.items()
            ):
                continue
            steps.append(
                (
                    fault
                    + sum(_crowding(sums.get(one, []), wanted) for one, wanted in fresh.items()),
                    column,
                    fresh,
                )
            )
        for more, column, fresh in sorted(steps, key=lambda step: (step[0], -step[1])):
            if more >= best[0] or (nodes > _NODES and best[1] is not None) or nodes > 4 * _NODES:
                return
            together = {
                **sums,
                **{one: [*sums.get(one, []), wanted] for one, wanted in fresh.items()},
            }
            place([*taken, column], together, more)

    place([], {}, 0.0)
    if best[1] is None:
        return None
    by_lever = dict(zip(order, best[1], strict=True))
    return [by_lever[lever] for lever in range(levers)]


def _crowding(there: Iterable[bool], wanted: bool) -> float:
    """What it costs to put a pair where others stand: much beside a chosen one."""
    return sum(100.0 if wanted or other else 1.0 for other in there)
