"""What is published of a run, without where files lay: of a path its last name, of an address no secret."""

import re
from collections.abc import Iterator
from typing import Any

from fulcrum.files.remote import is_remote, without_secrets

PUBLIC = ("hub:", "pip:")  # ids that mean the same on any machine
_SEPARATOR = re.compile(r"[/\\]")
_ADDRESS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>(),]*")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_BARE = re.compile(r"[^\s,()=\"'][^\s,()=]*")  # a quote may stand inside of a name
_CALL = re.compile(r"\w+\(.*\)", re.DOTALL)
SET = " --set "


def last_name(text: str) -> str:
    """Of a path the last name, of an address all but its secrets; anything else as it is."""
    if is_remote(text):
        return without_secrets(text)
    if text.startswith(PUBLIC):
        return text
    return _SEPARATOR.split(text.rstrip("/\\"))[-1]


def placeless(value: Any) -> Any:
    """Plain data of a run, in which no word holds a separator unless it is part of a path."""
    if isinstance(value, str):
        return last_name(value)
    if isinstance(value, list | tuple):
        return [placeless(item) for item in value]
    return {name: placeless(item) for name, item in value.items()} if isinstance(value, dict) else value


def placeless_card(value: Any) -> Any:
    """The same of a card, which has sentences too: in these, what begins as a path or is an address."""
    if isinstance(value, str) and any(sign.isspace() for sign in value) and not value.startswith(("/", "~", ".")):
        text = _ADDRESS.sub(lambda address: without_secrets(address.group()), value)
        return re.sub(r"(?<![\w.:/])[/~][^\s,;()]*/[^\s,;()]*", lambda path: last_name(path.group()), text)
    if isinstance(value, list):
        return [placeless_card(item) for item in value]
    return {name: placeless_card(item) for name, item in value.items()} if isinstance(value, dict) else placeless(value)


def without_places(text: str, run: Any) -> str:
    """A phrase, or a part of a run in words: every path that the run's description holds, then whatever is written like
    one."""
    for path in sorted(set(_places(run)), key=len, reverse=True):
        for spelling in (path, repr(path)[1:-1]):
            text = text.replace(spelling, last_name(path))
    phrase, *settings = text.split(SET)
    return SET.join([_in_words(phrase), *map(_setting, settings)])


def _places(value: Any) -> Iterator[str]:
    if isinstance(value, str) and last_name(value) not in ("", value):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _places(item)


def _setting(text: str) -> str:
    slot, equals, value = text.partition("=")
    return slot + equals + (_in_words(value) if _CALL.fullmatch(value) else last_name(value))


def _in_words(text: str) -> str:
    """What stands in quotes is one word, whatever signs are in it."""
    ends, parts = 0, []
    for quoted in _QUOTED.finditer(text):
        parts += [_bare(text[ends : quoted.start()]), _requoted(quoted.group())]
        ends = quoted.end()
    return "".join([*parts, _bare(text[ends:])])


def _requoted(text: str) -> str:
    return text[0] + last_name(text[1:-1]) + text[-1]


def _bare(text: str) -> str:
    text = _ADDRESS.sub(lambda address: without_secrets(address.group()), text)
    return _BARE.sub(lambda word: last_name(word.group()), text)
