"""Read tar archives, WebDataset shards and MDS shards as streams; nothing is extracted."""

import bz2
import glob
import gzip
import io
import json
import lzma
import os
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, Self
from urllib.request import url2pathname

from fulcrum.data.readers.pictures import SUFFIXES
from fulcrum.data.readers.reader import (
    MOST_BYTES,
    SPLITS,
    ColumnReader,
    Fields,
    Given,
    described,
    leads_out,
    parted,
    require_once,
    sidecar,
    too_large,
    unusable,
)
from fulcrum.files.paths import at_home, open_regular, read_regular
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
from fulcrum.files.sealed import read_json
from fulcrum.spec.errors import BadInput

# --------------------------------------------------------------------------------------------------
# Tar archives that nobody vouches for, read as a stream: nothing is extracted, no name is a path,
# all is limited.


TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MOST_MEMBERS = 50_000_000  # of one archive
MOST_UNPACKED = 1 << 40  # bytes of one archive: a terabyte
MOST_RATIO = 100  # unpacked to packed, after the first 64 MB: pictures do not shrink like this
# bytes before a member's own: names and attributes, which a reader must hold in memory
MOST_HEADERS = 1 << 20
_FREE = 1 << 26
_PACKED: dict[bytes, Callable[[Any], Any]] = {  # by their first bytes, whatever the name
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_DAMAGE = (
    *(tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, UnicodeError, ValueError, OverflowError, RecursionError),
)


class Broken(Exception):
    """The archive cannot be read any further."""


class Member(NamedTuple):
    name: str
    size: int
    is_file: bool  # else a link, a device, a pipe
    read: Callable[[], bytes]  # before the next member is asked for

    @property
    def fault(self) -> str:
        """Why it must not be stored under its name; empty if it may."""
        path = PurePosixPath(self.name)
        if not self.is_file:
            return "a link or device, not a file"
        if path.is_absolute() or ".." in path.parts or "\\" in self.name or "\0" in self.name:
            return "its name leads out of the archive"
        return too_large(self.size) if self.size > MOST_BYTES else ""


class _Strict(tarfile.TarInfo):
    """Python's reader takes a damaged header, or a missing end, for the end: what follows would be
    lost without a word."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError):  # type: ignore[attr-defined]  # not public
            raise Broken("cut off: a tar ends with blocks of zeros, this one does not") from None
        except tarfile.InvalidHeaderError as error:  # type: ignore[attr-defined]
            raise Broken(f"damaged ({error})") from None


def require_sound(stream: IO[bytes], packed: int) -> None:
    """Of what is packed: its checksum stands at the end, and what was unpacked before a fault shows
    may be wrong."""
    whole = _Limited(stream, packed)
    if whole.is_packed:
        try:
            while whole.read(1 << 20):
                pass
        except _DAMAGE as error:
            raise Broken(
                f"damaged or cut off ({error}); packed, so that no part of it can be trusted"
            ) from None
    stream.seek(0)


def members(stream: IO[bytes], packed: int | None = None) -> Iterator[Member]:
    """All but folders, as they come. `packed`: size of the archive, where known, to refuse what
    unfolds beyond reason."""
    number = 0
    try:
        source = _Limited(stream, packed)
        source.headers_end = MOST_HEADERS  # the first are read when it is opened
        with tarfile.open(fileobj=source, mode="r|", errorlevel=1, tarinfo=_Strict) as archive:
            while (info := source.headers_of_next(archive)) is not None:
                # where the next begins: the reader would go there step by step
                if archive.offset > source.most:
                    raise Broken(
                        f"damaged or cut off: {info.name} announces {info.size:,} bytes, more than"
                        " can follow"
                    )
                number += 1
                if number > MOST_MEMBERS:
                    raise Broken(f"more than {MOST_MEMBERS:,} members: split it")
                if not info.isdir():
                    is_file = info.isreg() and not info.issparse()
                    yield Member(info.name, info.size, is_file, partial(_read, archive, info))
            while rest := archive.fileobj.read(1 << 16):
                if rest.strip(b"\0"):
                    raise Broken("more follows its end: two archives in one file?")
    except Broken:
        raise
    except _DAMAGE as error:
        raise Broken(f"damaged or cut off ({error})") from None


class _Limited(io.RawIOBase):
    """The bytes of a tar, unpacked if need be; no more of them than can be meant well, headers
    included."""

    def __init__(self, stream: IO[bytes], packed: int | None) -> None:
        head = stream.read(6)
        stream.seek(0)
        unpack = next((unpack for magic, unpack in _PACKED.items() if head.startswith(magic)), None)
        self.is_packed, self.packed, self.seen = unpack is not None, packed, 0
        self.stream: IO[bytes] = unpack(stream) if unpack else stream
        self.most = MOST_UNPACKED
        if packed is not None:
            self.most = min(
                MOST_UNPACKED, _FREE + MOST_RATIO * packed if self.is_packed else packed
            )
        self.headers_end = self.most

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.seen += len(data)
        if self.seen > self.most:
            raise Broken(
                f"{self.packed or 'some'} bytes unfold to more than {self.most:,}: a decompression"
                " bomb?"
            )
        if self.seen > self.headers_end:
            raise Broken(f"a member's headers have more than {MOST_HEADERS:,} bytes: who made it?")
        return data

    def headers_of_next(self, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        """The next member. Its headers are read whole, and what they say is kept: neither may grow
        without end."""
        self.headers_end = archive.offset + MOST_HEADERS
        info = archive.next()
        self.headers_end = self.most
        archive.members.clear()  # type: ignore[attr-defined]  # it would remember all of them
        if (
            sum(len(name) + len(value) for name, value in archive.pax_headers.items())
            > MOST_HEADERS
        ):
            raise Broken(
                f"headers for all members have more than {MOST_HEADERS:,} bytes: who made it?"
            )
        return info


def _read(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    try:
        stream = archive.extractfile(info)
        data = stream.read() if stream else b""
    except _DAMAGE as error:
        raise Broken(f"damaged or cut off ({error}), at {info.name}") from None
    if len(data) != info.size:
        raise Broken(f"cut off inside {info.name}")
    return data


# --------------------------------------------------------------------------------------------------
# WebDataset tar shards, as img2dataset writes them: key.jpg, key.txt, key.json side by side; local,
# or behind URLs.


MOST_PARTS = 100  # files of one sample


def shards_at(path: str) -> list[str] | None:
    """The tar files that a path names, sorted: one file, a folder of them, a pattern, or URLs;
    None: no shards."""
    if path.startswith("file://"):
        path = url2pathname(split_url(path).path)
    if is_remote(path):
        return _remote(path)
    here = at_home(path)
    if here.is_dir():
        return (
            sorted(
                str(one)
                for one in here.iterdir()
                if one.name.lower().endswith(TARS) and one.is_file()
            )
            or None
        )
    if any(mark in path for mark in "*?["):
        matching = sorted(one for one in glob.glob(str(here)) if one.lower().endswith(TARS))
        if not matching:
            raise BadInput(
                f"no tar matches {path}", "give a folder of shards, or a pattern in quotes"
            )
        return matching
    return [str(here)] if here.is_file() and path.lower().endswith(TARS) else None


def _remote(path: str) -> list[str]:
    file_system(path)
    shards = []
    for url in numbered_urls(path):
        whole = file_name(url).lower().endswith(TARS) and "*" not in url
        shards += [url] if whole else list_files(url, TARS)
    if not shards:
        raise BadInput(
            f"no tar at {without_secrets(path)}",
            "give the URL of a folder of shards, or of one shard",
        )
    return shards


class ShardReader:
    """Samples of successive shards. A shard that is damaged ends where the damage is; what came
    before counts."""

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
                    yield from self._samples(
                        name, self.stream, os.fstat(self.stream.fileno()).st_size
                    )
            except (Broken, OSError) as error:
                yield unusable(name, f"the shard is broken: {error}; what follows in it is lost")
        self.before, self.stream = len(self.shards), None

    def _open(self, shard: str) -> IO[bytes]:
        """A remote shard is fetched whole first: a connection that breaks is no broken shard, and a
        shard is no stream of unknown length. What cannot be fetched stops the import whatever the
        policy for bad samples is."""
        if not is_remote(shard):
            # a pipe would keep us waiting for ever
            return open(open_regular(Path(shard), follow=True), "rb")
        self.cache = self.cache or user_cache()
        return self.cache.open(shard)

    def _samples(self, shard: str, stream: IO[bytes], packed: int) -> Iterator[Given]:
        key, seen = "", set[str]()
        require_sound(stream, packed)
        try:
            for key, group in groupby(members(stream, packed), _key):
                parts = _parts(group)
                if parts is None:
                    why = (
                        f"too many files, or too large together: at most {MOST_PARTS} and"
                        f" {MOST_BYTES:,} bytes"
                    )
                    yield unusable(f"{shard}:{key}", why)
                else:
                    yield self._sample(shard, key, parts, seen)
        except Broken as error:  # the sample at the break may lack a part: it is not handed out
            raise Broken(f"{error}" + (f", after {key}" if key else "")) from None

    def _sample(
        self, shard: str, key: str, parts: list[tuple[Member, bytes]], seen: set[str]
    ) -> Given:
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
            return unusable(
                name, "no picture" if not pictures else f"two pictures: {', '.join(pictures)}"
            )
        try:
            about: dict[str, Any] = sidecar(ends.get(".txt"), ends.get(".json"))
        except ValueError as error:
            return unusable(name, str(error))
        return described(name, ends[pictures[0]], about, self.fields)


def _parts(group: Iterator[Member]) -> list[tuple[Member, bytes]] | None:
    """The files of one sample, which are in memory together; None where they are more than can be
    meant well."""
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


# --------------------------------------------------------------------------------------------------
# MDS shards, as MosaicML's streaming writes them (index.json beside shard.00000.mds), read without
# that package.
#
# A shard is a count, the samples' bounds, a description, then the samples: for each the sizes of
# its columns, then their bytes, little-endian throughout. A column may hold a pickle, which would
# run whatever its maker wanted: such columns are passed over unread.


INDEX = "index.json"
MOST_INDEX = 1 << 28  # bytes of it: about a kilobyte for each shard
PICTURES = ("jpeg", "png", "bytes")  # encodings that hold a file's bytes
WHOLE = "copy the data set again: index.json and its shards"


class MdsShard(NamedTuple):
    path: Path
    samples: int
    names: list[str]
    encodings: list[str]
    sizes: list[int | None]
    split: str  # the folder's name, where it is one of a split


def mds_folders(folder: Path) -> list[Path]:
    """Folders of MDS shards: this one, or those of its splits; none: something else."""
    places = (
        [folder, *sorted(one for one in folder.iterdir() if one.is_dir())]
        if folder.is_dir()
        else []
    )
    return [place for place in places if _is_index(place / INDEX)]


def _is_index(path: Path) -> bool:
    try:
        shards = json.loads(read_regular(path, limit=MOST_INDEX)).get("shards")
        return isinstance(shards, list) and bool(shards) and shards[0].get("format") == "mds"
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


class MdsReader(ColumnReader):
    """Samples of successive shards; a shard that is cut off ends where the cut is."""

    kind = "MDS shards"

    def __init__(self, folders: list[Path], fields: Fields) -> None:
        super().__init__(fields)
        self.shards = [shard for folder in folders for shard in _shards(folder)]
        self.total = sum(shard.samples for shard in self.shards)
        for shard in self.shards:
            held = zip(shard.names, shard.encodings, strict=True)
            pictures = [name for name, encoding in held if encoding in PICTURES]
            require_once(str(shard.path), shard.names)
            self.choose_column(
                str(shard.path), pictures, shard.names, "none of jpeg, png or bytes", ""
            )
        self.splits = parted({folder.name: SPLITS.get(folder.name, "") for folder in folders})

    def __iter__(self) -> Iterator[Given]:
        self.done = 0
        for shard in self.shards:
            number = 0
            try:
                with shard.path.open("rb") as stream:
                    for number, data in enumerate(_samples(stream, shard)):
                        self.done += 1
                        yield self._given(shard, number, data)
            except (OSError, ValueError) as error:
                yield unusable(
                    shard.path.name,
                    f"the shard is broken: {error}, after sample {number}; the rest is lost",
                )

    def _given(self, shard: MdsShard, number: int, data: bytes) -> Given:
        name = f"{shard.path.parent.name}/{shard.path.name} sample {number}"
        try:
            row = _columns(shard, data)
        except (ValueError, struct.error, RecursionError):
            return unusable(name, "its columns cannot be told apart")
        return self.sample(name, row.get(self.file), row, self.splits.get(shard.split, ""))


def _shards(folder: Path) -> Iterator[MdsShard]:
    for about in read_json(folder / INDEX, WHOLE, limit=MOST_INDEX)["shards"]:
        try:
            name, samples = about["raw_data"]["basename"], int(about["samples"])
            names, encodings, sizes = (
                list(about[f"column_{what}"]) for what in ("names", "encodings", "sizes")
            )
            packed = about.get("zip_data")
            if not all(isinstance(one, str) for one in (*names, *encodings)) or not all(
                map(_is_size, sizes)
            ):
                raise ValueError("a column has no name, no encoding or no size")
        except (KeyError, TypeError, ValueError, OverflowError):
            raise BadInput(
                f"{folder / INDEX} describes a shard that is no MDS shard", WHOLE
            ) from None
        path = folder / str(name)
        if (
            path.name != name
            or leads_out(folder, path)
            or not len(names) == len(encodings) == len(sizes)
        ):
            raise BadInput(
                f"{folder / INDEX} names the shard {name!r}, which is not one of its own",
                "who made it?",
            )
        if not path.is_file():
            hint = f"unpack them first ({about.get('compression')})" if packed else WHOLE
            raise BadInput(
                f"there is no {path}" + (", only a compressed one is named" if packed else ""), hint
            )
        yield MdsShard(path, samples, names, encodings, sizes, folder.name)


def _is_size(size: Any) -> bool:
    """Of a column: its bytes, or None where every sample says so itself."""
    return size is None or (isinstance(size, int) and 0 <= size <= MOST_BYTES)


def _samples(stream: IO[bytes], shard: MdsShard) -> Iterator[bytes]:
    """Every sample's bytes; a ValueError where the file is not what its index says."""
    length = stream.seek(0, 2)
    stream.seek(0)
    (count,) = struct.unpack("<I", stream.read(4).ljust(4, b"\xff"))
    if count != shard.samples or 8 + 4 * count > length:
        raise ValueError(f"expected {shard.samples:,} samples, its head says {count:,}")
    bounds = struct.unpack(f"<{count + 1}I", stream.read(4 * (count + 1)))
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        if not begin <= end <= length or end - begin > MOST_BYTES:
            raise ValueError(f"cut off: a sample ends at {end:,} of {length:,} bytes")
        stream.seek(begin)
        yield stream.read(end - begin)


def _columns(shard: MdsShard, data: bytes) -> dict[str, Any]:
    """What the columns hold that can be read safely: bytes, text, numbers, JSON."""
    place, sizes = 0, []
    for fixed in shard.sizes:
        if fixed:
            sizes.append(int(fixed))
        else:
            sizes.append(struct.unpack_from("<I", data, place)[0])
            place += 4
    row: dict[str, Any] = {}
    for name, encoding, size in zip(shard.names, shard.encodings, sizes, strict=True):
        value = data[place : place + size]
        if len(value) != size:
            raise ValueError("cut off")
        place += size
        if encoding in PICTURES:
            row[name] = value
        elif encoding == "str":
            row[name] = value.decode("utf-8")
        elif encoding == "int":
            row[name] = int.from_bytes(value, "little", signed=True)
        elif encoding == "json":
            row[name] = json.loads(value)
    return row
