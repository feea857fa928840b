"""Readers: what the user gives, as one stream of named samples. Nothing in it is trusted."""

import errno
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from fulcrum.files.paths import at_home, open_regular, reason
from fulcrum.files.remote import RemoteCache
from fulcrum.files.user_code import load
from fulcrum.spec.errors import BadInput

# --------------------------------------------------------------------------------------------------
# Files that nobody vouches for, read whole: plain ones of a bounded size; captions only from inside
# their folder.


MOST_BYTES = 1 << 28  # of one file


def too_large(size: int) -> str:
    return f"too large a file: {size:,} bytes, the limit is {MOST_BYTES:,}"


def read_untrusted(path: Path, first: int | None = None) -> bytes:
    """All bytes of a file, or the first so many; a ValueError says why they cannot be had."""
    try:
        with open(open_regular(path, follow=True), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > MOST_BYTES and first is None:
                raise ValueError(too_large(size))
            return stream.read(size if first is None else first)
    except OSError as error:
        # a pipe would keep us waiting, a device has no end
        plain = error.errno not in (errno.EINVAL, errno.EISDIR)
        raise ValueError(
            f"cannot be read ({reason(error)})" if plain else "not a file: a device or a pipe"
        ) from None


def bounded_lines(stream: IO[bytes], most: int) -> Iterator[bytes | None]:
    """Line by line; None for one of more than `most` bytes, which is passed over and never held
    whole."""
    while line := stream.readline(most + 1):
        whole = len(line) <= most
        while not whole and line and not line.endswith(b"\n"):
            line = stream.readline(most)
        yield line if whole else None


def leads_out(folder: Path, path: Path) -> bool:
    """Is it a link to something outside the folder? Whoever made the folder could have any text of
    ours read into it."""
    return path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(
        os.path.realpath(folder)
    )


# --------------------------------------------------------------------------------------------------
# What the user gives, as one stream of named samples: an image folder, tar shards, a table of
# captions, a saved dataset.
#
# Nothing is decoded here. Every sample comes with its captions by name, or with the reason why it
# cannot be used.


NAMES = ("long", "medium", "short")  # what levers know; a single caption is called long
SINGLE = ("caption", "text", "txt")  # fields that hold the one caption
FILES = ("file_name", "file", "image", "path", "filename")
MOST_TEXT = 1 << 20  # bytes of a caption file, letters of a caption
SPLITS = {
    "train": "train",
    "validation": "validation",
    "val": "validation",
    "valid": "validation",
    "test": "reference",
    "reference": "reference",
}

Captions = dict[str, list[str]]


class Given(NamedTuple):
    name: str
    data: bytes
    captions: Captions
    fault: str = ""  # why it cannot be used
    left: str = ""  # why it is left out, though nothing is wrong with it
    group: str = ""  # samples of one group stay on one side of a split
    split: str = ""


def unusable(name: str, why: str) -> Given:
    """A sample of which nothing but its name and its fault is kept."""
    return Given(name, b"", {}, fault=why)


class Fields(NamedTuple):
    """Which fields of a sample mean what; empty: found out by name."""

    captions: tuple[tuple[str, str], ...] = ()  # (caption's name, field)
    group: str = ""
    file: str = ""  # of a table: the field that names the picture


ANY = Fields()


class Reader(Protocol):
    """Samples in an order that is the same every time."""

    kind: str

    def __iter__(self) -> Iterator[Given]: ...

    def share(self) -> float:
        """How much of it was handed out, for the progress; 0 where that is not known."""
        return 0.0


def described(name: str, data: bytes, about: Mapping[str, Any], fields: Fields) -> Given:
    """A sample from its bytes and whatever is said about it."""
    try:
        captions = captions_of(about, fields)
    except ValueError as error:
        return unusable(name, str(error))
    split, group = about.get("split"), about.get(fields.group or "group")
    if fields.group and group is None:
        return unusable(name, f"no field '{fields.group}' to group by")
    if _is_halved(str(group)):
        return unusable(name, "its group is not Unicode: it holds half a pair")
    if split is not None and str(split) not in SPLITS:
        return unusable(name, f"its split is {str(split)[:40]!r}; known: {', '.join(SPLITS)}")
    return Given(
        name,
        data,
        captions,
        group="" if group is None else str(group),
        split=SPLITS[str(split)] if split is not None else "",
    )


def captions_of(about: Mapping[str, Any], fields: Fields) -> Captions:
    """Captions by name; a list holds several of one kind."""
    captions: Captions = {}
    if fields.captions:
        for name, field in fields.captions:
            if about.get(field) is None:
                raise ValueError(
                    f"no field '{field}' for the caption '{name}'; it has"
                    f" {', '.join(about) or 'nothing'}"
                )
            captions[name] = _texts(about[field], field)
        return captions
    if isinstance(about.get("captions"), Mapping):
        captions = {
            str(name): _texts(value, str(name)) for name, value in about["captions"].items()
        }
    elif about.get("captions") is not None:
        captions = {"long": _texts(about["captions"], "captions")}
    for name in NAMES:
        if about.get(name) is not None:
            captions[name] = _texts(about[name], name)
    if not captions:
        single = next((field for field in SINGLE if about.get(field) is not None), None)
        if single is None:
            raise ValueError("no caption")
        captions["long"] = _texts(about[single], single)
    return captions


def _texts(value: Any, field: str) -> list[str]:
    if _is_halved(field):
        raise ValueError("the name of a caption is not Unicode: it holds half a pair")
    texts = value if isinstance(value, list | tuple) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the caption '{field}' is not text")
    if (longest := max(map(len, texts))) > MOST_TEXT:
        raise ValueError(
            f"the caption '{field[:40]}' has {longest:,} letters; the limit is {MOST_TEXT:,}"
        )
    texts = [" ".join(text.split()) for text in texts]
    if any(map(_is_halved, texts)):
        raise ValueError(f"the caption '{field}' is not Unicode: it holds half a pair")
    if not all(texts):
        raise ValueError(f"the caption '{field}' is empty")
    return texts


def _is_halved(text: str) -> bool:
    """Half of a pair of UTF-16, which JSON can spell and no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def sidecar(text: bytes | None, plain: bytes | None) -> dict[str, Any]:
    """What a .json and a .txt beside a picture say about it; the .txt is the caption unless the
    .json names its own."""
    about: dict[str, Any] = {}
    for what, data in ((".json", plain), (".txt", text)):
        if data is not None and len(data) > MOST_TEXT:
            raise ValueError(f"its {what} has {len(data):,} bytes; the limit is {MOST_TEXT:,}")
    if plain is not None:
        try:
            about = json.loads(plain)
        except (ValueError, RecursionError):
            raise ValueError("its .json cannot be read") from None
        if not isinstance(about, dict):
            raise ValueError("its .json holds no object")
    if text is not None:
        try:
            # a mark at the beginning is no part of a caption
            about["txt"] = text.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError("its .txt is not UTF-8") from None
        if not about["txt"].strip():
            raise ValueError("its .txt is empty")
        if "captions" not in about and not any(name in about for name in NAMES):
            about["caption"] = about["txt"]  # img2dataset's json repeats it, perhaps as null
    return about


def parted(splits: Mapping[Any, str]) -> dict[Any, str]:
    """The splits that files or folders are called after; none, where they do not part training from
    what is held out."""
    return dict(splits) if {"train"} < set(splits.values()) - {""} else {}


def require_columns(where: str, columns: Iterable[str], fields: Fields) -> None:
    """Refuse at once what no row of a table could have."""
    known = list(columns)
    asked = [field for _, field in fields.captions] + ([fields.group] if fields.group else [])
    missing = [name for name in asked if name not in known]
    if not fields.captions and not any(name in known for name in (*NAMES, *SINGLE, "captions")):
        missing.append("caption")
    if missing:
        raise BadInput(
            f"{where} has no column '{missing[0]}'; found {', '.join(known)}",
            "name them: --file COLUMN, --caption NAME=COLUMN, --group COLUMN",
        )


def require_once(where: str, columns: Iterable[str]) -> None:
    """Refuse a table in which one of two columns would hide the other."""
    twice = [name for name, times in Counter(columns).items() if times > 1]
    if twice:
        raise BadInput(
            f"{where} has more than one column called '{twice[0]}'",
            "which one counts? remove the other",
        )


def open_given(
    path: str, fields: Fields = ANY, table: str = "", cache: RemoteCache | None = None
) -> Reader:
    """The reader that fits what lies at `path`; remote shards are copied to `cache`, or to the
    user's."""
    from fulcrum.data.readers.image_folder import FolderReader, TableReader
    from fulcrum.data.readers.parquet import ParquetReader, SavedReader, is_saved, parquets_at
    from fulcrum.data.readers.shards import MdsReader, ShardReader, mds_folders, shards_at

    shards = shards_at(path)
    if shards is not None:
        if table:
            raise BadInput(
                "--table belongs to a folder of pictures; shards carry their captions inside",
                "leave it out",
            )
        return ShardReader(shards, fields, cache)
    folder = at_home(path)
    if folder.is_file() and not parquets_at(folder):
        raise BadInput(
            f"{folder} is neither a tar nor a folder",
            "give a folder of pictures or tar shards; a table of captions is given beside its"
            " folder: --table FILE",
        )
    if not folder.exists():
        raise BadInput(
            f"there is nothing at {folder.absolute()}", "give a folder of pictures, or tar shards"
        )
    if is_saved(folder):
        return SavedReader(folder, fields)
    if places := mds_folders(folder):
        return MdsReader(places, fields)
    parquets = None if table else parquets_at(folder)
    if parquets:
        return ParquetReader(parquets, fields)
    from fulcrum.data.stores.picture_store import ABOUT

    if (folder / ABOUT).is_file():
        raise BadInput(
            f"{folder} was imported already",
            f"train on it: --set \"data.source=folder(path='{path}')\"",
        )
    captions_table = Path(table) if table else TableReader.inside(folder)
    return (
        TableReader(folder, captions_table, fields)
        if captions_table
        else FolderReader(folder, fields)
    )


# --------------------------------------------------------------------------------------------------
# Tables whose rows hold the pictures themselves: which column does, and a sample from a row.


class ColumnReader:
    """What readers of such tables have in common."""

    def __init__(self, fields: Fields) -> None:
        self.fields, self.done, self.total, self.file = fields, 0, 0, ""

    def share(self) -> float:
        return self.done / max(self.total, 1)

    def choose_column(
        self, where: str, pictures: list[str], columns: Iterable[str], none: str, hint: str
    ) -> None:
        """The one that is named, or the only one that can hold pictures."""
        columns = list(columns)
        self.file = self.fields.file or (pictures[0] if len(pictures) == 1 else "")
        if self.file not in pictures:
            raise BadInput(
                f"{where}: which column holds the pictures? found {', '.join(pictures) or none}"
                f" among {', '.join(columns)}",
                f"name it: --file COLUMN{hint}",
            )
        require_columns(where, columns, self.fields)

    def sample(self, name: str, data: bytes | None, row: Mapping[str, Any], split: str) -> Given:
        """Of the split that the row names itself, else of its file's or folder's."""
        if not data:
            return unusable(name, "no picture")
        about = {field: value for field, value in row.items() if field != self.file}
        sample = described(name, data, about, self.fields)
        return sample if sample.split or sample.fault else sample._replace(split=split)


# --------------------------------------------------------------------------------------------------
# A reader that a user's own Python file brings: pictures that no reader of ours knows, imported
# like any other.


GUIDE = "docs/your-data.md"


def open_with(file: Path, source: str) -> tuple[Reader, dict[str, str]]:
    """The file's reader of what lies at `source`, and its name and hash: the data set's card says
    what read it."""
    own = load(file, GUIDE)
    readers = [cls for cls in own.classes() if Reader in cls.__mro__]
    if len(readers) != 1:
        raise BadInput(
            f"{file} defines {len(readers)} readers, expected one",
            f"write one class that derives from fulcrum.data.readers.reader.Reader: {GUIDE}",
        )
    reader = readers[0](source)
    if not isinstance(getattr(reader, "kind", None), str):
        raise BadInput(
            f"{file}: {readers[0].__name__} needs a `kind`, a word for what it reads", GUIDE
        )
    return reader, {"reader": readers[0].__name__, "reader_sha256": own.sha256}
