"""Load a user's own Python or TOML file from the bytes that were hashed."""

import importlib.util
import linecache
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fulcrum.files.paths import read_regular
from fulcrum.files.sealed import sha256_bytes
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import GUIDE, PREFIX, failed

# --------------------------------------------------------------------------------------------------
# TOML that a person wrote, parsed up to a size.


MOST_LETTERS = 4_000_000


def parse_toml(text: str) -> dict[str, Any]:
    """The tables, or a ValueError that says in words why there are none."""
    if len(text) > MOST_LETTERS:
        raise ValueError(f"it has {len(text):,} letters, more than {MOST_LETTERS:,}")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


# --------------------------------------------------------------------------------------------------
# A person's own Python file: compiled and run from the very bytes that were hashed, never through
# `__pycache__`.
#
# What its code says when it fails is told by `fulcrum.spec.phrase`, which knows such a module by
# its name.


# in such a module: of the bytes that it was run from, whatever its file holds by now
_SHA256 = "__sha256__"


class UserFile(NamedTuple):
    module: ModuleType
    sha256: str  # of the file: it belongs into keys and cards

    def classes(self) -> list[type]:
        """What the file itself defines, imports left out."""
        name = self.module.__name__
        return [
            value
            for value in vars(self.module).values()
            if isinstance(value, type) and value.__module__ == name
        ]


def load(path: Path, guide: str) -> UserFile:
    """Run a person's file as a module; `guide` is the page that says how such a file is written."""
    if not path.is_file() or path.suffix != ".py":
        raise BadInput(f"there is no Python file at {path}", f"how to write one: {guide}")
    try:
        source = read_regular(path)
    except OSError as error:
        raise failed(error, f"{path} cannot be used", guide) from error
    content = sha256_bytes(source)
    spec = importlib.util.spec_from_file_location(f"{PREFIX}{path.stem}_{content[:12]}", path)
    assert spec is not None  # the suffix says Python
    # __file__ and __spec__, with the whole path; its loader is not used
    module = importlib.util.module_from_spec(spec)
    name = str(module.__file__)
    setattr(module, GUIDE, guide)
    setattr(module, _SHA256, content)
    sys.modules[module.__name__] = module
    try:
        code = compile(source, name, "exec", dont_inherit=True)
        _remember_source(name, source)
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:  # their own code may raise anything
        del sys.modules[module.__name__]
        raise failed(error, f"{path} cannot be used", guide) from error
    return UserFile(module, content)


def hash_of(module: ModuleType) -> str | None:
    """Of the bytes that a module was run from by `load`; None of what Python itself imported."""
    value = vars(module).get(_SHA256)
    return value if isinstance(value, str) else None


def _remember_source(name: str, source: bytes) -> None:
    """Tracebacks show the lines that run, also of a file edited meanwhile: an entry without a time
    is never renewed."""
    lines = importlib.util.decode_source(source).splitlines(keepends=True)
    linecache.cache[name] = (len(source), None, lines, name)
