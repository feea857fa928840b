"""Parquet files that hold the pictures themselves, as the hub's datasets do; pyarrow is imported only here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fulcrum.data.readers.columns import ColumnReader
from fulcrum.data.readers.parquet_pages import MOST_FOLD, Bomb, Unfolded, unfolded
from fulcrum.data.readers.reader import SPLITS, Fields, Given, parted, require_once, unusable
from fulcrum.data.readers.untrusted_archive import MOST_RATIO
from fulcrum.data.readers.untrusted_file import MOST_BYTES
from fulcrum.data.readers.untrusted_image import SUFFIXES
from fulcrum.spec.errors import BadInput, install_extra

_FREE = 1 << 26  # bytes that may unfold to anything
MOST_PAGE, MOST_VALUES = 1 << 29, 1 << 26  # of one page: pyarrow holds it as a whole
MOST_HELD = (1 << 31) - 1  # bytes of one page that hardly shrank, as a thousand pictures do: pyarrow has room for no more


def parquets_at(path: Path) -> list[Path] | None:
    """The Parquet files of a folder that holds them and no pictures, or the file itself; None: something else."""
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
        raise BadInput(f"reading {path.name} needs the package pyarrow", install_extra("datasets")) from None
    try:
        opened = parquet.ParquetFile(path)
        about = opened.metadata
        stated = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        with path.open("rb") as stream:
            pages = unfolded(stream)  # the head may say less than they do
    except Bomb as error:
        opened.close()
        raise BadInput(f"{path} is not what a writer of Parquet makes: {error}", "who made it?") from None
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own errors derive from these
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
    """Of a page that is too large to be read; empty where none is. What unfolds little was sent whole, and the writer of
    pyarrow ends no page before 1,024 values: memory for them is memory in proportion to the file."""
    folded, size, _ = pages.shrunk
    if size > MOST_PAGE:
        limit = f"the limit is {MOST_PAGE:,}, or {MOST_FOLD} times what it has in the file"
        return f"a page of {folded:,} bytes that unfolds to {size:,}; {limit}: a decompression bomb?"
    if pages.largest > MOST_HELD:
        return f"a page that unfolds to {pages.largest:,} bytes; pyarrow reads none of more than {MOST_HELD:,}"
    if pages.values > MOST_VALUES:
        return f"a page of {pages.values:,} values, the limit is {MOST_VALUES:,}: a decompression bomb?"
    return ""


def parquet_rows(opened: Any) -> Iterator[dict[str, Any] | None]:
    """Row by row, for a value that the file holds once may stand in every row; None: a row that cannot be had. What is
    wrong with the file itself is an OSError or a ValueError."""
    try:
        for batch in opened.iter_batches(batch_size=1):
            try:
                row = batch.to_pylist()[0] if batch.nbytes <= MOST_BYTES else None
            except (ValueError, OverflowError, TypeError, NotImplementedError):  # a date in the year 100,000
                row = None
            yield row
    except NotImplementedError as error:  # an encoding that pyarrow knows and cannot read
        raise ValueError(str(error)) from None


class ParquetReader(ColumnReader):
    """Rows of successive files. A file whose name, or whose folder's, begins with a split's name belongs to that split."""

    kind = "parquet files"

    def __init__(self, files: list[Path], fields: Fields) -> None:
        super().__init__(fields)
        self.files = files
        self.total = sum([self._checked_rows(path) for path in files])
        self.splits = parted({path: _split(path) for path in files})

    def _checked_rows(self, path: Path) -> int:
        """Refuse a file without its columns before anything is read; returns how many rows it says it has."""
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
                why = f"the file is broken: {error}, after row {number - 1}; what follows in it is lost"
                yield unusable(path.name, why)

    def _given(self, name: str, row: dict[str, Any] | None, split: str) -> Given:
        if row is None:
            return unusable(name, f"a value that cannot be read, or more than {MOST_BYTES:,} bytes")
        picture = row.get(self.file)
        return self.sample(name, picture.get("bytes") if isinstance(picture, dict) else picture, row, split)


def _holds_bytes(kind: Any) -> bool:
    """binary, or a struct with a field `bytes`, as datasets writes pictures."""
    if str(kind) in ("binary", "large_binary"):
        return True
    return str(kind).startswith("struct") and any(kind.field(n).name == "bytes" for n in range(kind.num_fields))


def _split(path: Path) -> str:
    """train-00000-of-00003.parquet, or train/0000.parquet."""
    return next((SPLITS[name] for name in (path.name.split("-")[0], path.parent.name) if name in SPLITS), "")
