"""Finish an import: find near duplicates, split, and write tables, ledger and card."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.caption_quality import languages
from fulcrum.data.readers.pictures import ALPHA, CHANGES
from fulcrum.data.readers.reader import Reader
from fulcrum.data.stores.importing import (
    BEGUN,
    REFUSED,
    Import,
    Ledger,
    Options,
    OtherSettings,
    Say,
    alone,
    category,
    cropped_away,
    ledger_lines,
    number_of,
)
from fulcrum.data.stores.picture_store import (
    ABOUT,
    FORMAT,
    LEDGER,
    LINES,
    ROW,
    SHARDS,
    SPLITS,
    TABLES,
    PictureStore,
    append_texts,
    content_of,
    parts,
    read_about,
    require_whole,
    seal_store,
    stated_splits,
    stated_tables,
    stated_words,
    texts_hash,
)
from fulcrum.files.atomic import atomic_file, name_folder, write_atomic
from fulcrum.files.folders import LOCK
from fulcrum.files.paths import explained, remove
from fulcrum.files.sealed import read_json, sha256_json
from fulcrum.spec.errors import BadInput
from fulcrum.spec.progress import Tally
from fulcrum.spec.run import cores

# --------------------------------------------------------------------------------------------------
# Pictures that look alike, found by a perceptual hash: 64 bits of the coarse shape, checked by a
# thumbnail's colours.
#
# Two pictures whose hashes differ in at most k bits agree wholly in one of k + 1 bands of bits
# (pigeonholes): only those of one band's value are compared, so a hundred thousand take seconds.
# Grey shape alone would take a red ball for a blue one.
#
# n pictures, u different hashes


# pixels that are transformed, frequencies that are kept, pixels of the thumbnail
SIDE, KEPT, THUMB = 32, 8, 8
COLOURS = 6.0  # of 255: thumbnails that differ by less on average may show the same
# and by less than this in their most different pixel: a small thing changes few pixels
FARTHEST = 28.0
CHUNK = 512  # pictures that are decoded at a time
ACROSS = 256  # hashes that are compared with all others of their band at a time
COMPARED = 4096  # pairs whose colours are compared at a time
Hashes = NDArray[np.uint64]


def _cosines() -> NDArray[np.float32]:
    """(KEPT + 1, SIDE): rows of the discrete cosine transform."""
    place = np.arange(SIDE) + 0.5
    return np.cos(np.pi / SIDE * np.arange(KEPT + 1)[:, None] * place).astype(np.float32)


COSINES = _cosines()
# (THUMB, SIDE)
MEANS = np.kron(np.eye(THUMB), np.full(SIDE // THUMB, THUMB / SIDE)).astype(np.float32)
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue in grey


def perceptual_hashes(grey: NDArray[np.float32]) -> Hashes:
    """(n, SIDE, SIDE) -> (n,): which of the coarse frequencies lie above their median; the mean is
    not one of them."""
    waves = COSINES @ grey @ COSINES.T  # (n, KEPT + 1, KEPT + 1)
    waves = waves[:, :KEPT, 1:].reshape(len(grey), KEPT * KEPT)
    above = waves > np.median(waves, axis=1, keepdims=True)
    return np.packbits(above, axis=1).view(">u8")[:, 0].astype(np.uint64)


def looks(small: NDArray[np.uint8]) -> tuple[Hashes, NDArray[np.uint8]]:
    """(n, SIDE, SIDE, 3) -> hash (n,) and thumbnail (n, THUMB * THUMB * 3) of each picture."""
    values = small.astype(np.float32)
    # products: a mean over short axes takes ten times as long
    across = MEANS @ values.reshape(len(small), SIDE, SIDE * 3)
    thumbs = across @ np.kron(MEANS.T, np.eye(3, dtype=np.float32))  # (n, THUMB, THUMB * 3)
    return perceptual_hashes(values @ LUMA), thumbs.round().astype(np.uint8).reshape(len(small), -1)


def store_looks(
    store: PictureStore, say: Callable[[str], None]
) -> tuple[Hashes, NDArray[np.uint8]]:
    """Of every picture of a store, decoded on all cores."""
    hashes, thumbs = (
        np.empty(len(store), np.uint64),
        np.empty((len(store), THUMB * THUMB * 3), np.uint8),
    )

    def chunk(first: int) -> None:
        rows = range(first, min(first + CHUNK, len(store)))
        hashes[rows.start : rows.stop], thumbs[rows.start : rows.stop] = looks(
            np.stack([store.miniature(row, SIDE) for row in rows])
        )

    tally = Tally("looked at", len(store), say, "pictures")
    with ThreadPoolExecutor(cores()) as pool:
        for done, _ in enumerate(pool.map(chunk, range(0, len(store), CHUNK)), 1):
            tally.tell(min(done * CHUNK, len(store)))
    return hashes, thumbs


def alike(
    hashes: Hashes, thumbs: NDArray[np.uint8], rank: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """(n,) for each picture the one that stays and that it looks like: itself, where it stays.

    In the order of their rank pictures stay unless they look like one that stays already: nothing
    goes because of a chain of pictures in between.
    """
    known, group, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    starts, beside = _neighbours(known, _colour_bounds(thumbs, group, counts), most)
    crowded = (counts > 1) | (np.diff(starts) > 0)
    owner, stays = np.arange(len(hashes)), dict[int, list[int]]()
    order = np.argsort(rank, kind="stable")
    for number in order[crowded[group[order]]].tolist():
        mine = int(group[number])
        near = (mine, *beside[starts[mine] : starts[mine + 1]].tolist())
        others = [one for hash_number in near for one in stays.get(hash_number, ())]
        fits = _colours_fit(thumbs[number], thumbs[others]) if others else np.zeros(0, bool)
        if fits.any():
            owner[number] = others[int(fits.argmax())]
        else:
            stays.setdefault(mine, []).append(number)
    return owner


def _colour_bounds(
    thumbs: NDArray[np.uint8], group: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """(u, d) the least and the most that the thumbnails of each hash have of every colour."""
    by_hash, starts = thumbs[np.argsort(group, kind="stable")], np.r_[0, np.cumsum(counts)[:-1]]
    least, most = (
        extreme.reduceat(by_hash, starts, axis=0).astype(np.int16)
        for extreme in (np.minimum, np.maximum)
    )
    return least, most


def _neighbours(
    known: Hashes, bounds: tuple[NDArray[np.int16], NDArray[np.int16]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The hashes beside the i-th, ascending: beside[starts[i] : starts[i + 1]]; at most so many
    bits away, and of colours that may fit: coarse shapes of unlike pictures meet by the million,
    and nobody needs those."""
    one, two = np.concatenate([np.zeros((2, 0), np.int64), *_near(known, bounds, most)], axis=1)
    from_, to = np.r_[one, two], np.r_[two, one]
    order = np.lexsort((to, from_))
    return np.searchsorted(from_[order], np.arange(len(known) + 1)), to[order]


def _near(
    known: Hashes, bounds: tuple[NDArray[np.int16], NDArray[np.int16]], most: int
) -> Iterator[NDArray[np.int64]]:
    """Pairs (2, p) of numbers into `known`, each pair once: in the first band in which it
    agrees."""
    least, greatest = bounds
    edges = np.linspace(0, 64, most + 2).astype(int).tolist() if most else []
    masks = [np.uint64(((1 << (high - low)) - 1) << low) for low, high in pairwise(edges)]
    for number, mask in enumerate(masks):
        band = known & mask
        order = np.argsort(band, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(band[order]) > 0, True])
        for begin, end in zip(starts[:-1], starts[1:], strict=True):
            rows = order[begin:end]
            for part in range(0, len(rows) - 1, ACROSS):
                ahead, all_left = rows[part : part + ACROSS], rows[part:]
                apart = known[ahead][:, None] ^ known[all_left][None, :]
                one, two = np.nonzero(np.triu(np.bitwise_count(apart) <= most, k=1))
                differ = apart[one, two]
                new = (
                    np.all([differ & earlier != 0 for earlier in masks[:number]], axis=0)
                    if number
                    else slice(None)
                )
                one, two = ahead[one[new]], all_left[two[new]]
                for first in range(0, len(one), COMPARED):
                    a, b = one[first : first + COMPARED], two[first : first + COMPARED]
                    gap = np.maximum(least[a] - greatest[b], least[b] - greatest[a]).clip(min=0)
                    yield np.stack([a, b])[:, _close(gap)]


def _colours_fit(one: NDArray[np.uint8], others: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(k,) which of the other thumbnails (k, d) are close on the whole and nowhere far away."""
    return _close(np.abs(others.astype(np.int16) - one))


def _close(apart: NDArray[np.int16]) -> NDArray[np.bool_]:
    fits: NDArray[np.bool_] = (apart.mean(1) < COLOURS) & (apart.max(1) < FARTHEST)
    return fits


# --------------------------------------------------------------------------------------------------
# The end of an import: its parts become the tables, splits, ledger and card of a store, which then
# appears at once.


FIRST_PART = "part-00000.jsonl"
SMALLER = "smaller than wanted"  # the reason that --enlarge answers
FEWEST_TO_JUDGE = 64  # reference pictures that a distance needs


def run_import(
    reader: Reader, to: Path, options: Options, say: Say, about: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Import everything into the folder `to`; the same call again goes on. Returns what store.json
    says.

    `about` is what the reader knows of its source, such as a licence: it stands on the data set's
    card.
    """
    options.checked()
    known = {"kind": reader.kind, **(about or {})}
    if to.exists():
        return _done_already(to, options, known, say)
    partial = to.with_name(to.name + ".partial")
    with alone(partial, BEGUN):
        if to.exists():  # another process has finished it since we looked
            remove(partial)
            return _done_already(to, options, known, say)
        try:
            Import(reader, partial, options, known, say).run()
            with explained("finish", to, hint="make room and start the same command again"):
                complete(partial, options, known)
                name_folder(partial, to)
        except OtherSettings:
            raise
        except BadInput as error:
            _after_refusal(partial, error)
            raise
    return _tidied(to)


def _done_already(to: Path, options: Options, about: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Tidy up a store that was made with the settings that are asked for, if its import was killed
    at that. Refuse any other."""
    if not (to / ABOUT).is_file():
        raise BadInput(f"{to} exists", "choose a new folder: nothing is overwritten")
    other = _other_settings(read_about(to), options, about)
    if other:
        raise BadInput(
            f"{to} holds an imported data set already, with another {' and '.join(other)}",
            "nothing is overwritten: choose another folder",
        )
    require_whole(to, f"remove {to} and import the pictures again")
    say(
        f"{to} was imported already, with the same settings: nothing was written, and the source"
        " was not read again (for other pictures choose another folder)"
    )
    return _tidied(to)


def _other_settings(
    written: Mapping[str, Any], options: Options, about: Mapping[str, Any]
) -> list[str]:
    """Name the settings that a store was not made with."""
    former = {name: value for name, value in written.get("options", {}).items() if name != "bad"}
    former |= {name: written.get(name) for name in about}
    wanted = json.loads(json.dumps({**options.decides(), **about}))
    return sorted(name for name in {*former, *wanted} if former.get(name) != wanted.get(name))


def _tidied(to: Path) -> dict[str, Any]:
    """The finished store without what only the import needed."""
    for left in [
        *to.glob("*.writing"),
        to / LOCK,
        to / BEGUN.name,
        to / REFUSED,
        *to.glob("part-*.jsonl"),
    ]:
        left.unlink(missing_ok=True)
    return read_about(to)


class NothingKept(BadInput):
    """An import that came to its end with no picture."""


def _after_refusal(partial: Path, refusal: BadInput) -> None:
    """What a refused import leaves must not stand in the way of the next: nothing, or what the same
    command goes on from and any other may give up."""
    if isinstance(refusal, NothingKept) or not (partial / FIRST_PART).exists():
        remove(partial)
    else:
        write_atomic(partial / REFUSED, type(refusal).__name__)


def import_summary(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What an import wrote: facts for scripts, lines for people."""
    about, ledger = read_about(folder), read_json(folder / LEDGER, "import the pictures again")
    facts = {name: about[name] for name in ("count", "splits", "captions", "content")}
    behind = about.get("options", {}).get("background", "white")
    lines = [
        *(line.replace(ALPHA, f"alpha over {behind}") for line in ledger_lines(ledger)),
        "split " + ", ".join(f"{name} {count:,}" for name, count in about["splits"].items()),
        f"captions {', '.join(about['captions'])}; content {about['content'][:16]}",
    ]
    lines += _notes(folder, about, ledger)
    held = about["splits"].get("reference", 0)
    if held < FEWEST_TO_JUDGE:
        lines.append(
            f"note: {held} reference pictures are too few to measure a run or for a study, which"
            f" need {FEWEST_TO_JUDGE}: import more pictures, or with a larger --hold-out"
        )
    return {"folder": str(folder), **facts, "ledger": ledger}, lines


def _notes(folder: Path, about: dict[str, Any], ledger: dict[str, Any]) -> list[str]:
    """What the person did not ask about and should know."""
    told, lines = about.get("languages", {}), []
    if told.get("in_several"):
        lines.append(
            f"note: {told['in_several']:,} captions hold several languages, such as that of"
            f" {told['such_as'][0]}: each was read as one caption; keep one language in a file, or"
            " give them names (a .json with captions by name)"
        )
    common = {
        name: count
        for name, count in told.get("captions", {}).items()
        if count >= 0.02 * about["count"]
    }
    if len(common) > 1:
        shares = ", ".join(f"{name} {count:,}" for name, count in common.items())
        one = shlex.join(
            [
                "fulcrum",
                "data",
                "filter",
                str(folder),
                f"{folder}_en",
                "--language",
                "en",
                "--held-out",
            ]
        )
        lines.append(f"note: captions are in several languages ({shares}); to keep one: {one}")
    if ledger["reasons"].get(SMALLER):
        lines.append(
            f"note: {ledger['reasons'][SMALLER]:,} pictures were dropped as too small: --enlarge"
            " keeps them"
        )
    return lines


def complete(partial: Path, options: Options, about: dict[str, Any]) -> None:
    """Tables, ledger, card and store.json of a finished import."""
    shapes = options.shapes()
    ledger, named, words = Ledger(), Counter[str](), Counter[str]()
    # languages of captions; samples with a caption in several
    tongues, mixed = Counter[str](), list[str]()
    shards: list[dict[str, Any]] = []
    # of each kept sample: its group as a number, the split it asks for
    keys, asked = list[int](), list[str]()
    ends = dict[str, int]()
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(atomic_file(partial / name)) for name in (*TABLES, LINES)
        }
        for part in parts(partial):
            if part.head["shard"] is not None:
                shards.append(part.head["shard"])
            for line in part.lines:
                bucket = "{}x{}".format(*shapes[line.get("bucket", 0)])
                changes = tuple(line.get("changes", ()))
                ledger.book(
                    line["outcome"], category(line["reason"]), changes, bucket, _cut(line, shapes)
                )
                if line["outcome"] != "kept" or "repeated" in changes:
                    left_out = {name: line[name] for name in ("name", "outcome", "reason")}
                    entry = json.dumps(
                        left_out | ({"repeated": True} if "repeated" in changes else {})
                    )
                    writers[LINES].write(f"{entry}\n".encode())
                if line["outcome"] == "kept":
                    _append(writers, ends, line, len(shards) - 1)
                    keys.append(_group(line))
                    asked.append(line["split"])
                    named.update(list(line["captions"]))
                    for texts in line["captions"].values():
                        words.update(word for text in texts for word in text.lower().split())
                        for several in map(languages, texts):
                            tongues.update(several)
                            mixed += [line["name"]] if len(several) > 1 else []
    if not keys:
        raise NothingKept(
            "nothing was kept: "
            + ", ".join(f"{count:,} {why}" for why, count in ledger.reasons.items()),
            _way_out(ledger.reasons, options),
        )
    for path in (partial / SHARDS).iterdir():  # left by an earlier go that was killed
        if path.name not in {shard["name"] for shard in shards}:
            path.unlink()
    splits = _splits(np.array(keys, np.uint64), asked, options.hold_out)
    rows = np.memmap(partial / "samples.bin", dtype=ROW, mode="r+")
    rows["split"] = splits
    rows.flush()
    written = ledger.write(partial, len(rows))
    tables = stated_tables(partial)
    body = {
        "format": FORMAT,
        "size": options.size,
        "buckets": [list(one) for one in shapes],
        "encoding": options.encoding,
        "count": len(rows),
        "captions": dict(sorted(named.items())),
        "options": options.stated(),
        "splits": stated_splits(splits),
        "content": content_of(rows, texts_hash(tables), shapes),
        "tables": tables,
        "shards": shards,
        "ledger": sha256_json(written),
        **_several_languages(tongues, mixed),
        **about,
    }
    seal_store(partial, body, _card(about, body, written, rows, words))


def _several_languages(tongues: Counter[str], mixed: list[str]) -> dict[str, Any]:
    """Which languages captions are in, where there are several; nothing is said of what is as it
    should be."""
    if len(tongues) < 2:
        return {}
    return {
        "languages": {
            "captions": dict(tongues.most_common()),
            "in_several": len(mixed),
            "such_as": mixed[:3],
        }
    }


def _way_out(reasons: Mapping[str, int], options: Options) -> str:
    """What to do about the commonest reason for which pictures were left out."""
    if max(reasons, key=lambda why: reasons[why], default="") == SMALLER:
        return f"enlarge them: --enlarge; or ask for smaller ones than --size {options.size}"
    return (
        "nothing was left behind: mend the source, or see what --bad quarantine and other"
        " options do"
    )


def _append(
    writers: Mapping[str, IO[bytes]], ends: dict[str, int], line: dict[str, Any], shard: int
) -> None:
    row = np.zeros((), ROW)
    row["offset"], row["shard"], row["length"], row["bucket"] = (
        line["offset"],
        shard,
        line["length"],
        line["bucket"],
    )
    row["width"], row["height"] = line["size"]
    row["changes"] = sum(1 << CHANGES.index(change) for change in line["changes"])
    row["sha"] = np.frombuffer(bytes.fromhex(line["sha"]), np.uint8)
    writers["samples.bin"].write(row.tobytes())
    append_texts(writers, ends, line["captions"], line["name"])


def _group(line: dict[str, Any]) -> int:
    """Samples with one number are never parted: a named group, or all copies of one picture."""
    text = f"group {line['group']}" if line["group"] else f"picture {line['sha']}"
    return number_of(text.encode("utf-8", errors="surrogateescape"))


def _splits(groups: NDArray[np.uint64], asked: list[str], hold_out: float) -> NDArray[np.uint8]:
    """(n,) number of each sample's split: as the samples ask; where none asks, whole groups in the
    order of their hashes until a share is full, so the split depends on what the pictures are and
    on nothing else."""
    if any(asked):
        return np.array([SPLITS.index(one or "train") for one in asked], np.uint8)
    # sorted: in the order of hashes
    _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts  # samples in the groups before
    wanted = max(1, round(hold_out * len(groups))) if hold_out else 0
    # the first group that the first share does not need
    second = int(np.searchsorted(before, wanted))
    third = (
        int(np.searchsorted(before, before[second] + wanted)) if second < len(before) else second
    )
    last = len(counts) - 1  # some group is left to train on
    split = np.zeros(len(counts), np.uint8)
    split[: min(second, last)] = 1
    split[min(second, last) : min(third, last)] = 2
    return split[inverse]


def _cut(line: dict[str, Any], shapes: Any) -> float:
    """Share of a picture's pixels that the crop took away."""
    if line["outcome"] != "kept":
        return 0.0
    return (
        0.0 if "padded" in line["changes"] else cropped_away(line["size"], shapes[line["bucket"]])
    )


def _card(
    about: dict[str, Any],
    body: dict[str, Any],
    ledger: dict[str, Any],
    rows: NDArray[Any],
    words: Counter[str],
) -> dict[str, Any]:
    sides = np.minimum(rows["width"], rows["height"])
    return {
        "generator": "fulcrum data import",
        "kind": body["kind"],
        "content": body["content"],
        "count": body["count"],
        "size": body["size"],
        "encoding": body["encoding"],
        "splits": body["splits"],
        "captions": body["captions"],
        "given_shorter_side": {
            "least": int(sides.min()),
            "median": float(np.median(sides)),
            "most": int(sides.max()),
        },
        "distinct_pictures": int(len(np.unique(rows["sha"].view("V32")))),
        "words": stated_words(words),
        "bytes": sum(shard["bytes"] for shard in body["shards"]),
        "shards": len(body["shards"]),
        "ledger": ledger,
        "licence": "not known to the import: it is that of your pictures",
        **({"languages": body["languages"]} if "languages" in body else {}),
        **about,
    }
