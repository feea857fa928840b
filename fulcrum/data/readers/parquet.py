"""Read Parquet files and saved datasets that hold the pictures themselves."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
# Parquet files that hold the pictures themselves, as the hub's datasets do; pyarrow is imported
# only here.


_FREE = 1 << 26  # bytes that may unfold to anything


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
    """Open the file; BadInput if it is none, or if its footer states an unreasonable size."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise BadInput(
            f"reading {path.name} needs the package pyarrow", install_extra("datasets")
        ) from None
    try:
        opened = parquet.ParquetFile(path)
        about = opened.metadata
        total = sum(
            about.row_group(number).total_byte_size for number in range(about.num_row_groups)
        )
    # pyarrow's own errors derive from these
    except (OSError, ValueError, NotImplementedError) as error:
        raise BadInput(f"{path} cannot be read: {error}", "is it whole?") from None
    if total > _FREE + MOST_RATIO * path.stat().st_size:
        opened.close()
        raise BadInput(f"{path} unfolds to {total:,} bytes: a decompression bomb?", "who made it?")
    return opened


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
