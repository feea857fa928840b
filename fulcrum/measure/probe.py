"""The self-audit: pictures with a known fault go through every metric, and each must move, or stay, as it declares.

n pictures of each set, d feature width
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fulcrum.measure.card import Better, Measured
from fulcrum.measure.evaluate import Comparison, FeatureSet, compare
from fulcrum.measure.faults import CHOICES, PIXELS
from fulcrum.measure.features.extractor import attributes, full_name, second_attributes
from fulcrum.measure.features.image_checks import BATCH
from fulcrum.measure.metrics.attributes import ATTRIBUTE_SHARES, SECOND_SHARES, count_rows, score
from fulcrum.measure.metrics.base import Distance
from fulcrum.measure.metrics.interval import Interval
from fulcrum.measure.probe_expectations import PROBES, Declared
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Frozen

Answer = Literal["worse", "better", "stays"]
MINIMUM = 512  # pictures: with fewer, intervals are too wide for a metric to show what it sees


class FaultEffect(Frozen):
    """What one fault did to one metric."""

    probe: str
    metric: str
    declared: Declared | None  # none: nothing is promised
    found: Answer
    value: float
    low: float
    high: float

    @property
    def as_declared(self) -> bool:
        return self.declared in (None, "depends", self.found)


class Fair(Frozen):
    """A metric on pictures without a fault."""

    metric: str
    better: Better
    value: float
    low: float
    high: float


class ProbeTable(Frozen):
    """Which metric sees what; the report may show it."""

    n: int
    pictures: str  # where they came from
    extractors: tuple[dict[str, Any], ...]
    probes: dict[str, str]
    fair: tuple[Fair, ...]
    cells: tuple[FaultEffect, ...]

    @property
    def mismatches(self) -> tuple[FaultEffect, ...]:
        return tuple(cell for cell in self.cells if not cell.as_declared)

    def lines(self) -> list[str]:
        """As text: a column per metric."""
        marks = {"worse": "sees it", "better": "likes it", "stays": "-"}
        names = [fair.metric for fair in self.fair]
        first, widths = max(map(len, self.probes)), [max(len(name), 9) for name in names]
        by_place = {(cell.probe, cell.metric): cell for cell in self.cells}
        out = [" " * first + "  " + "  ".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))]
        for probe in self.probes:
            words = []
            for name, width in zip(names, widths, strict=True):
                cell = by_place.get((probe, name))
                words.append(f"{(marks[cell.found] + ('' if cell.as_declared else ' (!)')) if cell else '':>{width}}")
            out.append(f"{probe:<{first}}  " + "  ".join(words))
        return out


def answer(fair: Interval, faulty: Interval, better: Better) -> Answer:
    """Moved when the intervals are apart."""
    if fair[1] <= faulty[2] and faulty[1] <= fair[2]:
        return "stays"
    higher = faulty[0] > fair[0]
    return "better" if higher == (better == "higher") else "worse"


class Shares(NamedTuple):
    """Judges of what is drawn, for pictures whose truth is known."""

    judges: Sequence[Comparison]
    pictures: Mapping[str, Any]  # truth of the pictures
    reference: Mapping[str, Any]  # and of the reference


def probe(
    pictures: Iterable[Tensor],
    reference: Iterable[Tensor],
    comparisons: Sequence[Comparison],
    source: str,
    shares: Shares | None = None,
    progress: Callable[[str], None] | None = None,
) -> ProbeTable:
    """Batches (B, 3, H, W) of as many pictures as reference pictures, without a fault; the faults are made here."""
    extractors = [part for part, _ in comparisons]
    rows: dict[tuple[str, str], list[Tensor]] = {}
    judges = [] if shares is None else list(shares.judges)
    answers: dict[tuple[str, str], list[Mapping[str, Tensor]]] = {}
    for faults, batches in (({"": _unchanged, **PIXELS}, pictures), ({"copy": _unchanged}, reference)):
        for images in batches:
            for name, fault in faults.items():
                altered = fault(images)
                for part in extractors:
                    rows.setdefault((name, part.name), []).append(part.rows(altered))
                for part, _ in judges:
                    network: Any = part.network
                    answers.setdefault((name, part.name), []).append(network.judge(altered))
    together = {key: torch.cat(parts) for key, parts in rows.items()}
    first = extractors[0].name
    n, around = len(together.get(("", first), ())), len(together.get(("copy", first), ()))
    if n < MINIMUM or n != around:
        raise BadInput(
            f"probing needs at least {MINIMUM} pictures and as many of the reference, found {n} and {around}",
            "give larger sets, or none: the embedded world then serves",
        )
    for name, choose in CHOICES.items():
        together |= {(name, part.name): together["", part.name][choose(together["", part.name])] for part in extractors}
    if shares is not None:
        together |= {(name, judge): _counted(parts, shares, name) for (name, judge), parts in answers.items()}
        for name, choose in CHOICES.items():
            together |= {(name, part.name): together["", part.name][choose(together["", first])] for part, _ in judges}
        comparisons = [*comparisons, *judges]
    held = _gathered(comparisons, together, "copy", reference=True)
    keys = dict.fromkeys((part.name for part in extractors), source)
    measured = {}
    for name in ("", *PROBES):
        altered_set = _gathered(comparisons, together, name, reference=False)
        measured[name] = compare(comparisons, altered_set, held, len(together[name, first]), keys, progress=progress)
    metrics = {full_name(part, metric.name): metric for part, asked in comparisons for metric in asked}
    return ProbeTable(
        n=n,
        pictures=source,
        extractors=tuple(part.card() for part in extractors),
        probes=dict(PROBES),
        fair=tuple(
            Fair(metric=label, better=metric.better, value=fair.value, low=fair.low, high=fair.high)
            for label, metric in metrics.items()
            for fair in [measured[""][label]]
        ),
        cells=tuple(
            _effect(name, label, metric, measured[""][label], measured[name][label])
            for label, metric in metrics.items()
            for name in PROBES
        ),
    )


def _effect(name: str, label: str, metric: Distance, fair: Measured, faulty: Measured) -> FaultEffect:
    value, low, high = faulty.value, faulty.low, faulty.high
    declared: Any = metric.sees.get(name)
    reaction = answer((fair.value, fair.low, fair.high), (value, low, high), metric.better)
    return FaultEffect(probe=name, metric=label, declared=declared, found=reaction, value=value, low=low, high=high)


def _gathered(
    comparisons: Sequence[Comparison], rows: Mapping[tuple[str, str], Tensor], name: str, reference: bool
) -> FeatureSet:
    gathered = FeatureSet(comparisons, reference)
    for part, _ in comparisons:
        take = gathered.update if part.name in gathered.extractors else gathered.score
        take(part.name, rows[name, part.name], np.arange(len(rows[name, part.name])))
    return gathered


def _counted(parts: list[Mapping[str, Tensor]], shares: Shares, name: str) -> Tensor:
    logits = {attribute: torch.cat([part[attribute] for part in parts]) for attribute in parts[0]}
    return count_rows(score(logits, shares.reference if name == "copy" else shares.pictures))


def embedded_world(n: int = 512) -> tuple[Iterator[Tensor], Iterator[Tensor], Shares]:
    """Pictures and reference from the embedded world, two parts of one split, with the judges and the truth of both."""
    from fulcrum.data.source import WorldSource

    source = WorldSource(split="reference", domain="real", size=32, count=2 * n)

    def batches(first: int) -> Iterator[Tensor]:
        for start in range(first, first + n, BATCH):
            yield torch.from_numpy(source.read(np.arange(start, min(start + BATCH, first + n))).images)

    truth = [source.scenes(np.arange(first, first + n)).grid() for first in (n, 0)]
    judges = (Comparison(attributes(), ATTRIBUTE_SHARES), Comparison(second_attributes(), SECOND_SHARES))
    return batches(n), batches(0), Shares(judges, truth[0], truth[1])


def _unchanged(images: Tensor) -> Tensor:
    return images
