"""The ledger of an import: what became of every sample that was given. Its sums must come out."""

from collections import Counter
from typing import Any

from fulcrum.data.readers.fit_picture import CHANGES

OUTCOMES = ("kept", "dropped", "quarantined")


class Ledger:
    """Counts; every sample is booked once."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()  # of what was dropped or quarantined
        self.changes: Counter[str] = Counter()  # of what was kept; a picture may be cropped and resized
        self.untouched = 0
        self.before: Counter[str] | None = None  # changes of what was kept, by the import of a parent; None: there is none
        self.buckets: Counter[str] = Counter()
        self.cut: dict[str, float] = {}  # per bucket: share of the pixels that was cropped away, summed

    def book(self, outcome: str, reason: str, changes: tuple[str, ...] = (), bucket: str = "", cut: float = 0.0) -> None:
        self.outcomes[outcome] += 1
        if outcome != "kept":
            self.reasons[reason] += 1
            return
        self.changes.update(changes)
        self.untouched += not set(changes) - {"repeated"}
        self.buckets[bucket] += 1
        self.cut[bucket] = self.cut.get(bucket, 0.0) + cut

    def book_again(self, bucket: str, changes: tuple[str, ...]) -> None:
        """A picture of a parent that is kept as it is there; the changes are those of the parent's import."""
        self.book("kept", "", (), bucket)
        self.before = self.before or Counter()
        self.before.update(changes)

    def plain(self) -> dict[str, Any]:
        kept = self.outcomes["kept"]
        before = None if self.before is None else {name: self.before[name] for name in CHANGES if self.before[name]}
        return {
            **({} if before is None else {"before": before}),
            "given": self.outcomes.total(),
            **{name: self.outcomes[name] for name in OUTCOMES},
            "kept_untouched": self.untouched,
            "kept_changed": kept - self.untouched,
            "changes": {name: self.changes[name] for name in CHANGES if name != "padded" or self.changes[name]},
            "reasons": dict(sorted(self.reasons.items())),
            "buckets": {
                name: {"kept": count, "cropped_away": round(self.cut[name] / count, 4)}
                for name, count in sorted(self.buckets.items())
            },
        }


def cropped_away(given: tuple[int, int], shape: tuple[int, int]) -> float:
    """Share of a picture's pixels that a crop to this shape takes away."""
    (width, height), (w, h) = given, shape
    scale = min(width / w, height / h)
    return float(max(0.0, 1.0 - (w * scale) * (h * scale) / (width * height)))


def faults(ledger: dict[str, Any], samples: int) -> list[str]:
    """Where a ledger does not add up, in words; nothing if it does."""
    wrong = []
    sums = [
        ("given", ledger["given"], sum(ledger[name] for name in OUTCOMES), "kept, dropped and quarantined"),
        ("kept", ledger["kept"], samples, "samples in the store"),
        ("kept", ledger["kept"], ledger["kept_untouched"] + ledger["kept_changed"], "untouched and changed"),
        ("kept", ledger["kept"], sum(one["kept"] for one in ledger["buckets"].values()), "all buckets"),
        (
            "dropped and quarantined",
            ledger["dropped"] + ledger["quarantined"],
            sum(ledger["reasons"].values()),
            "all reasons",
        ),
    ]
    for name, total, parts, what in sums:
        if total != parts:
            wrong.append(f"the ledger does not add up: {name} {total:,}, {what} {parts:,}")
    return wrong


def ledger_lines(ledger: dict[str, Any]) -> list[str]:
    """The ledger for people."""
    lines = [
        f"given {ledger['given']:,} = kept {ledger['kept']:,} + dropped {ledger['dropped']:,} + quarantined "
        f"{ledger['quarantined']:,}",
        _kept_line(ledger),
    ]
    lines += [f"  {count:>8,}  {reason}" for reason, count in ledger["reasons"].items()]
    if len(ledger["buckets"]) > 1:
        lines += [
            f"  {name:>9}  {one['kept']:,} pictures, {one['cropped_away']:.1%} of their pixels cropped away"
            for name, one in ledger["buckets"].items()
        ]
    return lines


def changes_of(ledger: dict[str, Any]) -> dict[str, int]:
    """Change -> pictures of the store that have it, whether this ledger's own import made it or that of a parent."""
    return {name: ledger["changes"].get(name, 0) + ledger.get("before", {}).get(name, 0) for name in CHANGES}


def _kept_line(ledger: dict[str, Any]) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in ledger.get("before", ledger["changes"]).items() if count)
    if "before" in ledger:
        return f"kept  {ledger['kept']:,} as they are in the parent" + (f", whose import had {counts}" if counts else "")
    return f"kept  {ledger['kept_untouched']:,} untouched, {ledger['kept_changed']:,} changed: {counts or 'none'}"
