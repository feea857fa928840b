"""Import samples into a store, shard by shard, and record in a ledger what became of each."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

from PIL.Image import Image

from fulcrum.data.readers.pictures import (
    CHANGES,
    ENCODINGS,
    BadSample,
    RgbPicture,
    Size,
    buckets,
    colour_named,
    decode,
    encode,
    fit,
    nearest,
    pad,
)
from fulcrum.data.readers.reader import Given, Reader
from fulcrum.data.stores.picture_store import (
    FORMAT,
    LEDGER,
    SHARDS,
    Prepared,
    ShardWriter,
    compared_facts,
    parts,
)
from fulcrum.files.atomic import write_atomic
from fulcrum.files.folders import LOCK, BeginMark, require_begun
from fulcrum.files.lock import locked
from fulcrum.files.paths import explained
from fulcrum.files.prefetch import prefetched
from fulcrum.files.sealed import read_json
from fulcrum.spec.errors import BadInput, RunFailed, shown
from fulcrum.spec.progress import Tally
from fulcrum.spec.run import cores

# --------------------------------------------------------------------------------------------------
# The ledger of an import: what became of every sample that was given. Its sums must come out.


OUTCOMES = ("kept", "dropped", "quarantined")


class Ledger:
    """Counts; every sample is booked once."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()  # of what was dropped or quarantined
        # of what was kept; a picture may be cropped and resized
        self.changes: Counter[str] = Counter()
        self.untouched = 0
        # changes of what was kept, by the import of a parent; None: there is none
        self.before: Counter[str] | None = None
        self.buckets: Counter[str] = Counter()
        # per bucket: share of the pixels that was cropped away, summed
        self.cut: dict[str, float] = {}

    def book(
        self,
        outcome: str,
        reason: str,
        changes: tuple[str, ...] = (),
        bucket: str = "",
        cut: float = 0.0,
    ) -> None:
        self.outcomes[outcome] += 1
        if outcome != "kept":
            self.reasons[reason] += 1
            return
        self.changes.update(changes)
        self.untouched += not set(changes) - {"repeated"}
        self.buckets[bucket] += 1
        self.cut[bucket] = self.cut.get(bucket, 0.0) + cut

    def book_again(self, bucket: str, changes: tuple[str, ...]) -> None:
        """A picture of a parent that is kept as it is there; the changes are those of the parent's
        import."""
        self.book("kept", "", (), bucket)
        self.before = self.before or Counter()
        self.before.update(changes)

    def write(self, folder: Path, kept: int) -> dict[str, Any]:
        """Write the sums, which must come out for so many samples, and return them."""
        sums = self.plain()
        if wrong := faults(sums, kept):
            raise RunFailed(wrong[0], "this should not happen: please report it")
        write_atomic(folder / LEDGER, json.dumps(sums, indent=1))
        return sums

    def plain(self) -> dict[str, Any]:
        kept = self.outcomes["kept"]
        before = (
            None
            if self.before is None
            else {name: self.before[name] for name in CHANGES if self.before[name]}
        )
        return {
            **({} if before is None else {"before": before}),
            "given": self.outcomes.total(),
            **{name: self.outcomes[name] for name in OUTCOMES},
            "kept_untouched": self.untouched,
            "kept_changed": kept - self.untouched,
            "changes": {
                name: self.changes[name]
                for name in CHANGES
                if name != "padded" or self.changes[name]
            },
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
        (
            "given",
            ledger["given"],
            sum(ledger[name] for name in OUTCOMES),
            "kept, dropped and quarantined",
        ),
        ("kept", ledger["kept"], samples, "samples in the store"),
        (
            "kept",
            ledger["kept"],
            ledger["kept_untouched"] + ledger["kept_changed"],
            "untouched and changed",
        ),
        (
            "kept",
            ledger["kept"],
            sum(one["kept"] for one in ledger["buckets"].values()),
            "all buckets",
        ),
        (
            "dropped and quarantined",
            ledger["dropped"] + ledger["quarantined"],
            sum(ledger["reasons"].values()),
            "all reasons",
        ),
    ]
    for name, total, summed, what in sums:
        if total != summed:
            wrong.append(f"the ledger does not add up: {name} {total:,}, {what} {summed:,}")
    return wrong


def ledger_lines(ledger: dict[str, Any]) -> list[str]:
    """The ledger for people."""
    lines = [
        (
            f"given {ledger['given']:,} = kept {ledger['kept']:,} + dropped {ledger['dropped']:,} +"
            f" quarantined {ledger['quarantined']:,}"
        ),
        _kept_line(ledger),
    ]
    lines += [f"  {count:>8,}  {reason}" for reason, count in ledger["reasons"].items()]
    if len(ledger["buckets"]) > 1:
        lines += [
            f"  {name:>9}  {one['kept']:,} pictures, {one['cropped_away']:.1%} of their pixels"
            " cropped away"
            for name, one in ledger["buckets"].items()
        ]
    return lines


def changes_of(ledger: dict[str, Any]) -> dict[str, int]:
    """Change -> pictures of the store that have it, whether this ledger's own import made it or
    that of a parent."""
    return {
        name: ledger["changes"].get(name, 0) + ledger.get("before", {}).get(name, 0)
        for name in CHANGES
    }


def _kept_line(ledger: dict[str, Any]) -> str:
    counts = ", ".join(
        f"{count:,} {name}"
        for name, count in ledger.get("before", ledger["changes"]).items()
        if count
    )
    if "before" in ledger:
        return f"kept  {ledger['kept']:,} as they are in the parent" + (
            f", whose import had {counts}" if counts else ""
        )
    return (
        f"kept  {ledger['kept_untouched']:,} untouched, {ledger['kept_changed']:,} changed:"
        f" {counts or 'none'}"
    )


# --------------------------------------------------------------------------------------------------
# An import: given samples are checked, decoded, fitted and written shard by shard; a killed one
# goes on where it stood.
#
# A finished shard is a part: its tar, and part-N.jsonl with what became of every sample that was
# read for it. What a resumed import skips it compares: a source that changed meanwhile is refused.


Say = Callable[[str], None]
AHEAD = 64  # samples decoded ahead of the writer
LATER = ("pad", "background")  # options that imports of earlier versions do not state
BEGUN = BeginMark("import.json", "options", "import")
# in an unfinished import: it was not killed but refused, and need not be gone on with
REFUSED = "refused"


class Options(NamedTuple):
    """What decides the store, besides the samples."""

    size: int = 64
    buckets: bool = False
    encoding: str = "png"
    quality: int = 95  # of jpeg
    bad: str = "stop"  # or quarantine
    enlarge: bool = False  # smaller pictures are enlarged, else dropped
    once: bool = False  # repeated pictures are dropped, else kept and counted
    hold_out: float = 0.05  # share for each of validation and reference
    shard: int = 4096  # pictures of a shard
    #: sides of buckets are multiples of it; 0: an eighth of the size, at least 8
    bucket_step: int = 0
    pad: bool = False  # the whole picture with a colour beside it, instead of its centre
    background: str = "white"  # behind what is see-through, and beside what is padded

    def shapes(self) -> tuple[Size, ...]:
        return buckets(self.size, self.bucket_step) if self.buckets else ((self.size, self.size),)

    def checked(self) -> Self:
        if not 8 <= self.size <= 8192:
            raise BadInput(f"--size {self.size} is not between 8 and 8192")
        if self.encoding not in ENCODINGS:
            raise BadInput(
                f"no encoding is called '{self.encoding}'", "known: " + ", ".join(ENCODINGS)
            )
        if self.bad not in ("stop", "quarantine"):
            raise BadInput(f"--bad is stop or quarantine, found '{self.bad}'")
        if not 0 <= self.hold_out < 0.5:
            raise BadInput(
                "--hold-out is a share for each of validation and reference, below 0.5; found"
                f" {self.hold_out}"
            )
        if self.bucket_step and (
            not self.buckets or self.bucket_step < 0 or self.size % self.bucket_step
        ):
            raise BadInput(
                f"--bucket-step {self.bucket_step} belongs to --buckets and must divide --size"
                f" {self.size}"
            )
        colour_named(self.background)
        return self

    def fitted(self, image: Image, shape: Size) -> RgbPicture:
        """A picture brought to a shape: its centre, or all of it."""
        return pad(image, shape, colour_named(self.background)) if self.pad else fit(image, shape)

    def stated(self) -> dict[str, Any]:
        """As they are written down: what came later and is not asked for is left out, so that equal
        imports stay equal."""
        usual = Options._field_defaults
        return {
            name: value
            for name, value in self._asdict().items()
            if name not in LATER or value != usual[name]
        }

    def decides(self) -> dict[str, Any]:
        """What a resumed import must have alike."""
        return {name: value for name, value in self.stated().items() if name != "bad"}


class OtherSettings(BadInput):
    """An unfinished import that somebody may still want stands where another is asked for."""


class SourceChanged(BadInput):
    """What an unfinished import has done is not what its source holds now."""


def prepare(given: Given, options: Options) -> Prepared:
    """One sample through all checks; a pure function, run on many threads."""
    if given.left:
        return Prepared(given, "dropped", given.left)
    if given.fault:
        return Prepared(given, "quarantined", given.fault)
    try:
        opened = decode(given.data, colour_named(options.background))
    except BadSample as error:
        return Prepared(given, "quarantined", str(error))
    shapes, size = options.shapes(), opened.image.size
    bucket = nearest(size, shapes)
    fitted = options.fitted(opened.image, shapes[bucket])
    split = given.split or (
        _held_out(given, fitted.image, options.hold_out) if options.buckets else ""
    )
    if options.buckets and split != "train":  # what is judged by is square
        bucket = shapes.index((options.size, options.size))
        fitted = options.fitted(opened.image, shapes[bucket])
    if "enlarged" in fitted.changes and not options.enlarge:
        wanted = "{} x {}".format(*shapes[bucket])
        return Prepared(
            given,
            "dropped",
            f"smaller than wanted: {size[0]} x {size[1]}, {wanted} needs --enlarge",
            size=size,
        )
    same = not fitted.changes and not opened.changes and _is_stored(given, opened.image, options)
    data = given.data if same else encode(fitted.image, options.encoding, options.quality)
    return Prepared(
        given, "kept", "", data, size, bucket, tuple(sorted(opened.changes | fitted.changes)), split
    )


def _held_out(given: Given, image: Image, share: float) -> str:
    """The split of a sample, before the others are known: its group's, or its picture's, place
    among all hashes. A square store fills its shares exactly instead, at the end; here pictures are
    cropped by it."""
    mark = (
        f"group {given.group}".encode("utf-8", errors="surrogateescape")
        if given.group
        else image.tobytes()
    )
    place = number_of(mark) / 2**64
    return "validation" if place < share else "reference" if place < 2 * share else "train"


def number_of(mark: bytes) -> int:
    """A number of 64 bits that is drawn by what a picture or its group is."""
    return int.from_bytes(hashlib.blake2b(mark, digest_size=8).digest(), "little")


def _is_stored(given: Given, image: Any, options: Options) -> bool:
    """Bytes that are what the store would hold are kept as they came: a JPEG is not compressed
    twice."""
    head = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG"}.get(options.encoding)
    return head is not None and given.data.startswith(head) and image.mode == "RGB"


def category(reason: str) -> str:
    """A reason without the particulars of its sample, to count by."""
    return reason.split(":")[0].split(" (")[0].split(";")[0].split("'")[0].strip()


class Import:
    """One go at an import into DEST.partial."""

    def __init__(
        self, reader: Reader, partial: Path, options: Options, about: dict[str, Any], say: Say
    ) -> None:
        self.reader, self.partial, self.options, self.say = reader, partial, options, say
        self.about = {"format": FORMAT, "options": options.decides(), **about}
        self.seen: set[bytes] = set()  # of pictures kept, to find repeated ones
        self.parts = 0
        self.taken = 0  # samples taken from the reader: some are still being decoded
        self.tally = Tally("imported", 1.0, say)
        self.counts = {"kept": 0, "dropped": 0, "quarantined": 0}

    def run(self) -> int:
        """Read to the end; returns the number of parts."""
        (self.partial / SHARDS).mkdir(parents=True, exist_ok=True)
        self._same_order()
        stream = self._skip(iter(self.reader))
        self.part = ShardWriter(self.partial, self.parts)
        try:
            for sample in self._prepared(stream):
                self._write(self._once(sample))
                self._progress()
            if self.part.lines:
                self._finish()
        finally:
            self.part.close()
        return self.parts

    def _write(self, sample: Prepared) -> None:
        if sample.outcome == "quarantined" and self.options.bad == "stop":
            raise BadInput(
                shown(f"{sample.given.name}: {sample.reason}"),
                "mend it or take it out and start this command again, or go on without such"
                " samples, counted and named in the ledger: --bad quarantine",
            )
        self.counts[sample.outcome] += 1
        self.part.add(sample)
        if self.part.kept >= self.options.shard:
            self._finish()

    def _same_order(self) -> None:
        path, refused = self.partial / BEGUN.name, self.partial / REFUSED
        if refused.exists() and refused.read_text() == SourceChanged.__name__:
            return self._begin_anew("because its source had changed")
        if not path.exists():
            write_atomic(path, json.dumps(self.about, sort_keys=True))
        elif read_json(path, f"remove {self.partial} and import anew") != json.loads(
            json.dumps(self.about)
        ):
            if refused.exists():
                return self._begin_anew("with other settings")
            raise OtherSettings(
                f"{self.partial} holds an unfinished import with other settings",
                "start it with the same settings, or remove that folder",
            )

    def _begin_anew(self, why: str) -> None:
        """Give up what an import that was refused had done; one that was killed is never given up
        by itself."""
        self.say(f"the import before was refused; {why} it begins anew")
        for left in (
            *self.partial.glob("part-*.jsonl"),
            *(self.partial / SHARDS).iterdir(),
            self.partial / REFUSED,
        ):
            left.unlink()
        write_atomic(self.partial / BEGUN.name, json.dumps(self.about, sort_keys=True))

    def _skip(self, stream: Iterator[Given]) -> Iterator[Given]:
        """Go past what an earlier go has finished, comparing it."""
        for part in parts(self.partial):
            if not is_next(stream, len(part.lines), part.head["input"]):
                raise SourceChanged(
                    f"the source has changed since this import began (part {self.parts})",
                    "start the same command once more to import it anew: what was done is then"
                    " given up",
                )
            self.parts += 1
            for line in part.lines:
                self.counts[line["outcome"]] += 1
                if line["outcome"] == "kept":
                    self.seen.add(bytes.fromhex(line["sha"])[:12])
        if self.parts:
            self.taken = sum(self.counts.values())
            self.tally = Tally("imported", 1.0, self.say)
            self.say(f"going on after {sum(self.counts.values()):,} samples")
        return stream

    def _prepared(self, stream: Iterator[Given]) -> Iterator[Prepared]:
        """In the order of the source, decoded ahead on all cores."""
        return prefetched(
            lambda given: prepare(given, self.options), self._taken(stream), AHEAD, cores()
        )

    def _taken(self, stream: Iterator[Given]) -> Iterator[Given]:
        for given in stream:
            self.taken += 1
            yield _printable(given)

    def _once(self, sample: Prepared) -> Prepared:
        if sample.outcome != "kept":
            return sample
        mark = hashlib.sha256(sample.data).digest()[:12]
        if mark not in self.seen:
            self.seen.add(mark)
            return sample
        if self.options.once:
            return sample._replace(
                outcome="dropped", reason="repeated: the same picture came before", data=b""
            )
        return sample._replace(changes=(*sample.changes, "repeated"))

    def _finish(self) -> None:
        with explained("write", self.part.path, hint="make room and start the same command again"):
            self.part.finish()
        self.parts += 1
        self.part = ShardWriter(self.partial, self.parts)

    def _progress(self) -> None:
        count = sum(self.counts.values())
        share = self.reader.share() * count / self.taken
        bad = f", {self.counts['quarantined']:,} quarantined" if self.counts["quarantined"] else ""
        self.tally.tell(share, f"imported {count:,} samples ({share:.0%}){bad}")


def is_next(stream: Iterator[Given], count: int, written: str) -> bool:
    """Are the next samples of a source those that a part was made of? They are read, and gone from
    the stream."""
    samples = hashlib.sha256()
    for given in map(_printable, islice(stream, count)):
        samples.update(compared_facts(given))
    return samples.hexdigest() == written


def _printable(given: Given) -> Given:
    """A file's name may hold bytes that are no text; its sample's name does not."""
    return given._replace(name=given.name.encode("utf-8", errors="replace").decode())


def alone(partial: Path, mark: BeginMark) -> AbstractContextManager[None]:
    """One command of this kind in a place at a time; the system frees it when the process dies. A
    folder that none of them began is refused."""
    require_begun(partial, mark)
    partial.mkdir(parents=True, exist_ok=True)
    return locked(
        partial / LOCK,
        patience=0,
        busy=f"another process is importing into {partial}",
        kind=BadInput,
    )
