"""A dataset of the package `datasets` that was saved on disk (save_to_disk); the package is imported only here."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fulcrum.data.given import NAMES, SINGLE, Fields, Given, described
from fulcrum.data.given_folder import read_bytes
from fulcrum.spec.errors import BadInput


def is_saved(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or all((folder / name).is_file()
                                                            for name in ("dataset_info.json", "state.json"))


class SavedReader:
    """Rows of one split; pictures stay the bytes that were saved."""

    kind = "saved dataset"

    def __init__(self, folder: Path, fields: Fields) -> None:
        try:
            import datasets
        except ImportError:
            raise BadInput(f"{folder} was saved by the package datasets, which is not installed",
                           "pip install 'fulcrum-lab[datasets]'") from None
        self.folder, self.fields, self.done = folder, fields, 0
        if (folder / "dataset_dict.json").is_file():
            splits = sorted(one.name for one in folder.iterdir() if one.is_dir())
            raise BadInput(f"{folder} holds several splits: {', '.join(splits)}", f"import one: {folder}/{splits[0]}"
                           if splits else "it is empty")
        rows = datasets.load_from_disk(str(folder))
        pictures = [name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)]
        self.file = fields.file or (pictures[0] if len(pictures) == 1 else "")
        if self.file not in pictures:
            raise BadInput(f"{folder}: which column holds the pictures? found {', '.join(pictures) or 'none of pictures'} "
                           f"among {', '.join(rows.features)}", "name it: --file COLUMN")
        asked = [field for _, field in fields.captions] or [fields.group or self.file]
        missing = [name for name in asked if name not in rows.features]
        if missing or not (fields.captions or any(name in rows.features for name in (*NAMES, *SINGLE, "captions"))):
            raise BadInput(f"{folder} has no column '{[*missing, 'caption'][0]}'; found {', '.join(rows.features)}",
                           "name them: --caption NAME=COLUMN, --group COLUMN")
        self.rows = rows.cast_column(self.file, datasets.Image(decode=False))

    def __iter__(self) -> Iterator[Given]:
        for number, row in enumerate(self.rows):
            self.done = number + 1
            yield self._sample(f"row {number}", row)

    def share(self) -> float:
        return self.done / max(len(self.rows), 1)

    def _sample(self, name: str, row: dict[str, Any]) -> Given:
        picture = row.get(self.file) or {}
        data = picture.get("bytes")
        if data is None and picture.get("path"):
            if Path(picture["path"]).is_absolute() or ".." in Path(picture["path"]).parts:
                return Given(name, b"", {}, fault="its picture lies outside the dataset: save it with its bytes")
            try:
                data = read_bytes(self.folder, picture["path"])
            except ValueError as error:
                return Given(name, b"", {}, fault=f"its picture {error}")
        if not data:
            return Given(name, b"", {}, fault="no picture")
        return described(name, data, {field: value for field, value in row.items() if field != self.file}, self.fields)
