"""Pictures as one array on disk, .npz or .npy: opened as a stream, with its shape and type checked first.

N pictures, H W their sides
"""

import lzma
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from fulcrum.data.readers.pictures import MOST_PIXELS
from fulcrum.spec.errors import BadInput, shown

ARRAYS = (".npz", ".npy")
UNREADABLE = (  # how zipfile, the decompressors and numpy's parser of a header say that bytes are not what they should be
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
    """The one array of an .npz (or .npy) as a stream of bytes with its shape and type; never unpickles, never loads all."""

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
            head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, by_column, dtype = head(self._stream)
        except UNREADABLE as error:
            self.__exit__()
            raise BadInput(
                f"{shown(self.path)} cannot be read as an array: {error}", "expected what numpy.savez writes"
            ) from None
        if dtype.hasobject or by_column or not shape:
            self.__exit__()
            what = "Python objects, which could run code" if dtype.hasobject else "an array in another order or of no rows"
            raise BadInput(f"{shown(self.path)} holds {what}", "save uint8 pictures, (N, H, W, 3), with numpy.savez")
        if (dtype != np.uint8 and not _floats(dtype)) or min(shape) < 0:
            self.__exit__()
            raise BadInput(
                f"{shown(self.path)} holds numbers of type {dtype} in the shape {shape}",
                "expected pictures in uint8 or floating point: convert them first",
            )
        if int(np.prod(shape[1:], dtype=object)) > 3 * MOST_PIXELS:
            self.__exit__()
            raise BadInput(f"{shown(self.path)} holds rows of {shape[1:]} numbers", f"the limit is {3 * MOST_PIXELS:,}")
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
        raise ValueError(f"expected an array called images or arr_0, found {', '.join(names[:5]) or 'nothing'}")

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
