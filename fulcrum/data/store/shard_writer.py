"""One part of an import: a shard being written, and the file that says what became of every sample read for it."""

import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.data.readers.fit_picture import Size
from fulcrum.data.readers.reader import Given
from fulcrum.data.store.picture_store import SHARDS
from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import Damaged, explained
from fulcrum.files.sealed import parse_line, sha256_bytes


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
        """What is finished was flushed before; of what is not, a full disk would hide what went wrong first."""
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
        body = "".join(json.dumps(line) + "\n" for line in self.lines).encode()
        head = {"shard": shard, "input": self.input.hexdigest(), "lines": len(self.lines), "sha256": sha256_bytes(body)}
        write_atomic(self.partial / f"part-{self.number:05d}.jsonl", json.dumps(head).encode() + b"\n" + body)


def compared_facts(given: Given) -> bytes:
    """What a resumed import compares of a sample it skips."""
    content = sha256_bytes(given.data)
    return json.dumps([given.name, content, given.captions, given.fault, given.left, given.group, given.split]).encode()


def parts(partial: Path) -> Iterator[Part]:
    """Finished parts in order; one that is not as it was written ends them."""
    for number in range(10**5):
        path = partial / f"part-{number:05d}.jsonl"
        if not path.exists():
            return
        first, _, body = path.read_bytes().partition(b"\n")
        head = parse_line(first).value or {}
        if sha256_bytes(body) != head.get("sha256"):
            raise Damaged(f"{path} was changed after it was written", f"remove {partial} and import anew")
        yield Part(head, [json.loads(line) for line in body.splitlines()])


def _suffix(data: bytes) -> str:
    return ".jpg" if data.startswith(b"\xff\xd8\xff") else ".png" if data.startswith(b"\x89PNG") else ".ppm"
