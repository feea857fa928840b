"""WebDataset tar shards, as img2dataset writes them: key.jpg, key.txt, key.json side by side; local, or behind URLs."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.request import url2pathname

from fulcrum.data.readers.reader import Fields, Given, described, sidecar
from fulcrum.data.readers.untrusted_archive import TARS, Broken, Member, members, require_sound
from fulcrum.data.readers.untrusted_image import SUFFIXES
from fulcrum.files.remote import file_name, file_system, is_remote, list_files, numbered_urls, split_url, without_secrets
from fulcrum.files.remote_cache import RemoteCache, user_cache
from fulcrum.spec.errors import BadInput


def shards_at(path: str) -> list[str] | None:
    """The tar files that a path names, sorted: one file, a folder of them, a pattern, or URLs; None: no shards."""
    if path.startswith("file://"):
        path = url2pathname(split_url(path).path)
    if is_remote(path):
        return _remote(path)
    here = Path(path).expanduser()
    if here.is_dir():
        found = sorted(str(one) for one in here.iterdir() if one.name.lower().endswith(TARS) and one.is_file())
        return found or None
    if any(mark in path for mark in "*?["):
        found = sorted(one for one in glob.glob(str(here)) if one.lower().endswith(TARS))
        if not found:
            raise BadInput(f"no tar matches {path}", "give a folder of shards, or a pattern in quotes")
        return found
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
                yield Given(name, b"", {}, fault=f"the shard is broken: {error}; what follows in it is lost")
        self.before, self.stream = len(self.shards), None

    def _open(self, shard: str) -> IO[bytes]:
        """A remote shard is fetched whole first: a connection that breaks is no broken shard, and a shard is no stream of
        unknown length. What cannot be fetched stops the import whatever the policy for bad samples is."""
        if not is_remote(shard):
            return open(shard, "rb")
        self.cache = self.cache or user_cache()
        return self.cache.open(shard)

    def _samples(self, shard: str, stream: IO[bytes], packed: int) -> Iterator[Given]:
        key, parts, seen = "", list[tuple[Member, bytes]](), set[str]()
        require_sound(stream, packed)
        broken: Broken | None = None
        try:
            for member in members(stream, packed):
                folder, _, file = member.name.rpartition("/")
                mine = f"{folder}/{file.split('.', 1)[0]}" if folder else file.split(".", 1)[0]
                if parts and mine != key:
                    yield self._sample(shard, key, parts, seen)
                    parts = []
                key = mine
                parts.append((member, b"" if member.fault else member.read()))
        except Broken as error:
            broken = error
        if parts and broken is None:
            yield self._sample(shard, key, parts, seen)
        if broken is not None:  # the sample at the break may lack a part
            raise Broken(f"{broken}" + (f", after {key}" if key else ""))

    def _sample(self, shard: str, key: str, parts: list[tuple[Member, bytes]], seen: set[str]) -> Given:
        name = f"{shard}:{key}"
        bad = next((part for part, _ in parts if part.fault), None)
        if bad is not None:
            return Given(name, b"", {}, fault=f"{bad.fault} ({bad.name})")
        if key in seen:
            return Given(name, b"", {}, fault="its key comes twice, apart from each other")
        seen.add(key)
        ends = {}
        for part, data in parts:
            end = os.path.splitext(part.name)[1].lower()
            if end in ends:
                return Given(name, b"", {}, fault=f"two files end in {end}")
            ends[end] = data
        pictures = [end for end in ends if end in SUFFIXES]
        if len(pictures) != 1:
            return Given(name, b"", {}, fault="no picture" if not pictures else f"two pictures: {', '.join(pictures)}")
        try:
            about: dict[str, Any] = sidecar(ends.get(".txt"), ends.get(".json"))
        except ValueError as error:
            return Given(name, b"", {}, fault=str(error))
        return described(name, ends[pictures[0]], about, self.fields)
