"""A reader that a user's own Python file brings: pictures that no reader of ours knows, imported like any other."""

from pathlib import Path

from fulcrum.data.readers.reader import Reader
from fulcrum.files.user_code import load
from fulcrum.spec.errors import BadInput

GUIDE = "docs/your-data.md"


def open_with(file: Path, source: str) -> tuple[Reader, dict[str, str]]:
    """The file's reader of what lies at `source`, and its name and hash: the data set's card says what read it."""
    own = load(file, GUIDE)
    readers = [cls for cls in own.classes() if Reader in cls.__mro__]
    if len(readers) != 1:
        raise BadInput(
            f"{file} defines {len(readers)} readers, expected one",
            f"write one class that derives from fulcrum.data.readers.reader.Reader: {GUIDE}",
        )
    reader = readers[0](source)
    if not isinstance(getattr(reader, "kind", None), str):
        raise BadInput(f"{file}: {readers[0].__name__} needs a `kind`, a word for what it reads", GUIDE)
    return reader, {"reader": readers[0].__name__, "reader_sha256": own.sha256}
