"""What comes from a file or a person, made safe to print: a name or a title must not move a terminal's cursor."""

import re
from pathlib import Path

_OBEYED = re.compile(  # controls but tab and line's end, marks that turn the direction of text, halves of letters
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def shown(name: Path | str) -> str:
    """A name as one line that any terminal and any file can take: control characters and bytes that are no text escaped."""
    text = str(name)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def shown_lines(text: str) -> str:
    """The same of a text that may have several lines."""
    return "\n".join(map(shown, text.split("\n")))


def inert(text: str) -> str:
    """A whole page with its own spaces and signs, in which nothing is left that a terminal or an editor would obey."""
    return _OBEYED.sub(lambda letter: letter.group().encode("unicode_escape").decode(), text)
