"""Sets of pictures on disk in a fixed order: a folder, tar shards, or an array."""

import hashlib
import lzma
import os
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.readers.pictures import MOST_PIXELS, TURNED, Colour, Refused, open_picture
from fulcrum.data.readers.pictures import SUFFIXES as PICTURES
from fulcrum.data.readers.reader import MOST_BYTES, leads_out, read_untrusted, too_large
from fulcrum.data.readers.shards import TARS, Broken, Member, members
from fulcrum.measure.features.extractor import BadImages, Range, to_uint8
from fulcrum.spec.errors import BadInput, shown

# --------------------------------------------------------------------------------------------------
# One stored picture to bytes of pixels, or a refusal that says why; nothing is converted in
# silence.
#
# H, W the picture's sides


SUFFIXES = (*PICTURES, ".pgm")
# What was changed without loss, so that it can be counted and told. The order is that of the bits
# on disk.
NOTES = ("grayscale", "palette", "opaque alpha", "alpha over the background", TURNED)


class BadPicture(Refused):
    """A picture that no metric may look at; the name is added by whoever knows it."""

    def named(self, name: str) -> BadInput:
        out = "or leave bad pictures out with --skip-bad: they are counted and named"
        return BadInput(f"{name}: {self.why}", f"{self.hint or 'mend or remove it'}; {out}")


class Decoded(NamedTuple):
    pixels: NDArray[np.uint8]  # (3, H, W)
    notes: tuple[str, ...]


def decode(data: bytes, background: Colour | None = None) -> Decoded:
    """A file's bytes as RGB; `background` is what shows through transparency."""
    opened = open_picture(data, BadPicture)
    image, notes = opened.image, [TURNED] if opened.turned else []
    if image.mode not in ("RGB", "RGBA", "L", "LA", "P", "PA", "1"):
        raise BadPicture(f"colours are {image.mode}", "convert it to sRGB: how to is your decision")
    if image.mode == "P":
        notes.append("palette")
    if image.mode in ("L", "1", "LA"):
        notes.append("grayscale")
    if opened.see_through:
        if opened.is_opaque():
            notes.append("opaque alpha")
        elif background is None:
            raise BadPicture(
                "parts of it are transparent",
                "say what shows through: --background white (or black, or r,g,b)",
            )
        else:
            image = opened.over(background)
            notes.append("alpha over the background")
    pixels = np.asarray(image.convert("RGB"), dtype=np.uint8)  # (H, W, 3)
    return Decoded(
        np.ascontiguousarray(pixels.transpose(2, 0, 1)),
        tuple(note for note in NOTES if note in notes),
    )


def read_colour(text: str) -> Colour:
    """white, black or r,g,b."""
    named = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}
    parts: Sequence[str] = text.split(",")
    if text in named:
        return named[text]
    if len(parts) == 3 and all(part.strip().isdigit() and int(part) < 256 for part in parts):
        return (int(parts[0]), int(parts[1]), int(parts[2]))
    raise BadInput(
        f"'{text}' is not a colour", "write white, black, gray or r,g,b with numbers up to 255"
    )


# --------------------------------------------------------------------------------------------------
# Pictures as one array on disk, .npz or .npy: opened as a stream, with its shape and type checked
# first.
#
# N pictures, H W their sides


ARRAYS = (".npz", ".npy")
# how zipfile, the decompressors and numpy's parser of a header say that bytes are not what they
# should be
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    tokenize.TokenError,
    SyntaxError,
    ValueError,
    OSError,
    EOFError,
)


class OpenArray:
    """The one array of an .npz (or .npy) as a stream of bytes with its shape and type; never
    unpickles, never loads all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._archive: zipfile.ZipFile | None = None
        self._stream: IO[bytes] | None = None

    def __enter__(self) -> tuple[IO[bytes], tuple[int, ...], np.dtype[Any]]:
        try:
            self._stream = self._open()
            version = np.lib.format.read_magic(self._stream)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"format version {version}")
            head = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, by_column, dtype = head(self._stream)
        except UNREADABLE as error:
            self.__exit__()
            raise BadInput(
                f"{shown(self.path)} cannot be read as an array: {error}",
                "expected what numpy.savez writes",
            ) from None
        if dtype.hasobject or by_column or not shape:
            self.__exit__()
            what = (
                "Python objects, which could run code"
                if dtype.hasobject
                else "an array in another order or of no rows"
            )
            raise BadInput(
                f"{shown(self.path)} holds {what}",
                "save uint8 pictures, (N, H, W, 3), with numpy.savez",
            )
        if (dtype != np.uint8 and not _floats(dtype)) or min(shape) < 0:
            self.__exit__()
            raise BadInput(
                f"{shown(self.path)} holds numbers of type {dtype} in the shape {shape}",
                "expected pictures in uint8 or floating point: convert them first",
            )
        if int(np.prod(shape[1:], dtype=object)) > 3 * MOST_PIXELS:
            self.__exit__()
            raise BadInput(
                f"{shown(self.path)} holds rows of {shape[1:]} numbers",
                f"the limit is {3 * MOST_PIXELS:,}",
            )
        return self._stream, shape, dtype

    def _open(self) -> IO[bytes]:
        if self.path.suffix.lower() == ".npy":
            return self.path.open("rb")
        self._archive = zipfile.ZipFile(self.path)
        names = self._archive.namelist()
        for wanted in ("images.npy", "arr_0.npy", "samples.npy"):
            if wanted in names:
                return self._archive.open(wanted)
        if len(names) == 1 and names[0].endswith(".npy"):
            return self._archive.open(names[0])
        raise ValueError(
            f"expected an array called images or arr_0, found {', '.join(names[:5]) or 'nothing'}"
        )

    def __exit__(self, *_: object) -> None:
        for part in (self._stream, self._archive):
            if part is not None:
                part.close()


def holds_floats(path: Path) -> bool:
    """Is it an array of floating point pictures, which need a declared range?"""
    if not path.is_file() or not path.name.lower().endswith(ARRAYS):
        return False
    with OpenArray(path) as (_, _, dtype):
        return _floats(dtype)


def _floats(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize <= 8  # torch has no longer ones


# --------------------------------------------------------------------------------------------------
# Sets of pictures on disk, in a fixed order: a folder, tar shards, or an array in npz. Nothing is
# ever unpacked to disk.
#
# N pictures, H W their sides


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
            content.update(
                f"{self.data.dtype} {self.data.shape}".encode()
                + np.ascontiguousarray(self.data).tobytes()
            )
        else:
            content.update(self.data)
        return content.digest()


@contextmanager
def as_picture_set(pictures: object, name: str) -> Iterator["PictureSet"]:
    """Pictures at a path, or in an array (N, H, W, 3): that is written aside for as long as it is
    looked at.

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

    def __init__(
        self, path: Path, value_range: Range | None = None, background: Colour | None = None
    ) -> None:
        self.path, self.value_range, self.background = path, value_range, background
        self.ignored: Counter[str] = Counter()
        self.policy = f"range {value_range}, background {background}"
        if not path.exists():
            raise BadInput(
                f"there is nothing at {shown(path)}",
                "give a folder of pictures, tar shards (.tar) or an .npz",
            )
        self.files: list[Path] = []
        if path.is_dir():
            self.files = self._listed()
            self.kind = "tar" if self.files and _is(self.files[0], TARS) else "folder"
        elif not path.is_file():
            raise BadInput(
                f"{shown(path)} is a device or a pipe, neither folder nor file",
                "save it to a file first",
            )
        elif _is(path, TARS):
            self.files, self.kind = [path], "tar"
        elif _is(path, ARRAYS):
            self.files, self.kind = [path], "array"
        else:
            raise BadInput(
                f"{shown(path)} is neither a folder nor tar shards nor npz",
                "give one of these three",
            )
        if not self.files:
            raise BadInput(
                f"{shown(path)} holds no pictures",
                f"looked for {', '.join(SUFFIXES)}, and for .tar shards",
            )
        if value_range is not None and self.kind != "array":
            raise BadInput(
                f"{shown(path)}: a range was declared, and pictures in files are bytes",
                "leave --range out",
            )

    def __len__(self) -> int:
        """How many to expect, bad ones included; archives are listed for it."""
        if self.kind == "folder":
            return len(self.files)
        if self.kind == "array":
            with OpenArray(self.files[0]) as (_, shape, _dtype):
                return shape[0]
        return sum(
            member.is_file and _is(member.name, SUFFIXES)
            for shard in self.files
            for member in _members(shard)
        )

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
            pixels = to_uint8(
                torch.from_numpy(np.ascontiguousarray(picture.data))[None], self.value_range
            )[0]
        except BadImages as error:
            raise BadPicture(
                str(error),
                (
                    "declare it with --range 0,1 or --range=-1,1"
                    if "declared range" in str(error)
                    else ""
                ),
            ) from None
        return Decoded(pixels.numpy(), ())

    def _listed(self) -> list[Path]:
        """Pictures below a folder by name; else its shards. Folders behind symbolic links are not
        entered, and a link to a picture of the same folder is that picture again: icon themes are
        full of them."""
        pictures, shards, home = [], [], self.path.resolve()
        for place, folders, names in os.walk(self.path):
            self.ignored["linked folders"] += sum(
                os.path.islink(os.path.join(place, name)) for name in folders
            )
            for name in names:
                file = Path(place) / name
                if name.startswith("."):
                    self.ignored["hidden files"] += 1
                elif (
                    file.is_symlink()
                    and Path(os.path.realpath(file)).is_relative_to(home)
                    and file.exists()
                ):
                    self.ignored["links within the folder"] += 1
                elif _is(file, SUFFIXES):
                    pictures.append(file)
                elif _is(file, TARS) and file.is_file():
                    shards.append(file)
                elif file.suffix != ".txt":
                    self.ignored["other files"] += 1
        if pictures and shards:
            raise BadInput(
                f"{shown(self.path)} holds pictures ({pictures[0].name}) and shards"
                f" ({shards[0].name})",
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
        """Pictures of a tar in their order, read in memory: member names are never used as paths. A
        caption has its picture's name, and stands next to it."""
        waiting: Stored | None = None
        words: tuple[str, str] | None = None
        for member in _members(path):
            name, stem = shown(f"{path}:{member.name}"), member.name.rsplit(".", 1)[0]
            if not member.is_file:
                self.ignored["links and devices"] += 1
            elif member.name.lower().endswith(".txt") and member.size <= MOST_CAPTION:
                text = _caption(member.read())
                if waiting is not None and waiting.name.rsplit(".", 1)[0] == shown(
                    f"{path}:{stem}"
                ):
                    waiting = waiting._replace(caption=text)
                else:
                    words = (stem, text)
            elif _is(member.name, SUFFIXES):
                if waiting is not None:
                    yield waiting
                large = member.size > MOST_BYTES
                refused = BadPicture(too_large(member.size)) if large else None
                caption = words[1] if words and words[0] == stem else None
                waiting, words = (
                    Stored(name, b"" if large else member.read(), caption, refused),
                    None,
                )
            else:
                self.ignored["other files"] += 1
        if waiting is not None:
            yield waiting

    def _rows(self, path: Path) -> Iterator[Stored]:
        with OpenArray(path) as (stream, shape, dtype):
            if len(shape) != 4 or (shape[3] == 3) == (shape[1] == 3):
                raise BadInput(
                    f"{shown(path)} holds an array of shape {shape}",
                    "expected (N, H, W, 3) or (N, 3, H, W)",
                )
            size = int(np.prod(shape[1:])) * dtype.itemsize
            for number in range(shape[0]):
                try:
                    data = stream.read(size)
                except UNREADABLE as error:
                    raise BadInput(
                        f"{shown(path)} is damaged at picture {number}: {error}", "copy it again"
                    ) from None
                if len(data) < size:
                    raise BadInput(
                        f"{shown(path)} is cut off after {number} of {shape[0]} pictures",
                        "copy it again",
                    )
                native = dtype.newbyteorder("=")  # and a copy, which may be written to
                row = np.frombuffer(data, dtype=dtype).reshape(shape[1:]).astype(native)
                yield Stored(
                    f"{shown(path)}[{number}]", row.transpose(2, 0, 1) if shape[3] == 3 else row
                )


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
        raise BadInput(
            f"{shown(path)} is damaged or no tar: {shown(str(error))}", "copy it again"
        ) from None


def set_hash(keys: list[bytes]) -> str:
    """A set of pictures by content, whatever their names and their order."""
    content = hashlib.sha256()
    for key in sorted(keys):
        content.update(key)
    return content.hexdigest()[:32]
