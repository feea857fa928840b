"""Read Parquet files and saved datasets that hold the pictures themselves."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from fulcrum.data.readers.pictures import SUFFIXES
from fulcrum.data.readers.reader import (
    MOST_BYTES,
    SPLITS,
    ColumnReader,
    Fields,
    Given,
    parted,
    read_untrusted,
    require_once,
    unusable,
)
from fulcrum.data.readers.shards import MOST_RATIO
from fulcrum.spec.errors import BadInput, install_extra

# --------------------------------------------------------------------------------------------------
# What the pages of a Parquet file say that they unfold to, read before anything is unfolded.
#
# pyarrow makes room for whatever a page's header says, up to 2 GB, and looks at no sum: the head of
# a file may say less. Head and headers are Thrift's compact protocol; of each we keep a few
# numbers, and of the rest, which is passed over, nothing is built. No pyarrow in here.


# bytes of a header; it may hold the least and the largest value
_USUAL, _LONGEST = 1 << 12, 1 << 20
DEEPEST = 64  # structs within each other; a header has three, and pyarrow reads no more than these
# values of the file's head, two seconds; 10,000 row groups of 10 columns have half as many
MOST_FIELDS = 1 << 23
# a page that unfolds to so many times its bytes in the file hardly shrank: those had to be sent
MOST_FOLD = 4
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_WIDTHS = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}  # bytes of one in a list
_UNFOLDED, _FOLDED, _VALUES = 2, 3, 1  # fields of a header, and the first of each struct in it
_GROUPS, _COLUMNS, _ABOUT = 4, 1, 3  # fields of the file's head, of a row group, of a column
_LENGTH, _DATA_AT, _DICTIONARY_AT = 7, 9, 11  # fields of what a column says of itself
_ABOUT_VALUES = (5, 7, 8)  # fields that hold these structs: data, dictionary, data of version 2

# fields of a struct that are kept, by number and kind; of each what is kept within
Kept = Mapping[tuple[int, int], "Kept"]
_PLACE: Kept = {(field, _I64): {} for field in (_LENGTH, _DATA_AT, _DICTIONARY_AT)}
_HEAD: Kept = {(_GROUPS, _LIST): {(_COLUMNS, _LIST): {(_ABOUT, _STRUCT): _PLACE}}}
_HEADER: Kept = {
    **{(field, _I32): {} for field in (_UNFOLDED, _FOLDED)},
    **{(field, _STRUCT): {(_VALUES, _I32): {}} for field in _ABOUT_VALUES},
}


class Page(NamedTuple):
    folded: int  # bytes in the file
    unfolded: int  # bytes in memory
    values: int


class Unfolded(NamedTuple):
    """Of all pages of a file."""

    total: int  # bytes
    largest: int  # bytes of one page: it is held as a whole
    values: int  # of one page: decoders make room for as many
    shrunk: Page  # the largest of those that unfold to more than MOST_FOLD times their bytes


class Bomb(ValueError):
    """No writer makes such a file."""


def unfolded(stream: IO[bytes]) -> Unfolded:
    """By the headers of the pages of every column of every row group. Where they lie is read here
    too: pyarrow ends the process, by an exception of C++ that nobody catches, when it is asked for
    a column whose statistics are damaged."""
    size = stream.seek(0, 2)
    stream.seek(max(size - 8, 0))
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(max(size - 8 - length, 0))
    try:
        groups = _Thrift(stream.read(length)).struct(_HEAD).get(_GROUPS, [])
        chunks = [column[_ABOUT] for group in groups for column in group[_COLUMNS]]
        return measured(stream, chunks, size)
    except (LookupError, TypeError) as error:
        raise ValueError("its head is damaged") from error


def measured(stream: IO[bytes], chunks: Sequence[Mapping[int, Any]], size: int) -> Unfolded:
    total = largest = values = folded = 0
    shrunk = Page(0, 0, 0)
    for chunk in chunks:
        for page in _pages(stream, chunk):
            folded += page.folded + 1  # its header has a byte at least
            if folded > size:
                raise Bomb("pages of several columns are the same")
            total, largest, values = (
                total + page.unfolded,
                max(largest, page.unfolded),
                max(values, page.values),
            )
            if page.unfolded > max(shrunk.unfolded, MOST_FOLD * page.folded):
                shrunk = page
    return Unfolded(total, largest, values, shrunk)


def _pages(stream: IO[bytes], chunk: Mapping[int, Any]) -> Iterator[Page]:
    """Of one column of one row group, as far as they can be told apart: what follows pyarrow cannot
    read either."""
    place, dictionary = chunk[_DATA_AT], chunk.get(_DICTIONARY_AT, 0)
    if 0 < dictionary < place:
        place = dictionary
    end = place + chunk[_LENGTH]
    while 0 <= place < end:
        try:
            stream.seek(place)
            page, length = _header(stream)
        except Bomb:
            raise
        except (ValueError, OverflowError, OSError):
            return
        yield page
        place += length + page.folded


def _header(stream: IO[bytes]) -> tuple[Page, int]:
    """And how many bytes it takes."""
    header = _Thrift(stream.read(_USUAL))
    try:
        numbers = header.struct(_HEADER)
    except IndexError:
        header = _Thrift(header.data + stream.read(_LONGEST - _USUAL))
        try:
            numbers = header.struct(_HEADER)
        except IndexError:
            if len(header.data) < _LONGEST:
                raise ValueError("the file ends in a header") from None
            raise Bomb(f"the header of a page has more than {_LONGEST:,} bytes") from None
    kinds = [kind for field in _ABOUT_VALUES if isinstance(kind := numbers.get(field), dict)]
    counts = [kind.get(_VALUES, 0) for kind in kinds]
    values = max((count for count in counts if isinstance(count, int)), default=0)
    folded, unfolded = numbers.get(_FOLDED), numbers.get(_UNFOLDED)
    if (
        not isinstance(folded, int)
        or not isinstance(unfolded, int)
        or min(folded, unfolded, values) < 0
    ):
        raise ValueError("no header of a page")
    return Page(folded, unfolded, values), header.at


class _Thrift:
    """Reads on from one place of the bytes; an IndexError where they end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.left = data, 0, MOST_FIELDS

    def struct(self, kept: Kept, depth: int = 0) -> dict[int, Any]:
        """Its numbers, structs and lists of structs, by their field: those that are kept."""
        if depth > DEEPEST:
            raise ValueError("too deep")
        values: dict[int, Any] = {}
        field = 0
        while head := self.data[self.at]:
            self.at += 1
            self.left -= 1
            step, kind = head >> 4, head & 15
            field = field + step if step else self._number()
            if self.left < 0:
                raise self._too_many()
            within = kept.get((field, kind))
            if within is None:  # one of another kind pyarrow passes over too
                self._skip(kind, depth)
            elif field in values:
                raise Bomb("a field stands twice")
            elif kind == _STRUCT:
                values[field] = self.struct(within, depth + 1)
            elif kind == _LIST:  # of structs, whatever it says: pyarrow does not look
                values[field] = [self.struct(within, depth + 1) for _ in range(self._list()[0])]
            else:
                values[field] = self._number()
        self.at += 1
        return values

    def _skip(self, kind: int, depth: int) -> None:
        """The value of a field."""
        if kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _BINARY:
            length = self._varint()
            self.at += length
        elif kind == _STRUCT:
            self.struct({}, depth + 1)
        elif kind in (_LIST, _SET):
            self._skip_all(*self._list(), depth=depth + 1)
        elif kind == _MAP:
            self._skip_map(depth + 1)
        elif kind in (_BYTE, _DOUBLE):
            self.at += _WIDTHS[kind]
        elif kind not in (_TRUE, _FALSE):  # whose value is their kind
            raise ValueError("no header of a page")

    def _skip_map(self, depth: int) -> None:
        count = self._varint()
        if count:
            kinds = self.data[self.at]
            self.at += 1
            self._count(2 * count)
            for _ in range(count):
                self._skip_all(1, kinds >> 4, depth)
                self._skip_all(1, kinds & 15, depth)

    def _skip_all(self, count: int, kind: int, depth: int) -> None:
        """The values of a list."""
        if depth > DEEPEST:
            raise ValueError("too deep")
        if kind in _WIDTHS:
            self.at += count * _WIDTHS[kind]
        else:
            for _ in range(count):
                self._skip(kind, depth)

    def _list(self) -> tuple[int, int]:
        """How many, and of what kind."""
        head = self.data[self.at]
        self.at += 1
        count = head >> 4 if head >> 4 < 15 else self._varint()
        self._count(count)
        return count, head & 15

    def _count(self, values: int) -> None:
        """Of a list, before it is gone through."""
        if values > len(self.data) - self.at:
            raise IndexError("each has a byte at least")
        self.left -= values
        if self.left < 0:
            raise self._too_many()

    def _too_many(self) -> Bomb:
        return Bomb(
            f"its head holds more than {MOST_FIELDS:,} values; larger row groups need fewer"
        )

    def _varint(self) -> int:
        number = self.data[self.at]
        self.at += 1
        if number < 128:  # most are
            return number
        number &= 127
        for shift in range(7, 70, 7):
            part = self.data[self.at]
            self.at += 1
            number |= (part & 127) << shift
            if part < 128:
                return number
        raise ValueError("a number without end")

    def _number(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)


# --------------------------------------------------------------------------------------------------
# Parquet files that hold the pictures themselves, as the hub's datasets do; pyarrow is imported
# only here.


_FREE = 1 << 26  # bytes that may unfold to anything
MOST_PAGE, MOST_VALUES = 1 << 29, 1 << 26  # of one page: pyarrow holds it as a whole
# bytes of one page that hardly shrank, as a thousand pictures do: pyarrow has room for no more
MOST_HELD = (1 << 31) - 1


def parquets_at(path: Path) -> list[Path] | None:
    """The Parquet files of a folder that holds them and no pictures, or the file itself; None:
    something else."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".parquet" else None
    from fulcrum.data.readers.image_folder import files_below

    files = files_below(path)
    tables = [path / name for name, suffix in files.items() if suffix == ".parquet"]
    return tables if tables and not any(suffix in SUFFIXES for suffix in files.values()) else None


def open_parquet(path: Path) -> Any:
    """The file, opened; BadInput where it is none, or unfolds beyond reason."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise BadInput(
            f"reading {path.name} needs the package pyarrow", install_extra("datasets")
        ) from None
    try:
        opened = parquet.ParquetFile(path)
        about = opened.metadata
        stated = sum(
            about.row_group(number).total_byte_size for number in range(about.num_row_groups)
        )
        with path.open("rb") as stream:
            pages = unfolded(stream)  # the head may say less than they do
    except Bomb as error:
        opened.close()
        raise BadInput(
            f"{path} is not what a writer of Parquet makes: {error}", "who made it?"
        ) from None
    # pyarrow's own errors derive from these
    except (OSError, ValueError, NotImplementedError) as error:
        raise BadInput(f"{path} cannot be read: {error}", "is it whole?") from None
    total = max(stated, pages.total)
    if total > _FREE + MOST_RATIO * path.stat().st_size:
        opened.close()
        raise BadInput(f"{path} unfolds to {total:,} bytes: a decompression bomb?", "who made it?")
    if fault := _fault_of(pages):
        opened.close()
        raise BadInput(f"{path} has {fault}", "write it anew with smaller row groups")
    return opened


def _fault_of(pages: Unfolded) -> str:
    """Of a page that is too large to be read; empty where none is. What unfolds little was sent
    whole, and the writer of pyarrow ends no page before 1,024 values: memory for them is memory in
    proportion to the file."""
    folded, size, _ = pages.shrunk
    if size > MOST_PAGE:
        limit = f"the limit is {MOST_PAGE:,}, or {MOST_FOLD} times what it has in the file"
        return (
            f"a page of {folded:,} bytes that unfolds to {size:,}; {limit}: a decompression bomb?"
        )
    if pages.largest > MOST_HELD:
        return (
            f"a page that unfolds to {pages.largest:,} bytes; pyarrow reads none of more than"
            f" {MOST_HELD:,}"
        )
    if pages.values > MOST_VALUES:
        return (
            f"a page of {pages.values:,} values, the limit is {MOST_VALUES:,}: a decompression"
            " bomb?"
        )
    return ""


def parquet_rows(opened: Any) -> Iterator[dict[str, Any] | None]:
    """Row by row, for a value that the file holds once may stand in every row; None: a row that
    cannot be had. What is wrong with the file itself is an OSError or a ValueError."""
    try:
        for batch in opened.iter_batches(batch_size=1):
            try:
                row = batch.to_pylist()[0] if batch.nbytes <= MOST_BYTES else None
            # a date in the year 100,000
            except (ValueError, OverflowError, TypeError, NotImplementedError):
                row = None
            yield row
    except NotImplementedError as error:  # an encoding that pyarrow knows and cannot read
        raise ValueError(str(error)) from None


class ParquetReader(ColumnReader):
    """Rows of successive files. A file whose name, or whose folder's, begins with a split's name
    belongs to that split."""

    kind = "parquet files"

    def __init__(self, files: list[Path], fields: Fields) -> None:
        super().__init__(fields)
        self.files = files
        self.total = sum([self._checked_rows(path) for path in files])
        self.splits = parted({path: _split(path) for path in files})

    def _checked_rows(self, path: Path) -> int:
        """Refuse a file without its columns before anything is read; returns how many rows it says
        it has."""
        with open_parquet(path) as opened:
            schema, about = opened.schema_arrow, opened.metadata
        pictures = [column.name for column in schema if _holds_bytes(column.type)]
        hint = "; a table of captions is given beside its folder of pictures: --table FILE"
        self.choose_column(str(path), pictures, schema.names, "none of bytes", hint)
        require_once(str(path), schema.names)
        return int(about.num_rows)

    def __iter__(self) -> Iterator[Given]:
        self.done = 0
        for path in self.files:
            split, number = self.splits.get(path, ""), 0
            try:
                with open_parquet(path) as opened:
                    for row in parquet_rows(opened):
                        self.done += 1
                        yield self._given(f"{path.name} row {number}", row, split)
                        number += 1
            except (BadInput, OSError, ValueError) as error:
                why = (
                    f"the file is broken: {error}, after row {number - 1}; what follows in it is"
                    " lost"
                )
                yield unusable(path.name, why)

    def _given(self, name: str, row: dict[str, Any] | None, split: str) -> Given:
        if row is None:
            return unusable(name, f"a value that cannot be read, or more than {MOST_BYTES:,} bytes")
        picture = row.get(self.file)
        return self.sample(
            name, picture.get("bytes") if isinstance(picture, dict) else picture, row, split
        )


def _holds_bytes(kind: Any) -> bool:
    """binary, or a struct with a field `bytes`, as datasets writes pictures."""
    if str(kind) in ("binary", "large_binary"):
        return True
    return str(kind).startswith("struct") and any(
        kind.field(n).name == "bytes" for n in range(kind.num_fields)
    )


def _split(path: Path) -> str:
    """train-00000-of-00003.parquet, or train/0000.parquet."""
    return next(
        (SPLITS[name] for name in (path.name.split("-")[0], path.parent.name) if name in SPLITS), ""
    )


# --------------------------------------------------------------------------------------------------
# A dataset of the package `datasets` that was saved on disk (save_to_disk); the package is imported
# only here.


def is_saved(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or all(
        (folder / name).is_file() for name in ("dataset_info.json", "state.json")
    )


class SavedReader(ColumnReader):
    """Rows of a dataset, or of all splits of a dictionary of them; pictures stay the bytes that
    were saved."""

    kind = "saved dataset"

    def __init__(self, folder: Path, fields: Fields) -> None:
        try:
            import datasets
        except ImportError:
            raise BadInput(
                f"{folder} was saved by the package datasets, which is not installed",
                install_extra("datasets"),
            ) from None
        super().__init__(fields)
        self.folder = folder
        try:
            saved = datasets.load_from_disk(str(folder))
        # damaged files make that package and pyarrow raise what they like
        except Exception as error:
            raise BadInput(
                f"{folder} cannot be read: {str(error)[:500]}", "is it whole? save it again"
            ) from None
        parts = dict(saved) if isinstance(saved, dict) else {"": saved}
        strange = [name for name in parts if name and name not in SPLITS]
        if strange or not parts:
            raise BadInput(
                (
                    f"{folder} holds a split called '{strange[0]}'; known: {', '.join(SPLITS)}"
                    if strange
                    else f"{folder} holds no split"
                ),
                f"import one: {folder}/{strange[0] if strange else 'train'}",
            )
        self.parts = {name: self._undecoded(rows, datasets) for name, rows in parts.items()}
        self.total = sum(map(len, self.parts.values()))
        self.splits = parted({name: SPLITS.get(name, "") for name in self.parts})

    def _undecoded(self, rows: Any, datasets: Any) -> Any:
        pictures = [
            name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)
        ]
        self.choose_column(str(self.folder), pictures, rows.features, "none", "")
        for name, kind in rows.features.items():
            # other pictures and sounds too: that package knows no limits
            if getattr(kind, "decode", False):
                rows = rows.cast_column(name, type(kind)(decode=False))
        return rows

    def __iter__(self) -> Iterator[Given]:
        self.done = 0
        for split, rows in self.parts.items():
            last = 0
            try:
                for last, row in enumerate(rows):
                    self.done += 1
                    yield self._sample(
                        f"{split} row {last}".strip(), row, self.splits.get(split, "")
                    )
            except (OSError, ValueError) as error:
                raise BadInput(
                    f"{self.folder} cannot be read after row {last}: {error}", "save it again"
                ) from None

    def _sample(self, name: str, row: Mapping[str, Any], split: str) -> Given:
        picture = row.get(self.file) or {}
        data, path = picture.get("bytes"), picture.get("path")
        if data is None and path:
            if Path(path).is_absolute() or ".." in Path(path).parts:
                return unusable(
                    name, "its picture lies outside the dataset: save it with its bytes"
                )
            try:
                data = read_untrusted(self.folder / path)
            except ValueError as error:
                return unusable(name, f"its picture {error}")
        return self.sample(name, data, row, split)
