"""Sets of pictures on disk, in a fixed order: a folder, tar shards, or an array in npz. Nothing is ever unpacked to disk.

N pictures, H W their sides
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.readers.pictures import Colour
from fulcrum.data.readers.reader import MOST_BYTES, leads_out, read_untrusted, too_large
from fulcrum.data.readers.shards import TARS, Broken, Member, members
from fulcrum.measure.array_pictures import ARRAYS, UNREADABLE, OpenArray
from fulcrum.measure.decoded_picture import SUFFIXES, BadPicture, Decoded, decode
from fulcrum.measure.features.image_checks import BadImages, Range, to_uint8
from fulcrum.spec.errors import BadInput, shown

MOST_CAPTION = 1 << 16  # bytes


class Stored(NamedTuple):
    """One picture as it lies on disk."""

    name: str  # as a person would look for it
    data: bytes | NDArray[Any]  # a file's bytes, or a row of an array
    caption: str | None = None
    refused: BadPicture | None = None  # already known to be bad

    def key(self, policy: str) -> bytes:
        """Hash of its content and of how it is read."""
        content = hashlib.sha256(policy.encode())
        if isinstance(self.data, np.ndarray):
            content.update(f"{self.data.dtype} {self.data.shape}".encode() + np.ascontiguousarray(self.data).tobytes())
        else:
            content.update(self.data)
        return content.digest()


@contextmanager
def as_picture_set(pictures: object, name: str) -> Iterator["PictureSet"]:
    """Pictures at a path, or in an array (N, H, W, 3): that is written aside for as long as it is looked at.

    Errors call the array by its `name`, not by where it was written.
    """
    if isinstance(pictures, str | Path):
        yield PictureSet(Path(pictures))
        return
    if not isinstance(pictures, np.ndarray):
        raise BadInput(f"expected a path or an array of pictures, found {type(pictures).__name__}")
    with TemporaryDirectory(prefix="fulcrum-pictures-") as folder:
        path = Path(folder) / "pictures.npy"
        np.save(path, pictures)
        try:
            yield PictureSet(path)
        except BadInput as error:
            raise BadInput(error.message.replace(shown(path), name), error.hint) from None


class PictureSet:
    """The pictures at a path. `ignored` counts what is there and is no picture."""

    def __init__(self, path: Path, value_range: Range | None = None, background: Colour | None = None) -> None:
        self.path, self.value_range, self.background = path, value_range, background
        self.ignored: Counter[str] = Counter()
        self.policy = f"range {value_range}, background {background}"
        if not path.exists():
            raise BadInput(f"there is nothing at {shown(path)}", "give a folder of pictures, tar shards (.tar) or an .npz")
        self.files: list[Path] = []
        if path.is_dir():
            self.files = self._listed()
            self.kind = "tar" if self.files and _is(self.files[0], TARS) else "folder"
        elif not path.is_file():
            raise BadInput(f"{shown(path)} is a device or a pipe, neither folder nor file", "save it to a file first")
        elif _is(path, TARS):
            self.files, self.kind = [path], "tar"
        elif _is(path, ARRAYS):
            self.files, self.kind = [path], "array"
        else:
            raise BadInput(f"{shown(path)} is neither a folder nor tar shards nor npz", "give one of these three")
        if not self.files:
            raise BadInput(f"{shown(path)} holds no pictures", f"looked for {', '.join(SUFFIXES)}, and for .tar shards")
        if value_range is not None and self.kind != "array":
            raise BadInput(f"{shown(path)}: a range was declared, and pictures in files are bytes", "leave --range out")

    def __len__(self) -> int:
        """How many to expect, bad ones included; archives are listed for it."""
        if self.kind == "folder":
            return len(self.files)
        if self.kind == "array":
            with OpenArray(self.files[0]) as (_, shape, _dtype):
                return shape[0]
        return sum(member.is_file and _is(member.name, SUFFIXES) for shard in self.files for member in _members(shard))

    def __iter__(self) -> Iterator[Stored]:
        self.ignored.clear()
        if self.kind == "folder":
            self._listed()
            yield from map(self._file, self.files)
        elif self.kind == "array":
            yield from self._rows(self.files[0])
        else:
            for shard in self.files:
                yield from self._shard(shard)

    def decode(self, picture: Stored) -> Decoded:
        """Pixels (3, H, W)."""
        if picture.refused is not None:
            raise picture.refused
        if isinstance(picture.data, bytes):
            return decode(picture.data, self.background)
        import torch

        try:
            pixels = to_uint8(torch.from_numpy(np.ascontiguousarray(picture.data))[None], self.value_range)[0]
        except BadImages as error:
            raise BadPicture(
                str(error), "declare it with --range 0,1 or --range=-1,1" if "declared range" in str(error) else ""
            ) from None
        return Decoded(pixels.numpy(), ())

    def _listed(self) -> list[Path]:
        """Pictures below a folder by name; else its shards. Folders behind symbolic links are not entered, and a link to a
        picture of the same folder is that picture again: icon themes are full of them."""
        pictures, shards, home = [], [], self.path.resolve()
        for place, folders, names in os.walk(self.path):
            self.ignored["linked folders"] += sum(os.path.islink(os.path.join(place, name)) for name in folders)
            for name in names:
                file = Path(place) / name
                if name.startswith("."):
                    self.ignored["hidden files"] += 1
                elif file.is_symlink() and Path(os.path.realpath(file)).is_relative_to(home) and file.exists():
                    self.ignored["links within the folder"] += 1
                elif _is(file, SUFFIXES):
                    pictures.append(file)
                elif _is(file, TARS) and file.is_file():
                    shards.append(file)
                elif file.suffix != ".txt":
                    self.ignored["other files"] += 1
        if pictures and shards:
            raise BadInput(
                f"{shown(self.path)} holds pictures ({pictures[0].name}) and shards ({shards[0].name})",
                "measure one or the other: move them apart",
            )
        self.ignored = +self.ignored
        return sorted(pictures or shards, key=lambda path: path.relative_to(self.path).as_posix())

    def _file(self, path: Path) -> Stored:
        name = shown(path)
        beside, caption = path.with_suffix(".txt"), None
        try:
            data = read_untrusted(path)
            if leads_out(self.path, beside):
                raise ValueError("its caption is a link that leads out of the folder")
            if beside.is_file():
                caption = _caption(read_untrusted(beside, MOST_CAPTION))
            return Stored(name, data, caption)
        except ValueError as error:
            return Stored(name, b"", refused=BadPicture(str(error)))

    def _shard(self, path: Path) -> Iterator[Stored]:
        """Pictures of a tar in their order, read in memory: member names are never used as paths. A caption has its
        picture's name, and stands next to it."""
        waiting: Stored | None = None
        words: tuple[str, str] | None = None
        for member in _members(path):
            name, stem = shown(f"{path}:{member.name}"), member.name.rsplit(".", 1)[0]
            if not member.is_file:
                self.ignored["links and devices"] += 1
            elif member.name.lower().endswith(".txt") and member.size <= MOST_CAPTION:
                text = _caption(member.read())
                if waiting is not None and waiting.name.rsplit(".", 1)[0] == shown(f"{path}:{stem}"):
                    waiting = waiting._replace(caption=text)
                else:
                    words = (stem, text)
            elif _is(member.name, SUFFIXES):
                if waiting is not None:
                    yield waiting
                large = member.size > MOST_BYTES
                refused = BadPicture(too_large(member.size)) if large else None
                caption = words[1] if words and words[0] == stem else None
                waiting, words = Stored(name, b"" if large else member.read(), caption, refused), None
            else:
                self.ignored["other files"] += 1
        if waiting is not None:
            yield waiting

    def _rows(self, path: Path) -> Iterator[Stored]:
        with OpenArray(path) as (stream, shape, dtype):
            if len(shape) != 4 or (shape[3] == 3) == (shape[1] == 3):
                raise BadInput(f"{shown(path)} holds an array of shape {shape}", "expected (N, H, W, 3) or (N, 3, H, W)")
            size = int(np.prod(shape[1:])) * dtype.itemsize
            for number in range(shape[0]):
                try:
                    data = stream.read(size)
                except UNREADABLE as error:
                    raise BadInput(f"{shown(path)} is damaged at picture {number}: {error}", "copy it again") from None
                if len(data) < size:
                    raise BadInput(f"{shown(path)} is cut off after {number} of {shape[0]} pictures", "copy it again")
                native = dtype.newbyteorder("=")  # and a copy, which may be written to
                row = np.frombuffer(data, dtype=dtype).reshape(shape[1:]).astype(native)
                yield Stored(f"{shown(path)}[{number}]", row.transpose(2, 0, 1) if shape[3] == 3 else row)


def _is(path: Path | str, suffixes: tuple[str, ...]) -> bool:
    return str(path).lower().endswith(suffixes)


def _caption(data: bytes) -> str:
    return data[:MOST_CAPTION].decode("utf-8-sig", errors="replace").strip()


def _members(path: Path) -> Iterator[Member]:
    """As they come; damage is named."""
    try:
        with path.open("rb") as stream:
            yield from members(stream, os.fstat(stream.fileno()).st_size)
    except (Broken, OSError) as error:
        raise BadInput(f"{shown(path)} is damaged or no tar: {shown(str(error))}", "copy it again") from None


def set_hash(keys: list[bytes]) -> str:
    """A set of pictures by content, whatever their names and their order."""
    content = hashlib.sha256()
    for key in sorted(keys):
        content.update(key)
    return content.hexdigest()[:32]
