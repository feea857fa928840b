"""Parquet files that hold the pictures themselves, as the hub's datasets do; pyarrow is imported only here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fulcrum.data.readers.reader import SPLITS, Fields, Given, described, parted, require_columns, require_once
from fulcrum.data.readers.untrusted_archive import MOST_RATIO
from fulcrum.data.readers.untrusted_image import SUFFIXES
from fulcrum.spec.errors import BadInput
from fulcrum.spec.install import install_extra

ROWS = 32  # read at a time: pictures are large
_FREE = 1 << 26  # bytes that may unfold to anything


def parquets_at(path: Path) -> list[Path] | None:
    """The Parquet files of a folder that holds them and no pictures, or the file itself; None: something else."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".parquet" else None
    from fulcrum.data.readers.folder import files_below

    files = files_below(path)
    found = [path / name for name, suffix in files.items() if suffix == ".parquet"]
    return found if found and not any(suffix in SUFFIXES for suffix in files.values()) else None


class ParquetReader:
    """Rows of successive files. A file whose name, or whose folder's, begins with a split's name belongs to that split."""

    kind = "parquet files"

    def __init__(self, files: list[Path], fields: Fields) -> None:
        try:
            from pyarrow import parquet
        except ImportError:
            raise BadInput(f"reading {files[0].name} needs the package pyarrow", install_extra("datasets")) from None
        self.parquet, self.files, self.fields, self.done = parquet, files, fields, 0
        self.counts = [self._columns(path) for path in files]
        self.splits = parted({path: _split(path) for path in files})

    def _columns(self, path: Path) -> int:
        """Refuse a file without its columns before anything is read; returns how many rows it says it has."""
        try:
            with self.parquet.ParquetFile(path) as opened:
                schema, about = opened.schema_arrow, opened.metadata
                unfolded = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        except (OSError, ValueError) as error:  # pyarrow's own errors derive from these
            raise BadInput(f"{path} cannot be read: {error}", "is it whole?") from None
        if unfolded > _FREE + MOST_RATIO * path.stat().st_size:
            raise BadInput(f"{path} unfolds to {unfolded:,} bytes: a decompression bomb?", "who made it?")
        pictures = [column.name for column in schema if _holds_bytes(column.type)]
        self.file = self.fields.file or (pictures[0] if len(pictures) == 1 else "")
        if self.file not in pictures:
            raise BadInput(
                f"{path}: which column holds the pictures? found {', '.join(pictures) or 'none of bytes'} among "
                f"{', '.join(schema.names)}",
                "name it: --file COLUMN; a table of captions is given beside its folder of pictures: --table FILE",
            )
        require_columns(str(path), schema.names, self.fields)
        require_once(str(path), schema.names)
        return int(about.num_rows)

    def __iter__(self) -> Iterator[Given]:
        self.done = 0
        for path in self.files:
            split, number = self.splits.get(path, ""), 0
            try:
                with self.parquet.ParquetFile(path) as opened:
                    for batch in opened.iter_batches(batch_size=ROWS):
                        for row in batch.to_pylist():
                            self.done += 1
                            sample = self._sample(f"{path.name} row {number}", row)
                            number += 1
                            yield sample if not split or sample.split or sample.fault else sample._replace(split=split)
            except (OSError, ValueError) as error:
                why = f"the file is broken: {error}, after row {number - 1}; what follows in it is lost"
                yield Given(path.name, b"", {}, fault=why)

    def share(self) -> float:
        return self.done / max(sum(self.counts), 1)

    def _sample(self, name: str, row: dict[str, Any]) -> Given:
        picture = row.get(self.file)
        data = picture.get("bytes") if isinstance(picture, dict) else picture
        if not data:
            return Given(name, b"", {}, fault="no picture")
        return described(name, data, {field: value for field, value in row.items() if field != self.file}, self.fields)


def _holds_bytes(kind: Any) -> bool:
    """binary, or a struct with a field `bytes`, as datasets writes pictures."""
    if str(kind) in ("binary", "large_binary"):
        return True
    return str(kind).startswith("struct") and any(kind.field(n).name == "bytes" for n in range(kind.num_fields))


def _split(path: Path) -> str:
    """train-00000-of-00003.parquet, or train/0000.parquet."""
    return next((SPLITS[name] for name in (path.name.split("-")[0], path.parent.name) if name in SPLITS), "")
