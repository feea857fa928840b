"""Tables whose rows hold the pictures themselves: which column does, and a sample from a row."""

from collections.abc import Iterable, Mapping
from typing import Any

from fulcrum.data.readers.reader import Fields, Given, described, require_columns, unusable
from fulcrum.spec.errors import BadInput


class ColumnReader:
    """What readers of such tables have in common."""

    def __init__(self, fields: Fields) -> None:
        self.fields, self.done, self.total, self.file = fields, 0, 0, ""

    def share(self) -> float:
        return self.done / max(self.total, 1)

    def choose_column(self, where: str, pictures: list[str], columns: Iterable[str], none: str, hint: str) -> None:
        """The one that is named, or the only one that can hold pictures."""
        columns = list(columns)
        self.file = self.fields.file or (pictures[0] if len(pictures) == 1 else "")
        if self.file not in pictures:
            raise BadInput(
                f"{where}: which column holds the pictures? found {', '.join(pictures) or none} among {', '.join(columns)}",
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
