"""A store made from another: with captions added, or pictures left out. The parent is not touched, and its hash is kept.

Shards are shared with the parent where every picture that is left lies in them unchanged (hard links, or copies on another
disk), or written anew where pictures went: then the tars hold what the tables say.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fulcrum.data.readers.fit_picture import CHANGES
from fulcrum.data.readers.reader import Captions, Given
from fulcrum.data.store.importing import alone, category
from fulcrum.data.store.ledger import Ledger, faults
from fulcrum.data.store.picture_store import (
    ABOUT,
    CARD,
    FORMAT,
    LEDGER,
    LINES,
    SHARDS,
    SPLITS,
    TABLES,
    PictureStore,
    content_of,
    read_about,
    require_whole,
    texts_hash,
)
from fulcrum.data.store.shard_writer import Prepared, ShardWriter, parts
from fulcrum.files.atomic import atomic_file, write_atomic
from fulcrum.files.folders import LOCK, BeginMark
from fulcrum.files.paths import remove
from fulcrum.files.sealed import SEAL, sealed, sha256_file, sha256_json
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.progress import Tally

REQUEST = "request"  # in store.json: hash of what was asked for, to know it again
COMMON = 20  # words that the card lists
Say = Callable[[str], None]


class Decided(NamedTuple):
    """What becomes of one picture of the parent."""

    outcome: str  # kept, dropped, quarantined
    reason: str = ""
    captions: Captions | None = None  # None: as they were


def partial_of(to: Path) -> Path:
    """Where a store is made that then appears at once."""
    return to.with_name(to.name + ".partial")


def made_already(to: Path, request: str, mark: BeginMark, say: Say) -> dict[str, Any] | None:
    """What store.json says, where the very store that is asked for stands; None where nothing stands. Whatever else stands
    there is refused."""
    if not to.exists():
        return None
    known = (to / ABOUT).is_file()
    if not known or read_about(to).get(REQUEST) != request:
        what = "holds a data set already, made of something else or in another way" if known else "exists"
        raise BadInput(f"{to} {what}", "nothing is overwritten: choose another folder")
    require_whole(to, f"remove {to} and start this command again")
    tidy(to, mark)
    say(f"{to} was made already, by the same {mark.work} of the same data set: nothing was written")
    return read_about(to)


def tidy(to: Path, mark: BeginMark) -> None:
    """Without what only the making needed."""
    for left in (LOCK, mark.name):
        (to / left).unlink(missing_ok=True)


@contextmanager
def unfinished(to: Path, mark: BeginMark, worth_keeping: str = "") -> Iterator[Path]:
    """The folder DEST.partial, for one process at a time. What is refused leaves none of it, unless it holds what is
    `worth_keeping`: a folder of that name."""
    partial = partial_of(to)
    with alone(partial, mark):
        try:
            yield partial
        except BadInput:
            if not (worth_keeping and (partial / worth_keeping).is_dir()):
                remove(partial)
            raise


def derive(
    parent: PictureStore,
    partial: Path,
    decided: Callable[[int], Decided],
    about: Callable[[], dict[str, Any]],
    rewrite: bool,
    say: Say,
) -> dict[str, Any]:
    """Write tables, shards, ledger, card and store.json of the new store into `partial`; returns what store.json says.

    `decided` is called with every row in order, then `about` tells how the new store was made: for store.json and the card.
    """
    (partial / SHARDS).mkdir(parents=True, exist_ok=True)
    ledger, named, words = Ledger(), Counter[str](), Counter[str]()
    rows = []
    ends, written = {"captions": 0, "names": 0}, _Shards(parent, partial, rewrite)
    with ExitStack() as stack:
        writers = {name: stack.enter_context(atomic_file(partial / name)) for name in (*TABLES[1:], LINES)}
        for number, choice in _all(parent, decided, say):
            row, name = parent.rows[number], parent.name(number)
            if choice.outcome != "kept":
                ledger.book(choice.outcome, category(choice.reason))
                line = {"name": name, "outcome": choice.outcome, "reason": choice.reason}
                writers[LINES].write(f"{json.dumps(line)}\n".encode())
                continue
            _book_kept(ledger, row, parent.buckets[int(row["bucket"])])
            captions = parent.captions(number) if choice.captions is None else choice.captions
            rows.append(written.placed(number, row.copy(), captions))
            for kind, end, text in (
                ("captions", "caption_ends", json.dumps(captions, sort_keys=True, ensure_ascii=False)),
                ("names", "name_ends", name),
            ):
                data = text.encode("utf-8", errors="surrogateescape")
                ends[kind] += len(data)
                writers[f"{kind}.bin"].write(data)
                writers[f"{end}.bin"].write(np.int64(ends[kind]).astype("<i8").tobytes())
            named.update(list(captions))
            for texts in captions.values():
                words.update(word for text in texts for word in text.lower().split())
    if not rows:
        reasons = ", ".join(f"{count:,} {why}" for why, count in ledger.reasons.items())
        raise BadInput(f"nothing would be left: {reasons}", "loosen what is asked for")
    table = np.stack(rows)
    write_atomic(partial / TABLES[0], table.tobytes())
    return _sealed(parent, partial, table, ledger, (named, words), written.finished(), about())


def _book_kept(ledger: Ledger, row: Any, shape: tuple[int, int]) -> None:
    """Nothing is done to a picture here; what the import did to it then is told apart."""
    changes = tuple(word for bit, word in enumerate(CHANGES) if int(row["changes"]) >> bit & 1)
    ledger.book_again("{}x{}".format(*shape), changes)


def _all(parent: PictureStore, decided: Callable[[int], Decided], say: Say) -> Iterator[tuple[int, Decided]]:
    tally = Tally("written", len(parent), say, "samples")
    for number in range(len(parent)):
        yield number, decided(number)
        tally.tell(number + 1)


class _Shards:
    """Where the pictures of the new store lie: in its parent's shards, or in new ones of the same size."""

    def __init__(self, parent: PictureStore, partial: Path, rewrite: bool) -> None:
        self.parent, self.partial, self.rewrite = parent, partial, rewrite
        self.room = int(parent.about.get("options", {}).get("shard", 4096))
        self.made = 0
        for left in (*partial.glob("part-*.jsonl"), *(partial / SHARDS).iterdir()):
            left.unlink()  # of a go that was killed: written anew
        self.part = ShardWriter(partial, 0)

    def placed(self, number: int, row: Any, captions: Captions) -> Any:
        if not self.rewrite:
            return row
        if self.part.kept >= self.room:
            self._finish()
        data = self.parent.data(number)
        self.part.add(Prepared(Given(self.parent.name(number), b"", captions), "kept", data=data))
        row["offset"], row["shard"] = self.part.lines[-1]["offset"], self.made
        return row

    def _finish(self) -> None:
        self.part.finish()
        self.made += 1
        self.part = ShardWriter(self.partial, self.made)

    def finished(self) -> list[dict[str, Any]]:
        if self.rewrite:
            self._finish() if self.part.lines else self.part.close()
            shards = [part.head["shard"] for part in parts(self.partial)]
            for left in self.partial.glob("part-*.jsonl"):
                left.unlink()
            return shards
        shards = list(self.parent.about["shards"])
        for shard in shards:
            _share(self.parent, shard, self.partial / SHARDS / shard["name"])
        return shards


def _share(parent: PictureStore, shard: dict[str, Any], to: Path) -> None:
    """The same file under a second name; where the disk does not do that, a copy of it."""
    if parent.remote:
        from fulcrum.data.store.remote_store import open_shard

        with open_shard(parent.folder, shard) as source, atomic_file(to) as copy:
            shutil.copyfileobj(source, copy)
        return
    origin = parent.folder / SHARDS / shard["name"]
    try:
        os.link(origin, to, follow_symlinks=False)
    except OSError:
        with origin.open("rb") as source, atomic_file(to) as copy:
            shutil.copyfileobj(source, copy)


def _sealed(
    parent: PictureStore,
    partial: Path,
    rows: Any,
    ledger: Ledger,
    counted: tuple[Counter[str], Counter[str]],
    shards: list[dict[str, Any]],
    about: dict[str, Any],
) -> dict[str, Any]:
    """Ledger, card and store.json: the last, and what makes the folder a store."""
    named, words = counted
    sums = ledger.plain()
    if wrong := faults(sums, len(rows)):
        raise RunFailed(wrong[0], "this should not happen: please report it")
    write_atomic(partial / LEDGER, json.dumps(sums, indent=1))
    tables = {name: {"bytes": (partial / name).stat().st_size, "sha256": sha256_file(partial / name)} for name in TABLES}
    old = parent.about
    body = {
        **{name: old[name] for name in old if name not in ("card", "ledger", "tables", "shards")},
        "format": FORMAT,
        "count": len(rows),
        "captions": dict(sorted(named.items())),
        "splits": {name: int((rows["split"] == n).sum()) for n, name in enumerate(SPLITS)},
        "content": content_of(rows, texts_hash(tables), parent.buckets),
        "tables": tables,
        "shards": shards,
        "ledger": sha256_json(sums),
        "parent": old["content"],
        **about,
    }
    card = {
        "generator": about["generator"],
        **{name: body[name] for name in ("kind", "content", "count", "size", "encoding", "splits", "captions", "parent")},
        "distinct_pictures": int(len(np.unique(rows["sha"].view("V32")))),
        "words": {"total": words.total(), "distinct": len(words), "common": dict(words.most_common(COMMON))},
        "ledger": sums,
        "licence": "not known here: it is that of the parent's pictures",
        **about,
    }
    write_atomic(partial / CARD, json.dumps(card, indent=1))
    write_atomic(partial / ABOUT, json.dumps(sealed({**body, "card": sha256_json(card)}, SEAL), indent=1))
    return read_about(partial)
