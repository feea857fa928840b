"""The self-audit: pictures with a known fault go through every metric, and each must move, or stay, as it declares.

n pictures of each set, d feature width
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.measure.card import METRICS, Better
from fulcrum.measure.features.extractor import Extractor, full_name
from fulcrum.measure.features.image_checks import BATCH
from fulcrum.measure.metrics.base import Distance, Interval
from fulcrum.measure.metrics.checked_answer import answered
from fulcrum.measure.metrics.mmd import unit_norm
from fulcrum.measure.probe_expectations import PROBES, Declared
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Frozen

Answer = Literal["worse", "better", "stays"]
KEPT = 8  # of n pictures one in so many remains when diversity collapses
NOISES = 32  # distinct pictures when noises are shared: the published study had 32 for 10,000 samples (A3)
MINIMUM = 512  # pictures: with fewer, intervals are too wide for a metric to show what it sees


# --- faults of pixels: (B, 3, H, W) uint8 -> the same ------------------------------------------------------------------
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
        Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(stream, "JPEG", quality=quality)
        out.append(torch.from_numpy(np.asarray(Image.open(stream)).copy()).permute(2, 0, 1))
    return torch.stack(out)


PIXELS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "negated": negated,
    "wrong_range": wrong_range,
    "swapped_channels": swapped_channels,
    "blurred": blurred,
    "jpeg": jpeg,
}


# --- faults of the choice of pictures: which of n, in which order -------------------------------------------------------
def halved(rows: Tensor) -> Tensor:
    return _shuffled(torch.arange(len(rows)))[: len(rows) // 2]


def duplicated(rows: Tensor) -> Tensor:
    some = _shuffled(torch.arange(len(rows)))[:NOISES]
    return _shuffled(some.repeat(-(-len(rows) // NOISES))[: len(rows)])


def collapsed(rows: Tensor) -> Tensor:
    """An eighth of the pictures, repeated, chosen so that their mean direction is that of all: what a distance of means
    cannot see (A14). Exchanges one picture at a time while that brings the mean nearer."""
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


CHOICES: Mapping[str, Callable[[Tensor], Tensor]] = {"halved": halved, "duplicated": duplicated, "collapsed": collapsed}


class Cell(Frozen):
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
    cells: tuple[Cell, ...]

    @property
    def mismatches(self) -> tuple[Cell, ...]:
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


def answer(fair: Interval, found: Interval, better: Better) -> Answer:
    """Moved when the intervals are apart."""
    if fair[1] <= found[2] and found[1] <= fair[2]:
        return "stays"
    higher = found[0] > fair[0]
    return "better" if higher == (better == "higher") else "worse"


class Shares(NamedTuple):
    """A judge of what is drawn, for pictures whose truth is known."""

    judge: Callable[[Tensor], Mapping[str, Tensor]]
    pictures: Mapping[str, Any]  # truth of the pictures
    reference: Mapping[str, Any]  # and of the reference


def probe(
    pictures: Iterable[Tensor],
    reference: Iterable[Tensor],
    extractors: Sequence[Extractor],
    metrics: Sequence[Distance],
    source: str,
    shares: Shares | None = None,
    progress: Callable[[str], None] | None = None,
) -> ProbeTable:
    """Batches (B, 3, H, W) of as many pictures as reference pictures, without a fault; the faults are made here."""
    say = progress or (lambda text: None)
    rows: dict[tuple[str, str], list[Tensor]] = {}
    answers: dict[str, list[Any]] = {}
    for images in pictures:
        for name, fault in {"": _same, **PIXELS}.items():
            altered = fault(images)
            for part in extractors:
                rows.setdefault((name, part.name), []).append(part.rows(altered))
            if shares is not None:
                answers.setdefault(name, []).append(shares.judge(altered))
    for images in reference:
        for part in extractors:
            rows.setdefault(("copy", part.name), []).append(part.rows(images))
        if shares is not None:
            answers.setdefault("copy", []).append(shares.judge(images))
    together = {key: torch.cat(part) for key, part in rows.items()}
    first = extractors[0].name
    n, around = len(together.get(("", first), ())), len(together.get(("copy", first), ()))
    if n < MINIMUM or n != around:
        raise BadInput(
            f"probing needs at least {MINIMUM} pictures and as many of the reference, found {n} and {around}",
            "give larger sets, or none: the embedded world then serves",
        )
    fair: list[Fair] = []
    cells: list[Cell] = []
    for part in extractors:
        chosen = {name: choose(together["", part.name]) for name, choose in CHOICES.items()}
        for metric in metrics:
            label = full_name(part, metric.name)
            say(label)
            held = metric.gather(part.width, True)
            held.update(together["copy", part.name], np.arange(around))

            def value(found: Tensor, metric: Distance = metric, part: Extractor = part, held: Any = held) -> Interval:
                gathered = metric.gather(part.width, False)
                gathered.update(found, np.arange(len(found)))
                return answered(metric, full_name(part, metric.name), gathered, held)

            values = {name: value(_chosen(name, part.name, together, chosen)) for name in ("", *PROBES)}
            _fill(label, metric.better, metric.sees, values, fair, cells)
    if shares is not None:
        chosen = {name: choose(together["", first]) for name, choose in CHOICES.items()}
        for name, by_probe in _share_values(answers, shares, chosen).items():
            _fill(name, METRICS[name].better, METRICS[name].sees, by_probe, fair, cells)
    return ProbeTable(
        n=n,
        pictures=source,
        extractors=tuple(part.card() for part in extractors),
        probes=dict(PROBES),
        fair=tuple(fair),
        cells=tuple(cells),
    )


def _fill(
    label: str, better: Better, sees: Mapping[str, str], values: Mapping[str, Interval], fair: list[Fair], cells: list[Cell]
) -> None:
    calm = values[""]
    fair.append(Fair(metric=label, better=better, value=calm[0], low=calm[1], high=calm[2]))
    for name in PROBES:
        value, low, high = values[name]
        declared: Any = sees.get(name)
        cells.append(
            Cell(
                probe=name,
                metric=label,
                declared=declared,
                found=answer(calm, values[name], better),
                value=value,
                low=low,
                high=high,
            )
        )


def _chosen(name: str, part: str, rows: Mapping[tuple[str, str], Tensor], chosen: Mapping[str, Tensor]) -> Tensor:
    return rows["", part][chosen[name]] if name in chosen else rows[name, part]


def _share_values(
    answers: Mapping[str, list[Any]], shares: Shares, chosen: Mapping[str, Tensor]
) -> dict[str, dict[str, Interval]]:
    from fulcrum.measure.metrics.attributes import SHARES, score, share
    from fulcrum.measure.metrics.interval import bootstrap_shares

    found: dict[str, dict[str, Interval]] = {name: {} for name in SHARES}
    for probe_name in ("", *PROBES):
        said = answers["" if probe_name in chosen else probe_name]
        logits = {name: torch.cat([part[name] for part in said]) for name in said[0]}
        counts = score(logits, shares.reference if probe_name == "copy" else shares.pictures)
        right, asked = (np.stack([counts[name][side] for name in SHARES], axis=1) for side in (0, 1))
        if probe_name in chosen:
            index = chosen[probe_name].numpy()
            right, asked = right[index], asked[index]
        low, high = bootstrap_shares(right, asked)
        for k, name in enumerate(SHARES):
            found[name][probe_name] = (share(right[:, k], asked[:, k])[0], float(low[k]), float(high[k]))
    return found


def embedded_world(n: int = 512) -> tuple[Iterator[Tensor], Iterator[Tensor], Shares]:
    """Pictures and reference from the embedded world, two parts of one split, with the judge and the truth of both."""
    from fulcrum.data.source import WorldSource
    from fulcrum.encode.networks.judge import load_judge

    source = WorldSource(split="reference", domain="real", size=32, count=2 * n)

    def batches(first: int) -> Iterator[Tensor]:
        for start in range(first, first + n, BATCH):
            yield torch.from_numpy(source.read(np.arange(start, min(start + BATCH, first + n))).images)

    truth = [source.scenes(np.arange(first, first + n)).grid() for first in (n, 0)]
    return batches(n), batches(0), Shares(load_judge().judge, truth[0], truth[1])


def _same(images: Tensor) -> Tensor:
    return images


def _shuffled(index: Tensor) -> Tensor:
    return index[torch.randperm(len(index), generator=torch.Generator().manual_seed(0))]
