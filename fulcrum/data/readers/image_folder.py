"""Pictures in a folder: captioned by files beside them, or by one table (JSONL, CSV, Parquet)."""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from fulcrum.data.readers.parquet import open_parquet, parquet_rows
from fulcrum.data.readers.pictures import SUFFIXES, SVG, drawn
from fulcrum.data.readers.reader import (
    FILES,
    Fields,
    Given,
    bounded_lines,
    described,
    leads_out,
    read_untrusted,
    require_columns,
    require_once,
    sidecar,
    unusable,
)
from fulcrum.spec.errors import BadInput

TABLES = tuple(
    f"{stem}{suffix}"
    for stem in ("metadata", "captions")
    for suffix in (".jsonl", ".csv", ".parquet")
)
SIDECARS = (".txt", ".json")
MOST_LINE = 1 << 24  # letters or bytes of a table's line


def files_below(folder: Path) -> dict[str, str]:
    """Name within the folder -> suffix, of every visible file, sorted; folders behind links are not
    entered."""
    files = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if not name.startswith("."):
                whole = (Path(place) / name).relative_to(folder).as_posix()
                files[whole] = os.path.splitext(name)[1].lower()
    return dict(sorted(files.items()))


class FolderReader:
    """name.jpg with name.txt or name.json."""

    kind = "folder"

    def __init__(self, folder: Path, fields: Fields) -> None:
        self.folder, self.fields, self.done = folder, fields, 0
        self.files = files_below(folder)
        stems = {
            os.path.splitext(name)[0] for name, suffix in self.files.items() if suffix in SUFFIXES
        }
        if not stems and SVG not in self.files.values():
            raise BadInput(
                f"{folder} holds no pictures",
                f"looked for {', '.join(SUFFIXES)}, and for .tar shards",
            )
        drawings = {
            os.path.splitext(name)[0] for name, suffix in self.files.items() if suffix == SVG
        } - stems
        self.names = [
            name
            for name, suffix in self.files.items()
            if suffix in SUFFIXES
            or (suffix == SVG and os.path.splitext(name)[0] in drawings)
            or (suffix in SIDECARS and os.path.splitext(name)[0] not in stems | drawings)
        ]

    def __iter__(self) -> Iterator[Given]:
        for done, name in enumerate(self.names, 1):
            self.done = done
            yield self._sample(name)

    def share(self) -> float:
        return self.done / max(len(self.names), 1)

    def _sample(self, name: str) -> Given:
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in SIDECARS:
            return unusable(name, "a caption without its picture")
        if not any(stem + end in self.files for end in SIDECARS):
            return unusable(
                name, f"no caption: expected {os.path.basename(stem)}.txt or .json beside it"
            )
        try:
            beside = {
                end: self._caption(self.folder / (stem + end))
                for end in SIDECARS
                if stem + end in self.files
            }
            about = sidecar(beside.get(".txt"), beside.get(".json"))
            data = read_untrusted(self.folder / name)
            return described(
                name, drawn(data) if suffix.lower() == SVG else data, about, self.fields
            )
        except ValueError as error:
            return unusable(name, str(error))

    def _caption(self, path: Path) -> bytes:
        if leads_out(self.folder, path):
            raise ValueError(
                f"its {path.suffix} is a link that leads out of the folder; copy what it leads to"
            )
        return read_untrusted(path)


class TableReader:
    """Rows of a table, each naming a picture within the folder; pictures that no row names are left
    out and counted."""

    kind = "folder with a table"

    def __init__(self, folder: Path, table: Path, fields: Fields) -> None:
        self.folder, self.table, self.fields, self.done = folder, table, fields, 0
        if not table.is_file():
            raise BadInput(
                f"there is no table at {table.absolute()}", "expected .jsonl, .csv or .parquet"
            )
        self.pictures = {
            name: "" for name, suffix in files_below(folder).items() if suffix in SUFFIXES
        }
        if not self.pictures:
            raise BadInput(f"{folder} holds no pictures", f"looked for {', '.join(SUFFIXES)}")
        # a bad one is a bad sample only
        first = next((row for _, row in self._rows() if row is not None), None)
        if first is None:
            raise BadInput(f"{table} holds no rows that can be read", "expected one per picture")
        self.file = fields.file or next((name for name in FILES if name in first), "")
        if self.file not in first:
            raise BadInput(
                f"{table} has no column '{self.file or ' or '.join(FILES)}'; found"
                f" {', '.join(first)}",
                "name it: --file COLUMN",
            )
        require_columns(str(table), first, fields)

    @staticmethod
    def inside(folder: Path) -> Path | None:
        """The table that lies in a folder by its usual name."""
        tables = [folder / name for name in TABLES if (folder / name).is_file()]
        if len(tables) > 1:
            raise BadInput(
                f"{folder} holds two tables: {tables[0].name} and {tables[1].name}",
                "choose: --table FILE",
            )
        if tables and leads_out(folder, tables[0]):
            raise BadInput(
                f"{tables[0]} is a link that leads out of the folder",
                "if you trust it, name what it leads to: --table FILE",
            )
        return tables[0] if tables else None

    def __iter__(self) -> Iterator[Given]:
        named: set[str] = set()
        self.done = 0
        for number, row in self._rows():
            sample = self._sample(number, row, named)
            self.done = len(named)
            yield sample
        for name in self.pictures:
            if name not in named:
                yield Given(name, b"", {}, left="the table does not name it")

    def share(self) -> float:
        return self.done / max(len(self.pictures), 1)

    def _sample(self, number: int, row: dict[str, Any] | None, named: set[str]) -> Given:
        where = f"{self.table.name}, row {number}"
        name = row.get(self.file) if row is not None else None
        if row is None or not isinstance(name, str) or not name:
            return unusable(
                where, "cannot be read" if row is None else f"no file name under '{self.file}'"
            )
        if name.startswith(("/", "~")) or ".." in Path(name).parts:
            return unusable(where, f"a name that leads out of the folder: {name!r}")
        name = Path(name).as_posix()
        if name not in self.pictures:
            return unusable(where, f"names a picture that is not there: {name!r}")
        if name in named:
            return unusable(where, f"names a picture a second time: {name!r}")
        named.add(name)
        try:
            return described(name, read_untrusted(self.folder / name), row, self.fields)
        except ValueError as error:
            return unusable(name, str(error))

    def _rows(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        suffix = self.table.suffix.lower()
        rows = {".jsonl": self._jsonl, ".csv": self._csv, ".parquet": self._parquet}.get(suffix)
        if rows is None:
            raise BadInput(
                f"{self.table} is no table that can be read", "expected .jsonl, .csv or .parquet"
            )
        return enumerate(rows(), 1)

    def _jsonl(self) -> Iterator[dict[str, Any] | None]:
        with self.table.open("rb") as stream:
            for line in bounded_lines(stream, MOST_LINE):
                if line is not None and not line.strip():
                    continue
                try:
                    row = None if line is None else json.loads(line)
                except (ValueError, RecursionError):
                    row = None
                yield row if isinstance(row, dict) else None

    def _csv(self) -> Iterator[dict[str, Any] | None]:
        try:
            # spreadsheets begin theirs with a mark
            with self.table.open(newline="", encoding="utf-8-sig") as stream:
                # a quote that never closes eats the rest
                reader = csv.DictReader(_text_lines(stream), strict=True)
                require_once(str(self.table), reader.fieldnames or ())
                for row in reader:
                    whole = None not in row and None not in row.values()
                    yield {str(name): value for name, value in row.items()} if whole else None
        except (UnicodeDecodeError, csv.Error) as error:
            raise BadInput(
                f"{self.table} cannot be read: {error}", "expected CSV in UTF-8"
            ) from None

    def _parquet(self) -> Iterator[dict[str, Any] | None]:
        try:
            with open_parquet(self.table) as opened:
                require_once(str(self.table), opened.schema_arrow.names)
                yield from parquet_rows(opened)
        except (OSError, ValueError) as error:
            raise BadInput(f"{self.table} cannot be read: {error}", "is it whole?") from None


def _text_lines(stream: IO[str]) -> Iterator[str]:
    """Of a table in CSV; its reader would hold a line of any length."""
    while line := stream.readline(MOST_LINE + 1):
        if len(line) > MOST_LINE:
            raise csv.Error(f"a line has more than {MOST_LINE:,} letters")
        yield line
