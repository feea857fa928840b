"""MDS shards, as MosaicML's streaming writes them (index.json beside shard.00000.mds), read without that package.

A shard is a count, the samples' bounds, a description, then the samples: for each the sizes of its columns, then their
bytes, little-endian throughout. A column may hold a pickle, which would run whatever its maker wanted: such columns are
passed over unread.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from fulcrum.data.readers.columns import ColumnReader
from fulcrum.data.readers.reader import SPLITS, Fields, Given, parted, require_once, unusable
from fulcrum.data.readers.untrusted_file import MOST_BYTES, leads_out
from fulcrum.files.paths import read_regular
from fulcrum.files.sealed import read_json
from fulcrum.spec.errors import BadInput

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
    places = [folder, *sorted(one for one in folder.iterdir() if one.is_dir())] if folder.is_dir() else []
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
            self.choose_column(str(shard.path), pictures, shard.names, "none of jpeg, png or bytes", "")
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
                yield unusable(shard.path.name, f"the shard is broken: {error}, after sample {number}; the rest is lost")

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
            names, encodings, sizes = (list(about[f"column_{what}"]) for what in ("names", "encodings", "sizes"))
            packed = about.get("zip_data")
            if not all(isinstance(one, str) for one in (*names, *encodings)) or not all(map(_is_size, sizes)):
                raise ValueError("a column has no name, no encoding or no size")
        except (KeyError, TypeError, ValueError, OverflowError):
            raise BadInput(f"{folder / INDEX} describes a shard that is no MDS shard", WHOLE) from None
        path = folder / str(name)
        if path.name != name or leads_out(folder, path) or not len(names) == len(encodings) == len(sizes):
            raise BadInput(f"{folder / INDEX} names the shard {name!r}, which is not one of its own", "who made it?")
        if not path.is_file():
            hint = f"unpack them first ({about.get('compression')})" if packed else WHOLE
            raise BadInput(f"there is no {path}" + (", only a compressed one is named" if packed else ""), hint)
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
