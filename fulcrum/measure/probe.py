"""Probe the metrics: apply a known fault to pictures, and see that each metric moves as it
should."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.judge.card import PROBES, Better, Declared, Measured
from fulcrum.measure.evaluate import Comparison, FeatureSet, compare
from fulcrum.measure.features.extractor import BATCH, attributes, full_name, second_attributes
from fulcrum.measure.metrics.base import Distance, Interval
from fulcrum.measure.metrics.distances import unit_norm
from fulcrum.measure.metrics.means import ATTRIBUTE_SHARES, SECOND_SHARES, count_rows, score
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Frozen

# --------------------------------------------------------------------------------------------------
# Faults that pictures can have on their way to a metric: of their pixels, and of which of them are
# there.
#
# B pictures of a batch, n pictures of a set, d feature width


KEPT = 8  # of n pictures one in so many remains when diversity collapses
# distinct pictures when noises are shared: the published study had 32 for 10,000 samples (A3)
NOISES = 32


# --- faults of pixels: (B, 3, H, W) uint8 -> the same ---------------------------------------------
def negated(images: Tensor) -> Tensor:
    return 255 - images


def wrong_range(images: Tensor) -> Tensor:
    """[0, 1] taken for [-1, 1]: everything lies in the brighter half."""
    return (127.5 + images.float() / 2).round().to(torch.uint8)


def swapped_channels(images: Tensor) -> Tensor:
    return images.flip(1)


def blurred(images: Tensor) -> Tensor:
    """Three passes of a box of a sixteenth of the side: nearly a Gaussian."""
    size = max(min(images.shape[-2:]) // 16, 1) * 2 + 1
    soft = images.float()
    for _ in range(3):
        soft = F.avg_pool2d(F.pad(soft, [size // 2] * 4, mode="replicate"), size, stride=1)
    return soft.round().to(torch.uint8)


def jpeg(images: Tensor, quality: int = 10) -> Tensor:
    from PIL import Image

    out = []
    for image in images:
        stream = io.BytesIO()
        Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(
            stream, "JPEG", quality=quality
        )
        out.append(torch.from_numpy(np.asarray(Image.open(stream)).copy()).permute(2, 0, 1))
    return torch.stack(out)


PIXELS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "negated": negated,
    "wrong_range": wrong_range,
    "swapped_channels": swapped_channels,
    "blurred": blurred,
    "jpeg": jpeg,
}


# --- faults of the choice of pictures: which of n, in which order ---------------------------------
def halved(rows: Tensor) -> Tensor:
    return _shuffled(torch.arange(len(rows)))[: len(rows) // 2]


def duplicated(rows: Tensor) -> Tensor:
    kept = _shuffled(torch.arange(len(rows)))[:NOISES]
    return _shuffled(kept.repeat(-(-len(rows) // NOISES))[: len(rows)])


def collapsed(rows: Tensor) -> Tensor:
    """An eighth of the pictures, repeated, chosen so that their mean direction is that of all: what
    a distance of means cannot see (A14). Exchanges one picture at a time while that brings the mean
    nearer."""
    unit = unit_norm(rows)
    unit = unit - unit.mean(dim=0)
    count = len(rows) // KEPT
    chosen = torch.zeros(len(rows), dtype=torch.bool)
    chosen[_shuffled(torch.arange(len(rows)))[:count]] = True
    total, norms = unit[chosen].sum(dim=0), unit.square().sum(dim=1)
    for _ in range(20 * count):
        inside, outside = chosen.nonzero()[:, 0], (~chosen).nonzero()[:, 0]
        # |total - a + b|^2 for every a inside and b outside
        away = norms[inside] - 2 * unit[inside] @ total
        into = norms[outside] + 2 * unit[outside] @ total
        change = away[:, None] + into[None] - 2 * unit[inside] @ unit[outside].T
        best = int(change.argmin())
        a, b = inside[best // len(outside)], outside[best % len(outside)]
        if float(change.flatten()[best]) >= -1e-12:
            break
        chosen[a], chosen[b] = False, True
        total = total - unit[a] + unit[b]
    return _shuffled(chosen.nonzero()[:, 0].repeat(KEPT)[: len(rows)])


CHOICES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "halved": halved,
    "duplicated": duplicated,
    "collapsed": collapsed,
}


def _shuffled(index: Tensor) -> Tensor:
    return index[torch.randperm(len(index), generator=torch.Generator().manual_seed(0))]


# --------------------------------------------------------------------------------------------------
# The self-audit: pictures with a known fault go through every metric, and each must move, or stay,
# as it declares.
#
# n pictures of each set, d feature width


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
        out = [
            " " * first
            + "  "
            + "  ".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
        ]
        for probe in self.probes:
            words = []
            for name, width in zip(names, widths, strict=True):
                cell = by_place.get((probe, name))
                mark = marks[cell.found] + ("" if cell.as_declared else " (!)") if cell else ""
                words.append(f"{mark:>{width}}")
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
    """Batches (B, 3, H, W) of as many pictures as reference pictures, without a fault; the faults
    are made here."""
    extractors = [part for part, _ in comparisons]
    rows: dict[tuple[str, str], list[Tensor]] = {}
    judges = [] if shares is None else list(shares.judges)
    answers: dict[tuple[str, str], list[Mapping[str, Tensor]]] = {}
    for faults, batches in (
        ({"": _unchanged, **PIXELS}, pictures),
        ({"copy": _unchanged}, reference),
    ):
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
            f"probing needs at least {MINIMUM} pictures and as many of the reference, found {n} and"
            f" {around}",
            "give larger sets, or none: the embedded world then serves",
        )
    for name, choose in CHOICES.items():
        together |= {
            (name, part.name): together["", part.name][choose(together["", part.name])]
            for part in extractors
        }
    if shares is not None:
        together |= {
            (name, judge): _counted(parts, shares, name) for (name, judge), parts in answers.items()
        }
        for name, choose in CHOICES.items():
            together |= {
                (name, part.name): together["", part.name][choose(together["", first])]
                for part, _ in judges
            }
        comparisons = [*comparisons, *judges]
    held = _gathered(comparisons, together, "copy", reference=True)
    keys = dict.fromkeys((part.name for part in extractors), source)
    measured = {}
    for name in ("", *PROBES):
        altered_set = _gathered(comparisons, together, name, reference=False)
        measured[name] = compare(
            comparisons, altered_set, held, len(together[name, first]), keys, progress=progress
        )
    metrics = {
        full_name(part, metric.name): metric for part, asked in comparisons for metric in asked
    }
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


def _effect(
    name: str, label: str, metric: Distance, fair: Measured, faulty: Measured
) -> FaultEffect:
    value, low, high = faulty.value, faulty.low, faulty.high
    declared: Any = metric.sees.get(name)
    reaction = answer((fair.value, fair.low, fair.high), (value, low, high), metric.better)
    return FaultEffect(
        probe=name, metric=label, declared=declared, found=reaction, value=value, low=low, high=high
    )


def _gathered(
    comparisons: Sequence[Comparison],
    rows: Mapping[tuple[str, str], Tensor],
    name: str,
    reference: bool,
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
    """Pictures and reference from the embedded world, two parts of one split, with the judges and
    the truth of both."""
    from fulcrum.data.source import WorldSource

    source = WorldSource(split="reference", domain="real", size=32, count=2 * n)

    def batches(first: int) -> Iterator[Tensor]:
        for start in range(first, first + n, BATCH):
            yield torch.from_numpy(
                source.read(np.arange(start, min(start + BATCH, first + n))).images
            )

    truth = [source.scenes(np.arange(first, first + n)).grid() for first in (n, 0)]
    judges = (
        Comparison(attributes(), ATTRIBUTE_SHARES),
        Comparison(second_attributes(), SECOND_SHARES),
    )
    return batches(n), batches(0), Shares(judges, truth[0], truth[1])


def _unchanged(images: Tensor) -> Tensor:
    return images
