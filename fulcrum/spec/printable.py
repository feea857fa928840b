"""What comes from a file or a person, made safe to print: a name or a title must not move a terminal's cursor."""

from pathlib import Path


def shown(name: Path | str) -> str:
    """A name as one line that any terminal and any file can take: control characters and bytes that are no text escaped."""
    text = str(name)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def shown_lines(text: str) -> str:
    """The same of a text that may have several lines."""
    return "\n".join(map(shown, text.split("\n")))
