"""A dataset of the package `datasets` that was saved on disk (save_to_disk); the package is imported only here."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fulcrum.data.readers.columns import ColumnReader
from fulcrum.data.readers.reader import SPLITS, Fields, Given, parted, unusable
from fulcrum.data.readers.untrusted_file import read_untrusted
from fulcrum.spec.errors import BadInput, install_extra


def is_saved(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or all(
        (folder / name).is_file() for name in ("dataset_info.json", "state.json")
    )


class SavedReader(ColumnReader):
    """Rows of a dataset, or of all splits of a dictionary of them; pictures stay the bytes that were saved."""

    kind = "saved dataset"

    def __init__(self, folder: Path, fields: Fields) -> None:
        try:
            import datasets
        except ImportError:
            raise BadInput(
                f"{folder} was saved by the package datasets, which is not installed", install_extra("datasets")
            ) from None
        super().__init__(fields)
        self.folder = folder
        try:
            saved = datasets.load_from_disk(str(folder))
        except Exception as error:  # damaged files make that package and pyarrow raise what they like
            raise BadInput(f"{folder} cannot be read: {str(error)[:500]}", "is it whole? save it again") from None
        parts = dict(saved) if isinstance(saved, dict) else {"": saved}
        strange = [name for name in parts if name and name not in SPLITS]
        if strange or not parts:
            raise BadInput(
                f"{folder} holds a split called '{strange[0]}'; known: {', '.join(SPLITS)}"
                if strange
                else f"{folder} holds no split",
                f"import one: {folder}/{strange[0] if strange else 'train'}",
            )
        self.parts = {name: self._undecoded(rows, datasets) for name, rows in parts.items()}
        self.total = sum(map(len, self.parts.values()))
        self.splits = parted({name: SPLITS.get(name, "") for name in self.parts})

    def _undecoded(self, rows: Any, datasets: Any) -> Any:
        pictures = [name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)]
        self.choose_column(str(self.folder), pictures, rows.features, "none", "")
        for name, kind in rows.features.items():
            if getattr(kind, "decode", False):  # other pictures and sounds too: that package knows no limits
                rows = rows.cast_column(name, type(kind)(decode=False))
        return rows

    def __iter__(self) -> Iterator[Given]:
        self.done = 0
        for split, rows in self.parts.items():
            last = 0
            try:
                for last, row in enumerate(rows):
                    self.done += 1
                    yield self._sample(f"{split} row {last}".strip(), row, self.splits.get(split, ""))
            except (OSError, ValueError) as error:
                raise BadInput(f"{self.folder} cannot be read after row {last}: {error}", "save it again") from None

    def _sample(self, name: str, row: Mapping[str, Any], split: str) -> Given:
        picture = row.get(self.file) or {}
        data, path = picture.get("bytes"), picture.get("path")
        if data is None and path:
            if Path(path).is_absolute() or ".." in Path(path).parts:
                return unusable(name, "its picture lies outside the dataset: save it with its bytes")
            try:
                data = read_untrusted(self.folder / path)
            except ValueError as error:
                return unusable(name, f"its picture {error}")
        return self.sample(name, data, row, split)
