"""The picture store: tar shards with an index, written once, read locally or behind a URL."""

import hashlib
import json
import os
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.readers.pictures import BadSample, Size, miniature, pixels
from fulcrum.data.readers.reader import Given
from fulcrum.files.atomic import folder_atomic, write_atomic
from fulcrum.files.paths import Damaged, at_home, explained, refusal
from fulcrum.files.remote import RemoteCache, file_system, is_remote, user_cache, without_secrets
from fulcrum.files.sealed import (
    SEAL,
    read_block,
    read_json,
    read_sealed,
    sealed,
    sha256_bytes,
    sha256_file,
    sha256_json,
    sha256_text,
    write_block,
)
from fulcrum.spec.errors import BadInput, RunFailed

# --------------------------------------------------------------------------------------------------
# An imported store behind a URL: all but its shards is copied once, a shard is fetched when a
# picture of it is read.
#
# A run reads pictures while they are encoded, shard after shard, and not again: the limit of the
# copies holds, however large the store. Every table and shard has its hash in store.json, and no
# other bytes are accepted.


MOST = 1 << 26  # bytes of a store.json that a server sends
ORIGIN = "remote.json"  # of a copy: where its shards are


def local_folder(path: str | Path) -> Path:
    """The folder of a store: its own, or the copy of one behind a URL."""
    return _copied(str(path).rstrip("/")) if is_remote(str(path)) else at_home(path)


def is_copy(folder: Path) -> bool:
    """Is it one that we made? A folder from elsewhere cannot make us ask a server, whatever lies in
    it."""
    return folder.parent == _stores(user_cache()) and (folder / ORIGIN).is_file()


def _stores(cache: RemoteCache) -> Path:
    return cache.folder.with_name(cache.folder.name + "-stores")


def open_shard(folder: Path, shard: dict[str, Any]) -> IO[bytes]:
    """A shard of a copied store."""
    url = read_json(folder / ORIGIN, f"remove {folder}")["url"]
    return user_cache().open(f"{url}/shards/{shard['name']}", shard["sha256"], shard["bytes"])


@lru_cache(maxsize=16)  # asked once by a process: a store does not change under a run
def _copied(url: str) -> Path:

    file_system(url)
    cache = user_cache()
    try:
        with cache.open(f"{url}/{ABOUT}") as stream:
            written = stream.read(MOST)  # what is longer is cut, and then no JSON
        about = json.loads(written)
        tables = {
            name: {what: about["tables"][name][what] for what in ("sha256", "bytes")}
            for name in TABLES
        }
    except RunFailed as error:
        raise BadInput(
            f"there is no imported data set at {without_secrets(url)}: {error.message}",
            "copy one there: what fulcrum data import writes, as it is",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(
            f"{without_secrets(url)}/{ABOUT} is not what an import writes",
            "copy the data set there again",
        ) from None
    to = _stores(cache) / sha256_text(repr((url, sha256_bytes(written))), 32)
    if not _whole(to, tables):
        _copy(url, cache, written, tables, to)
    return to


def _copy(url: str, cache: RemoteCache, written: bytes, tables: dict[str, Any], to: Path) -> None:

    facts = dict.fromkeys((LEDGER, LINES, CARD), {"sha256": "", "bytes": None}) | tables
    try:
        with folder_atomic(to, flush=False, replace=True) as aside:
            for name, table in facts.items():
                with cache.open(f"{url}/{name}", table["sha256"], table["bytes"]) as stream:
                    (aside / name).write_bytes(stream.read())
            (aside / ABOUT).write_bytes(written)
            (aside / ORIGIN).write_text(json.dumps({"url": url}))
    except OSError as error:
        if not _whole(to, tables):  # another process may have been first
            raise refusal(
                error, f"cannot copy {without_secrets(url)} to {to}", hint="make room there"
            ) from None


def _whole(folder: Path, tables: dict[str, Any]) -> bool:
    try:
        return (folder / ORIGIN).is_file() and all(
            sha256_file(folder / name) == table["sha256"] for name, table in tables.items()
        )
    except OSError:
        return False


# --------------------------------------------------------------------------------------------------
# The store that `fulcrum data import` writes: tar shards with an index, whole or absent, each
# picture with its checksum.
#
#     store.json     sizes, shards, checksums of every table, the content hash; sealed
#     shards/        ordinary WebDataset tars, named by number and content
#     samples.bin    one row per picture (ROW below); captions.bin and names.bin, packed, with the
#                    ends of their rows
#     ledger.json    what became of every sample that was given; ledger.jsonl names those that were
#                    not kept as they were
#     card.json      the data card
#
# The content hash covers pictures, captions, shapes and splits in their order, not where or in
# which shards they lie.


FORMAT = 1
ABOUT, SHARDS, LEDGER, LINES, CARD = (
    "store.json",
    "shards",
    "ledger.json",
    "ledger.jsonl",
    "card.json",
)
SPLITS = ("train", "validation", "reference")
ROW = np.dtype(
    [
        ("offset", "<u8"),
        ("shard", "<u4"),
        ("length", "<u4"),
        ("width", "<u4"),
        ("height", "<u4"),
        ("bucket", "<u2"),
        ("split", "u1"),
        ("changes", "u1"),
        ("sha", "u1", (32,)),
    ]
)
TABLES = ("samples.bin", "captions.bin", "caption_ends.bin", "names.bin", "name_ends.bin")
OPEN, FAR = 64, 2  # shards held open at a time; of fetched ones few, for open ones keep their room
COMMON = 20  # words that the card lists
# fields of store.json
NEEDED = ("size", "buckets", "count", "captions", "splits", "content", "tables", "shards")


def append_texts(
    writers: Mapping[str, IO[bytes]], ends: dict[str, int], captions: Any, name: str
) -> None:
    """Append the captions and the name of a sample to their tables; `ends` are the lengths so
    far."""
    texts = {
        "caption": json.dumps(captions, sort_keys=True, ensure_ascii=False),
        "name": name,
    }
    for kind, text in texts.items():
        data = text.encode("utf-8", errors="surrogateescape")
        ends[kind] = ends.get(kind, 0) + len(data)
        writers[f"{kind}s.bin"].write(data)
        writers[f"{kind}_ends.bin"].write(np.int64(ends[kind]).astype("<i8").tobytes())


def stated_tables(folder: Path) -> dict[str, Any]:
    """Size and checksum of every table, as store.json holds them."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_file(folder / name)}
        for name in TABLES
    }


def stated_splits(splits: NDArray[np.uint8]) -> dict[str, int]:
    return {name: int((splits == number).sum()) for number, name in enumerate(SPLITS)}


def stated_words(words: Counter[str]) -> dict[str, Any]:
    """What the card says of the words of all captions."""
    return {
        "total": words.total(),
        "distinct": len(words),
        "common": dict(words.most_common(COMMON)),
    }


def seal_store(folder: Path, body: dict[str, Any], card: dict[str, Any]) -> None:
    """Write the card and store.json: the last, and what makes a folder a store."""
    write_atomic(folder / CARD, json.dumps(card, indent=1))
    about = sealed({**body, "card": sha256_json(card)}, SEAL)
    write_atomic(folder / ABOUT, json.dumps(about, indent=1))


def texts_hash(tables: dict[str, Any]) -> str:
    """Of all captions and where each ends."""
    return sha256_json([tables[name]["sha256"] for name in ("captions.bin", "caption_ends.bin")])


def content_of(rows: NDArray[Any], captions_sha: str, buckets: Sequence[Sequence[int]]) -> str:
    """What the pictures and their captions are."""
    content = hashlib.sha256(
        json.dumps([FORMAT, captions_sha, [list(one) for one in buckets]]).encode()
    )
    for first in range(0, len(rows), 1 << 16):
        part = rows[first : first + (1 << 16)]
        for name in ("sha", "bucket", "split"):
            content.update(np.ascontiguousarray(part[name]).tobytes())
    return content.hexdigest()


def file_fault(path: Path, written: Mapping[str, Any]) -> str:
    """How a file differs from the size and checksum that store.json holds; empty if it does not."""
    size = path.stat().st_size if path.is_file() else None
    if size != written["bytes"]:
        return (
            f"expected {written['bytes']:,} bytes, found"
            f" {'no file' if size is None else f'{size:,}'}"
        )
    return (
        ""
        if sha256_file(path) == written["sha256"]
        else "a bit has changed: it does not have its checksum"
    )


def require_whole(folder: Path, hint: str) -> None:
    """Every table and every shard of a store is as it was written."""
    about = read_about(folder)
    files = {name: about["tables"][name] for name in TABLES} | {
        f"{SHARDS}/{one['name']}": one for one in about["shards"]
    }
    for name, written in files.items():
        if fault := file_fault(folder / name, written):
            raise Damaged(f"{folder / name}: {fault}", hint)


def caption_names(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the captions that every picture has."""
    return tuple(name for name, count in about["captions"].items() if count == about["count"])


def read_about(folder: Path) -> dict[str, Any]:
    """store.json, if it is as it was written."""
    if not (folder / ABOUT).is_file():
        partial = folder.with_name(folder.name + ".partial")
        hint = (
            "its import was not finished: start the same command again"
            if partial.is_dir()
            else "make one from your pictures: fulcrum data import PICTURES FOLDER"
        )
        raise BadInput(f"{folder} is no imported data set: there is no {ABOUT}", hint)
    about = read_sealed(folder / ABOUT, "import the pictures again", SEAL, kind=Damaged)
    del about[SEAL]
    if about.get("format") != FORMAT:
        raise BadInput(
            f"{folder} has format {about.get('format')}, this version reads {FORMAT}",
            "import the pictures again",
        )
    if missing := [name for name in NEEDED if name not in about]:
        raise Damaged(
            f"{folder / ABOUT} does not state '{missing[0]}'", "do not use it: who made it?"
        )
    if any(Path(shard["name"]).name != shard["name"] for shard in about["shards"]):
        raise Damaged(
            f"{folder / ABOUT} names a shard outside its folder", "do not use it: who made it?"
        )
    return about


class _Open:
    """A shard that is read from many threads: no place in it is remembered; closed when nobody
    holds it."""

    def __init__(self, shard: Path | IO[bytes]) -> None:
        self.number = (
            os.open(shard, os.O_RDONLY | os.O_CLOEXEC)
            if isinstance(shard, Path)
            else os.dup(shard.fileno())
        )

    def read(self, length: int, offset: int) -> bytes:
        return os.pread(self.number, length, offset)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class PictureStore:
    """An opened store. Tables are compared with their checksums here, each picture when it is
    read."""

    def __init__(self, folder: Path, verify: bool = True) -> None:
        self.folder, self.about = Path(folder), read_about(Path(folder))
        self.buckets: list[tuple[int, int]] = [(int(w), int(h)) for w, h in self.about["buckets"]]
        for name in TABLES if verify else ():
            if fault := file_fault(self.folder / name, self.about["tables"][name]):
                raise Damaged(
                    f"{self.folder / name}: {fault}", "copy it again, or import the pictures again"
                )
        self.rows = self._table("samples.bin", ROW)
        self._caption_ends, self._name_ends = (
            self._table(name, np.dtype("<i8")) for name in ("caption_ends.bin", "name_ends.bin")
        )
        self._captions, self._names = (
            self._table(f"{name}.bin", np.dtype("u1")) for name in ("captions", "names")
        )
        self.remote = is_copy(self.folder)
        self._shard = lru_cache(FAR if self.remote else OPEN)(self._open)

    def __len__(self) -> int:
        return len(self.rows)

    def _table(self, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        path = self.folder / name
        try:
            size = path.stat().st_size
        except OSError:
            raise Damaged(
                f"{path} is not there", "copy it again, or import the pictures again"
            ) from None
        return (
            np.memmap(path, dtype=dtype, mode="r").view(np.ndarray) if size else np.zeros(0, dtype)
        )

    def _open(self, number: int) -> Any:
        path = self.folder / SHARDS / self.about["shards"][number]["name"]
        try:
            if self.remote:
                with open_shard(self.folder, self.about["shards"][number]) as stream:
                    return _Open(stream)
            return _Open(path)
        except OSError as error:
            hint = f"copy it again: fulcrum data check {self.folder} names all that is missing"
            raise refusal(
                error, f"the shard {path} cannot be opened", hint=hint, kind=Damaged
            ) from None

    def name(self, row: int) -> str:
        return bytes(self._packed(self._names, self._name_ends, row)).decode(
            "utf-8", errors="replace"
        )

    def captions(self, row: int) -> dict[str, list[str]]:
        captions: dict[str, list[str]] = json.loads(
            bytes(self._packed(self._captions, self._caption_ends, row))
        )
        return captions

    @staticmethod
    def _packed(values: NDArray[Any], ends: NDArray[Any], row: int) -> NDArray[Any]:
        return values[int(ends[row - 1]) if row else 0 : int(ends[row])]

    def data(self, row: int) -> bytes:
        """The stored bytes of a picture; bytes that differ from what was written are never handed
        out."""
        about = self.rows[row]
        length = int(about["length"])
        data: bytes = self._shard(int(about["shard"])).read(length, int(about["offset"]))
        if len(data) != length or hashlib.sha256(data).digest() != about["sha"].tobytes():
            shard = self.folder / SHARDS / self.about["shards"][int(about["shard"])]["name"]
            what = (
                "is cut off"
                if len(data) != length
                else "does not have its checksum: a bit has changed"
            )
            raise Damaged(
                f"{self.name(row)} (sample {row}) in {shard} {what}",
                f"fulcrum data check {self.folder} finds all damage; copy the shard again, or"
                " import anew",
            )
        return data

    def picture(self, row: int, wanted: Size | None = None) -> NDArray[np.uint8]:
        """(3, H, W), resized to the shape that is wanted."""
        return self._decoded(row, lambda data, size: pixels(data, size, wanted))

    def miniature(self, row: int, side: int) -> NDArray[np.uint8]:
        """(side, side, 3): the whole picture in a small square."""
        return self._decoded(row, lambda data, size: miniature(data, size, side))

    def _decoded(
        self, row: int, decode: Callable[[bytes, Size], NDArray[np.uint8]]
    ) -> NDArray[np.uint8]:
        try:
            return decode(self.data(row), self.buckets[int(self.rows[row]["bucket"])])
        except (BadSample, OSError) as error:
            raise Damaged(
                f"{self.name(row)} (sample {row}) of {self.folder}: {error}", "import anew"
            ) from None

    def split(self, name: str) -> NDArray[np.int64]:
        """Rows of a split, ascending."""
        return np.flatnonzero(self.rows["split"] == SPLITS.index(name)).astype(np.int64)


# --------------------------------------------------------------------------------------------------
# One part of an import: a shard being written, and the file that says what became of every sample
# read for it.


class Prepared(NamedTuple):
    """What became of one sample."""

    given: Given
    outcome: str  # kept, dropped, quarantined
    reason: str = ""
    data: bytes = b""
    size: Size = (0, 0)  # as given
    bucket: int = 0
    changes: tuple[str, ...] = ()
    split: str = ""  # decided already; empty: when all samples are known


class Part(NamedTuple):
    """One finished shard and what was read for it."""

    head: dict[str, Any]
    lines: list[dict[str, Any]]


class ShardWriter:
    """A part in the making."""

    def __init__(self, partial: Path, number: int) -> None:
        self.partial, self.number, self.kept = partial, number, 0
        self.lines: list[dict[str, Any]] = []
        self.input, self.sha, self.place = hashlib.sha256(), hashlib.sha256(), 0
        self.path = partial / SHARDS / f"{number:05d}.writing"
        self.stream: Any = None

    def add(self, sample: Prepared) -> None:
        given = sample.given
        self.input.update(compared_facts(given))
        line: dict[str, Any] = {
            "name": given.name,
            "outcome": sample.outcome,
            "reason": sample.reason,
            "size": sample.size,
        }
        if sample.outcome == "kept":
            key, end = f"{self.number:05d}{self.kept:07d}", _suffix(sample.data)
            about = {"name": given.name, "captions": given.captions}
            line |= {
                "offset": self._member(key + end, sample.data),
                "length": len(sample.data),
                "bucket": sample.bucket,
                "sha": sha256_bytes(sample.data),
                "changes": sample.changes,
                "captions": given.captions,
                "group": given.group,
                "split": sample.split or given.split,
            }
            self._member(f"{key}.json", json.dumps(about).encode())
            self.kept += 1
        self.lines.append(line)

    def _member(self, name: str, data: bytes) -> int:
        """A file appended to the tar; returns where its bytes begin."""
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._put(info.tobuf(tarfile.USTAR_FORMAT))
        place = self.place
        self._put(data + b"\0" * (-len(data) % tarfile.BLOCKSIZE))
        return place

    def _put(self, data: bytes) -> None:
        with explained("write", self.path, hint="make room and start the same command again"):
            if self.stream is None:
                self.path.unlink(missing_ok=True)  # left by a killed go, or a link to elsewhere
                self.stream = self.path.open("xb")
            self.stream.write(data)
        self.sha.update(data)
        self.place += len(data)

    def close(self) -> None:
        """What is finished was flushed before; of what is not, a full disk would hide what went
        wrong first."""
        if self.stream is not None:
            with suppress(OSError):
                self.stream.close()

    def finish(self) -> None:
        shard: dict[str, Any] | None = None
        if self.stream is not None:
            self._put(b"\0" * 2 * tarfile.BLOCKSIZE)
            with explained("write", self.path, hint="make room and start the same command again"):
                self.stream.flush()
                os.fsync(self.stream.fileno())
            shard = {
                "name": f"{self.number:05d}-{self.sha.hexdigest()[:16]}.tar",
                "bytes": self.place,
                "sha256": self.sha.hexdigest(),
                "samples": self.kept,
            }
            self.path.rename(self.path.with_name(shard["name"]))
        self.close()
        head = {"shard": shard, "input": self.input.hexdigest()}
        write_block(self.partial / f"part-{self.number:05d}.jsonl", head, self.lines)


def compared_facts(given: Given) -> bytes:
    """What a resumed import compares of a sample it skips."""
    content = sha256_bytes(given.data)
    return json.dumps(
        [given.name, content, given.captions, given.fault, given.left, given.group, given.split]
    ).encode()


def parts(partial: Path) -> Iterator[Part]:
    """Finished parts in order; one that is not as it was written ends them."""
    for number in range(10**5):
        path = partial / f"part-{number:05d}.jsonl"
        if not path.exists():
            return
        block = read_block(path)
        if block is None:
            raise Damaged(
                f"{path} was changed after it was written", f"remove {partial} and import anew"
            )
        yield Part(*block)


def _suffix(data: bytes) -> str:
    return (
        ".jpg"
        if data.startswith(b"\xff\xd8\xff")
        else ".png"
        if data.startswith(b"\x89PNG")
        else ".ppm"
    )
