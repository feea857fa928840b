"""What a person's own Python file said when its code failed, in one line that names the file and the line.

`files.user_code` runs such files, under module names by which they are known here.
"""

import sys
import traceback
from types import FrameType

from pydantic import PydanticUserError, ValidationError

from fulcrum.spec.edit import explain
from fulcrum.spec.errors import BadInput

PREFIX = "fulcrum_user_"  # of the modules' names: so they are known in a traceback
GUIDE = "__guide__"  # in such a module: the page that says how to write it


def failed(error: BaseException, what: str, guide: str = "") -> BadInput:
    """An error of a person's own code as one that they can act on."""
    guide = guide or guide_of(error)
    hint = f"correct the file: {guide}" if guide else "this is not your file's fault: please report it"
    return BadInput(f"{what}: {described(error)}", f"{hint}; FULCRUM_TRACEBACK=1 shows the whole way there")


def described(error: BaseException) -> str:
    """What code said when it failed, in one line, and the line of a person's own file that it came from."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    if isinstance(error, ValidationError):
        words = f"the settings of {error.title} are not right: {explain(error)}"
    elif isinstance(error, PydanticUserError):  # most often a lever's fact that is not marked as one
        words = f"{error.message}".split("\n")[0]
    else:
        words = f"{type(error).__name__}: {getattr(error, 'message', error)}"
    where = place(error)
    return f"{words} ({where})" if where else words


def place(error: BaseException | None) -> str:
    """The line of a person's own file that an error came from, such as "own.py, line 12"; empty where none had a part."""
    frame = _frame(error)
    return f"{frame[0].f_code.co_filename}, line {frame[1]}" if frame else ""


def home(value: object) -> str:
    """ " (own.py)" for what a person's own file defines, nothing for ours: it follows a name in a message."""
    module = sys.modules.get(getattr(value, "__module__", ""))
    return f" ({module.__file__})" if module is not None and module.__name__.startswith(PREFIX) else ""


def guide_of(error: BaseException) -> str:
    frame = _frame(error)
    return str(frame[0].f_globals.get(GUIDE, "")) if frame else ""


def _frame(error: BaseException | None) -> tuple[FrameType, int] | None:
    """The innermost frame of a person's own code in a traceback, or in that of what caused it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # anybody's `raise a from a` is a circle
        seen.add(id(error))
        frames = [
            (frame, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if str(frame.f_globals.get("__name__", "")).startswith(PREFIX)
        ]
        if frames:
            return frames[-1]
        error = error.__cause__
    return None
