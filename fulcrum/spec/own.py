"""A person's own Python files: read under names of their own, and named with the line when their code fails."""

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import FrameType, ModuleType
from typing import NamedTuple

from pydantic import PydanticUserError, ValidationError

from fulcrum.spec.edit import explain
from fulcrum.spec.errors import BadInput

PREFIX = "fulcrum_user_"  # of the modules' names: so they are known in a traceback
GUIDE = "__guide__"  # in such a module: the page that says how to write it


class OwnFile(NamedTuple):
    module: ModuleType
    sha256: str  # of the file: it belongs into keys and cards

    def classes(self) -> list[type]:
        """What the file itself defines, imports left out."""
        return [
            value
            for value in vars(self.module).values()
            if isinstance(value, type) and value.__module__ == self.module.__name__
        ]


def load(path: Path, guide: str) -> OwnFile:
    """Run a person's file as a module; `guide` is the page that says how such a file is written."""
    if not path.is_file() or path.suffix != ".py":
        raise BadInput(f"there is no Python file at {path}", f"how to write one: {guide}")
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    spec = importlib.util.spec_from_file_location(f"{PREFIX}{path.stem}_{content[:12]}", path)
    assert spec is not None and spec.loader is not None  # the suffix says Python
    module = importlib.util.module_from_spec(spec)
    setattr(module, GUIDE, guide)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # their own code may raise anything
        del sys.modules[spec.name]
        raise failed(error, f"{path} cannot be used", guide) from error
    return OwnFile(module, content)


def failed(error: BaseException, what: str, guide: str = "") -> BadInput:
    """An error of a person's own code as one that they can act on."""
    guide = guide or guide_of(error)
    hint = f"correct the file: {guide}" if guide else "this is not your file's fault: please report it"
    return BadInput(f"{what}: {told(error)}", f"{hint}; FULCRUM_TRACEBACK=1 shows the whole way there")


def told(error: BaseException) -> str:
    """What code said when it failed, in one line, and the line of a person's own file that it came from."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    if isinstance(error, ValidationError):
        said = f"the settings of {error.title} are not right: {explain(error)}"
    elif isinstance(error, PydanticUserError):  # most often a lever's fact that is not marked as one
        said = f"{error.message}".split("\n")[0]
    else:
        said = f"{type(error).__name__}: {getattr(error, 'message', error)}"
    where = place(error)
    return f"{said} ({where})" if where else said


def place(error: BaseException | None) -> str:
    """The line of a person's own file that an error came from, such as "own.py, line 12"; empty where none had a part."""
    frame = _frame(error)
    return f"{frame[0].f_code.co_filename}, line {frame[1]}" if frame else ""


def home(thing: object) -> str:
    """ " (own.py)" for what a person's own file defines, nothing for ours: it follows a name in a message."""
    module = sys.modules.get(type(thing).__module__)
    return f" ({module.__file__})" if module is not None and module.__name__.startswith(PREFIX) else ""


def guide_of(error: BaseException) -> str:
    frame = _frame(error)
    return str(frame[0].f_globals.get(GUIDE, "")) if frame else ""


def _frame(error: BaseException | None) -> tuple[FrameType, int] | None:
    """The innermost frame of a person's own code in a traceback, or in that of what caused it."""
    while error is not None:
        found = [
            (frame, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if str(frame.f_globals.get("__name__", "")).startswith(PREFIX)
        ]
        if found:
            return found[-1]
        error = error.__cause__
    return None
