"""WebDataset tar shards, as img2dataset writes them: key.jpg, key.txt, key.json side by side; local, or behind URLs."""

import glob
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Any
from urllib.request import url2pathname

from fulcrum.data.readers.reader import Fields, Given, described, sidecar, unusable
from fulcrum.data.readers.untrusted_archive import TARS, Broken, Member, members, require_sound
from fulcrum.data.readers.untrusted_file import MOST_BYTES
from fulcrum.data.readers.untrusted_image import SUFFIXES
from fulcrum.files.paths import at_home, open_regular
from fulcrum.files.remote import (
    RemoteCache,
    file_name,
    file_system,
    is_remote,
    list_files,
    numbered_urls,
    split_url,
    user_cache,
    without_secrets,
)
from fulcrum.spec.errors import BadInput

MOST_PARTS = 100  # files of one sample


def shards_at(path: str) -> list[str] | None:
    """The tar files that a path names, sorted: one file, a folder of them, a pattern, or URLs; None: no shards."""
    if path.startswith("file://"):
        path = url2pathname(split_url(path).path)
    if is_remote(path):
        return _remote(path)
    here = at_home(path)
    if here.is_dir():
        return sorted(str(one) for one in here.iterdir() if one.name.lower().endswith(TARS) and one.is_file()) or None
    if any(mark in path for mark in "*?["):
        matching = sorted(one for one in glob.glob(str(here)) if one.lower().endswith(TARS))
        if not matching:
            raise BadInput(f"no tar matches {path}", "give a folder of shards, or a pattern in quotes")
        return matching
    return [str(here)] if here.is_file() and path.lower().endswith(TARS) else None


def _remote(path: str) -> list[str]:
    file_system(path)
    shards = []
    for url in numbered_urls(path):
        whole = file_name(url).lower().endswith(TARS) and "*" not in url
        shards += [url] if whole else list_files(url, TARS)
    if not shards:
        raise BadInput(f"no tar at {without_secrets(path)}", "give the URL of a folder of shards, or of one shard")
    return shards


class ShardReader:
    """Samples of successive shards. A shard that is damaged ends where the damage is; what came before counts."""

    kind = "tar shards"

    def __init__(self, shards: list[str], fields: Fields, cache: RemoteCache | None = None) -> None:
        self.shards, self.fields, self.cache = shards, fields, cache
        self.sizes = [os.path.getsize(shard) if not is_remote(shard) else 0 for shard in shards]
        self.before = 0
        self.stream: Any = None

    def share(self) -> float:
        """By bytes of local shards, else by shards."""
        if not all(self.sizes):
            return self.before / len(self.shards)
        try:
            inside = self.stream.tell() if self.stream else 0
        except ValueError:
            inside = 0
        return (sum(self.sizes[: self.before]) + inside) / sum(self.sizes)

    def __iter__(self) -> Iterator[Given]:
        for number, shard in enumerate(self.shards):
            self.before = number
            name = file_name(shard) if is_remote(shard) else shard.rsplit("/", 1)[-1]
            try:
                with self._open(shard) as self.stream:
                    yield from self._samples(name, self.stream, os.fstat(self.stream.fileno()).st_size)
            except (Broken, OSError) as error:
                yield unusable(name, f"the shard is broken: {error}; what follows in it is lost")
        self.before, self.stream = len(self.shards), None

    def _open(self, shard: str) -> IO[bytes]:
        """A remote shard is fetched whole first: a connection that breaks is no broken shard, and a shard is no stream of
        unknown length. What cannot be fetched stops the import whatever the policy for bad samples is."""
        if not is_remote(shard):
            return open(open_regular(Path(shard), follow=True), "rb")  # a pipe would keep us waiting for ever
        self.cache = self.cache or user_cache()
        return self.cache.open(shard)

    def _samples(self, shard: str, stream: IO[bytes], packed: int) -> Iterator[Given]:
        key, seen = "", set[str]()
        require_sound(stream, packed)
        try:
            for key, group in groupby(members(stream, packed), _key):
                parts = _parts(group)
                if parts is None:
                    why = f"too many files, or too large together: at most {MOST_PARTS} and {MOST_BYTES:,} bytes"
                    yield unusable(f"{shard}:{key}", why)
                else:
                    yield self._sample(shard, key, parts, seen)
        except Broken as error:  # the sample at the break may lack a part: it is not handed out
            raise Broken(f"{error}" + (f", after {key}" if key else "")) from None

    def _sample(self, shard: str, key: str, parts: list[tuple[Member, bytes]], seen: set[str]) -> Given:
        name = f"{shard}:{key}"
        bad = next((part for part, _ in parts if part.fault), None)
        if bad is not None:
            return unusable(name, f"{bad.fault} ({bad.name})")
        if key in seen:
            return unusable(name, "its key comes twice, apart from each other")
        seen.add(key)
        ends = {}
        for part, data in parts:
            end = os.path.splitext(part.name)[1].lower()
            if end in ends:
                return unusable(name, f"two files end in {end}")
            ends[end] = data
        pictures = [end for end in ends if end in SUFFIXES]
        if len(pictures) != 1:
            return unusable(name, "no picture" if not pictures else f"two pictures: {', '.join(pictures)}")
        try:
            about: dict[str, Any] = sidecar(ends.get(".txt"), ends.get(".json"))
        except ValueError as error:
            return unusable(name, str(error))
        return described(name, ends[pictures[0]], about, self.fields)


def _parts(group: Iterator[Member]) -> list[tuple[Member, bytes]] | None:
    """The files of one sample, which are in memory together; None where they are more than can be meant well."""
    parts, room = list[tuple[Member, bytes]](), MOST_BYTES
    for member in group:
        room -= 0 if member.fault else member.size
        if room < 0 or len(parts) == MOST_PARTS:
            return None
        parts.append((member, b"" if member.fault else member.read()))
    return parts


def _key(member: Member) -> str:
    """What the files of one sample have in common: all before the first dot of the name."""
    folder, slash, file = member.name.rpartition("/")
    return folder + slash + file.split(".", 1)[0]
