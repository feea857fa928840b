"""Stores made from another store: with new captions, or without unwanted pictures."""

import csv
import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.caption_quality import CaptionRules
from fulcrum.data.readers.pictures import CHANGES
from fulcrum.data.readers.reader import Captions, Given
from fulcrum.data.stores.finish_import import alike, store_looks
from fulcrum.data.stores.importing import Ledger, alone, category
from fulcrum.data.stores.picture_store import (
    ABOUT,
    FORMAT,
    LINES,
    SHARDS,
    SPLITS,
    TABLES,
    PictureStore,
    Prepared,
    ShardWriter,
    append_texts,
    caption_names,
    content_of,
    local_folder,
    open_shard,
    parts,
    read_about,
    require_whole,
    seal_store,
    stated_splits,
    stated_tables,
    stated_words,
    texts_hash,
)
from fulcrum.files.atomic import atomic_file, rename_folder, write_atomic, write_json
from fulcrum.files.folders import LOCK, BeginMark, require_begun
from fulcrum.files.paths import read_regular, refusal, remove
from fulcrum.files.sealed import sha256_json
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.progress import Tally

# --------------------------------------------------------------------------------------------------
# A store made from another: with captions added, or pictures left out. The parent is not touched,
# and its hash is kept.
#
# Shards are shared with the parent where every picture that is left lies in them unchanged (hard
# links, or copies on another disk), or written anew where pictures went: then the tars hold what
# the tables say.


REQUEST = "request"  # in store.json: hash of what was asked for, to know it again
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
    """What store.json says, where the very store that is asked for stands; None where nothing
    stands. Whatever else stands there is refused."""
    if not to.exists():
        return None
    known = (to / ABOUT).is_file()
    if not known or read_about(to).get(REQUEST) != request:
        what = (
            "holds a data set already, made of something else or in another way"
            if known
            else "exists"
        )
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
    """The folder DEST.partial, for one process at a time. What is refused leaves none of it, unless
    it holds what is `worth_keeping`: a folder of that name."""
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
    """Write tables, shards, ledger, card and store.json of the new store into `partial`; returns
    what store.json says.

    `decided` is called with every row in order, then `about` tells how the new store was made: for
    store.json and the card.
    """
    (partial / SHARDS).mkdir(parents=True, exist_ok=True)
    ledger, named, words = Ledger(), Counter[str](), Counter[str]()
    rows = []
    ends = dict[str, int]()
    written = _Shards(parent, partial, rewrite)
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(atomic_file(partial / name)) for name in (*TABLES[1:], LINES)
        }
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
            append_texts(writers, ends, captions, name)
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


def _all(
    parent: PictureStore, decided: Callable[[int], Decided], say: Say
) -> Iterator[tuple[int, Decided]]:
    tally = Tally("written", len(parent), say, "samples")
    for number in range(len(parent)):
        yield number, decided(number)
        tally.tell(number + 1)


class _Shards:
    """Where the pictures of the new store lie: in its parent's shards, or in new ones of the same
    size."""

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
    sums = ledger.write(partial, len(rows))
    tables = stated_tables(partial)
    old = parent.about
    body = {
        **{name: old[name] for name in old if name not in ("card", "ledger", "tables", "shards")},
        "format": FORMAT,
        "count": len(rows),
        "captions": dict(sorted(named.items())),
        "splits": stated_splits(rows["split"]),
        "content": content_of(rows, texts_hash(tables), parent.buckets),
        "tables": tables,
        "shards": shards,
        "ledger": sha256_json(sums),
        "parent": old["content"],
        **about,
    }
    card = {
        "generator": about["generator"],
        **{
            name: body[name]
            for name in (
                "kind",
                "content",
                "count",
                "size",
                "encoding",
                "splits",
                "captions",
                "parent",
            )
        },
        "distinct_pictures": int(len(np.unique(rows["sha"].view("V32")))),
        "words": stated_words(words),
        "ledger": sums,
        "licence": "not known here: it is that of the parent's pictures",
        **about,
    }
    seal_store(partial, body, card)
    return read_about(partial)


# --------------------------------------------------------------------------------------------------
# A table of scores: how well each picture of a store fits its caption, by whatever the user trusts.
#
# # store 1f0c...            the content hash of the store, if the table says it; then it must be
#                            that of this one
# row,score                  row: the number of the picture in the store, from 0;
#                            score: higher fits better
# 0,27.1
# 1,14.9


HEADER, STORE = ["row", "score"], "# store "


def read_scores(path: Path, count: int, content: str) -> NDArray[np.float64]:
    """(count,) the score of each picture of a store, nan where the table has none; nothing doubtful
    is accepted."""
    hint = (
        "a table has the header row,score and a line for each picture: fulcrum data score"
        " writes one"
    )
    try:
        lines = read_regular(path).decode("utf-8").splitlines()
    except OSError as error:
        raise refusal(
            error, f"the scores {path} cannot be read", hint=hint, kind=BadInput
        ) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text", hint) from None
    if lines and lines[0].startswith(STORE):
        named = lines.pop(0).removeprefix(STORE).strip()
        if named != content:
            raise BadInput(
                f"{path} holds scores of another store, {named[:16]}: this one is {content[:16]}",
                "score it anew",
            )
    table = csv.reader(lines)
    if next(table, None) != HEADER:
        raise BadInput(f"{path} does not begin with 'row,score'", hint)
    scores = np.full(count, np.nan)
    for number, line in enumerate(table, 2):
        row, score = _pair(line)
        if row is None or not 0 <= row < count or not math.isfinite(score):
            raise BadInput(
                f"{path}, line {number}: expected a row from 0 to {count - 1} and a number, found"
                f" {line}",
                hint,
            )
        if not np.isnan(scores[row]):
            raise BadInput(f"{path}, line {number}: row {row} is scored twice", hint)
        scores[row] = score
    return scores


def _pair(line: list[str]) -> tuple[int | None, float]:
    try:
        row, score = line
        return int(row), float(score)
    except ValueError:
        return None, math.nan


def write_scores(path: Path, scores: dict[int, float], about: dict[str, Any]) -> None:
    rows = [f"{row},{score:.6g}" for row, score in sorted(scores.items())]
    write_atomic(path, "\n".join([STORE + about["content"], ",".join(HEADER), *rows, ""]).encode())


def require_scored(filler: Any) -> int:
    """How many training pictures a filtered folder has before its filter; refused where one of them
    has no score."""
    store = PictureStore(local_folder(filler.path), verify=False)
    rows = store.split("train")[: filler.count]
    missing = np.flatnonzero(np.isnan(filler.row_scores()[rows]))
    if len(missing):
        name = store.name(int(rows[missing[0]]))
        raise BadInput(
            f"{filler.scores} has no score for {len(missing):,} of {len(rows):,} training pictures,"
            f" such as row {rows[missing[0]]}, {name}",
            "score every picture that is trained on: fulcrum data score writes such a table",
        )
    return len(rows)


# --------------------------------------------------------------------------------------------------
# A store without what its user does not want: too small, alike, badly captioned, ill-fitting. What
# went is in the ledger.
#
# Held-out pictures stay unless they are asked for too: a run on either store is then judged by the
# same pictures.


MOST_BITS = 12  # of 64: beyond that, hashes of pictures that have nothing in common meet


BEGUN = BeginMark("filter.json", "filter", "filter")


@dataclass(frozen=True)
class FilterRules:
    """What stays; none of a bound: not asked."""

    least_side: int | None = None  # of the picture as it was given
    most_aspect: float | None = None  # longer to shorter side, as given
    duplicates: int | None = None  # bits in which perceptual hashes of alike pictures may differ
    caption: str = ""  # the column that the rules and scores are about; empty: not asked
    rules: CaptionRules | None = None
    least_score: float | None = None
    drop: float | None = None  # share of the training pictures that goes, worst scores first
    held_out: bool = False  # held-out pictures are filtered too

    def plain(self) -> dict[str, Any]:
        """What is asked for, as it is written down."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def checked(self, store: PictureStore, scored: bool) -> None:
        if self.duplicates is not None and not 0 <= self.duplicates <= MOST_BITS:
            raise BadInput(
                f"--duplicates is a number of bits from 0 to {MOST_BITS}, found {self.duplicates}"
            )
        if (self.least_score is not None or self.drop is not None) != scored:
            raise BadInput(
                "scores and what to do with them go together",
                "--scores FILE or --score NAME with --least-score X or --drop SHARE",
            )
        if self.drop is not None and not 0 < self.drop < 1:
            raise BadInput(f"--drop is a share between 0 and 1, found {self.drop}")
        names = caption_names(store.about)
        if self.caption and self.caption not in names:
            raise BadInput(
                f"not every picture has a caption '{self.caption}'", nearest(self.caption, names)
            )
        asked = (
            self.least_side,
            self.most_aspect,
            self.duplicates,
            self.rules,
            self.least_score,
            self.drop,
        )
        if all(one is None for one in asked):
            raise BadInput(
                "nothing is asked for: every picture would stay",
                "such as --duplicates 4 or --least-side 256",
            )


def filter_store(
    folder: Path,
    to: Path,
    wanted: FilterRules,
    scores: NDArray[np.float64] | None,
    say: Say,
    about: dict[str, Any],
) -> dict[str, Any]:
    """Write the new store; `scores` (rows,) with nan where there is none. `about`: who scored.
    Returns store.json."""
    if done := filtered_already(folder, to, wanted, scores is not None, say, about):
        return done
    store = PictureStore(local_folder(folder))
    reasons = _reasons(store, wanted, scores, say)
    asked = {"filter": {**wanted.plain(), **about}, REQUEST: _request(store.about, wanted, about)}
    with unfinished(to, BEGUN) as partial:
        write_json(partial / BEGUN.name, asked)
        derive(
            store,
            partial,
            lambda row: Decided("dropped", reasons[row]) if row in reasons else Decided("kept"),
            lambda: {"generator": "fulcrum data filter", **asked},
            True,
            say,
        )
        rename_folder(partial, to)
    tidy(to, BEGUN)
    return read_about(to)


def filtered_already(
    folder: Path, to: Path, wanted: FilterRules, scored: bool, say: Say, about: dict[str, Any]
) -> dict[str, Any] | None:
    """All that can be refused before anybody scores; store.json, where this very filter is done."""
    store = PictureStore(local_folder(folder), verify=False)
    done = made_already(to, _request(store.about, wanted, about), BEGUN, say)
    wanted.checked(store, scored)
    require_begun(partial_of(to), BEGUN)
    return done


def _request(parent: dict[str, Any], wanted: FilterRules, about: dict[str, Any]) -> str:
    return sha256_json({"parent": parent["content"], "filter": {**wanted.plain(), **about}})


def _reasons(
    store: PictureStore, wanted: FilterRules, scores: NDArray[np.float64] | None, say: Say
) -> dict[int, str]:
    """Row -> why it goes: the first rule that it breaks, in the order of what is cheap to know."""
    judged = (
        np.ones(len(store), bool)
        if wanted.held_out
        else store.rows["split"] == SPLITS.index("train")
    )
    reasons: dict[int, str] = {}
    for row in np.flatnonzero(judged).tolist():
        if why := _by_size(store, wanted, row) or _by_caption(store, wanted, row):
            reasons[row] = why
    if scores is not None:
        reasons |= _by_score(
            wanted, scores, [row for row in np.flatnonzero(judged).tolist() if row not in reasons]
        )
    if wanted.duplicates is not None:
        reasons |= _by_likeness(store, wanted.duplicates, judged, reasons, say)
    return reasons


def _by_size(store: PictureStore, wanted: FilterRules, row: int) -> str:
    width, height = (int(store.rows[row][name]) for name in ("width", "height"))
    if wanted.least_side is not None and min(width, height) < wanted.least_side:
        return f"too small: {width} x {height}, a side has at least {wanted.least_side}"
    if wanted.most_aspect is not None and max(width, height) > wanted.most_aspect * min(
        width, height
    ):
        return f"too long and thin: {width} x {height}, at most {wanted.most_aspect:g} to 1"
    return ""


def _by_caption(store: PictureStore, wanted: FilterRules, row: int) -> str:
    """Every wording under the name must pass."""
    if wanted.rules is None:
        return ""
    style = wanted.caption.rsplit("_", 1)[-1]
    for text in store.captions(row)[wanted.caption]:
        if fault := wanted.rules.fault(text, style if style == "tags" else ""):
            kind, _, particulars = fault.partition(":")
            return (
                f"caption {kind}: {wanted.caption},{particulars}"
                if particulars
                else f"caption {kind}"
            )
    return ""


def _by_score(wanted: FilterRules, scores: NDArray[np.float64], rows: list[int]) -> dict[int, str]:
    if missing := [row for row in rows if np.isnan(scores[row])]:
        raise BadInput(
            f"{len(missing):,} pictures have no score, such as row {missing[0]}",
            "score them too, or --held-out less",
        )
    if wanted.least_score is not None:
        return {
            row: f"score: {scores[row]:.4g}, at least {wanted.least_score:g}"
            for row in rows
            if scores[row] < wanted.least_score
        }
    worst = sorted(rows, key=lambda row: (scores[row], row))[
        : round((wanted.drop or 0) * len(rows))
    ]
    return {row: f"score among the worst {wanted.drop:.0%}: {scores[row]:.4g}" for row in worst}


def _by_likeness(
    store: PictureStore, bits: int, judged: NDArray[np.bool_], gone: dict[int, str], say: Say
) -> dict[int, str]:
    """Of pictures that look alike one stays: a held-out one before a training one, then the
    largest, then the first. A training picture that looks like a held-out one goes: it would tell
    the answer."""
    hashes, thumbs = store_looks(store, say)
    area = store.rows["width"].astype(np.int64) * store.rows["height"]
    left = np.array([row in gone for row in range(len(store))])
    rank = np.argsort(np.argsort(_ranked(left, ~judged, area), kind="stable"), kind="stable")
    best = alike(hashes, thumbs, rank, bits)
    goes = (best != np.arange(len(store))) & judged & ~left
    return {
        row: f"alike: it looks like {store.name(int(best[row]))}"
        for row in np.flatnonzero(goes).tolist()
    }


def _ranked(
    left: NDArray[np.bool_], held: NDArray[np.bool_], area: NDArray[np.int64]
) -> NDArray[np.float64]:
    """A number for each picture; the lowest of a group stays."""
    ranked: NDArray[np.float64] = left * 4.0 + ~held * 2.0 - area / (area.max() + 1)
    return ranked
