"""A dataset of the package `datasets` that was saved on disk (save_to_disk); the package is imported only here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fulcrum.data.readers.reader import SPLITS, Fields, Given, described, parted, require_columns
from fulcrum.data.readers.untrusted_file import read_untrusted
from fulcrum.spec.errors import BadInput
from fulcrum.spec.install import install_extra


def is_saved(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or all(
        (folder / name).is_file() for name in ("dataset_info.json", "state.json")
    )


class SavedReader:
    """Rows of a dataset, or of all splits of a dictionary of them; pictures stay the bytes that were saved."""

    kind = "saved dataset"

    def __init__(self, folder: Path, fields: Fields) -> None:
        try:
            import datasets
        except ImportError:
            raise BadInput(
                f"{folder} was saved by the package datasets, which is not installed", install_extra("datasets")
            ) from None
        self.folder, self.fields, self.done = folder, fields, 0
        try:
            found = datasets.load_from_disk(str(folder))
        except (OSError, ValueError, KeyError, TypeError) as error:  # pyarrow's own errors derive from these
            raise BadInput(f"{folder} cannot be read: {error}", "is it whole? save it again") from None
        self.parts = dict(found) if isinstance(found, dict) else {"": found}
        strange = [name for name in self.parts if name and name not in SPLITS]
        if strange or not self.parts:
            raise BadInput(
                f"{folder} holds a split called '{strange[0]}'; known: {', '.join(SPLITS)}"
                if strange
                else f"{folder} holds no split",
                f"import one: {folder}/{strange[0] if strange else 'train'}",
            )
        self.parts = {name: self._checked(rows, datasets) for name, rows in self.parts.items()}
        self.splits = parted({name: SPLITS.get(name, "") for name in self.parts})

    def _checked(self, rows: Any, datasets: Any) -> Any:
        pictures = [name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)]
        self.file = self.fields.file or (pictures[0] if len(pictures) == 1 else "")
        if self.file not in pictures:
            raise BadInput(
                f"{self.folder}: which column holds the pictures? found {', '.join(pictures) or 'none'} among "
                f"{', '.join(rows.features)}",
                "name it: --file COLUMN",
            )
        require_columns(str(self.folder), rows.features, self.fields)
        return rows.cast_column(self.file, datasets.Image(decode=False))

    def __iter__(self) -> Iterator[Given]:
        self.done = 0
        for split, rows in self.parts.items():
            last = 0
            try:
                for last, row in enumerate(rows):
                    self.done += 1
                    sample = self._sample(f"{split} row {last}".strip(), row)
                    own = self.splits.get(split, "")
                    yield sample if not own or sample.split or sample.fault else sample._replace(split=own)
            except (OSError, ValueError) as error:
                raise BadInput(f"{self.folder} cannot be read after row {last}: {error}", "save it again") from None

    def share(self) -> float:
        return self.done / max(sum(map(len, self.parts.values())), 1)

    def _sample(self, name: str, row: dict[str, Any]) -> Given:
        picture = row.get(self.file) or {}
        data = picture.get("bytes")
        if data is None and picture.get("path"):
            if Path(picture["path"]).is_absolute() or ".." in Path(picture["path"]).parts:
                return Given(name, b"", {}, fault="its picture lies outside the dataset: save it with its bytes")
            try:
                data = read_untrusted(self.folder / picture["path"])
            except ValueError as error:
                return Given(name, b"", {}, fault=f"its picture {error}")
        if not data:
            return Given(name, b"", {}, fault="no picture")
        return described(name, data, {field: value for field, value in row.items() if field != self.file}, self.fields)
