"""`# fulcrum: ignore[rule] reason`: a person's word that a fault is none, on its line or alone on the line above."""

import io
import re
import tokenize
from collections.abc import Iterable
from typing import NamedTuple

from fulcrum.advise.fault import Fault
from fulcrum.advise.rules.rule_list import BY_ID
from fulcrum.spec.errors import nearest

COMMENT = re.compile(r"#\s*fulcrum:\s*ignore\[([^\]]*)\]\s*(.*)$")
MEANT = re.compile(r"(?i)#\s*fulcrum\s*[:=]?\s*(ignored?|noqa|disabled?|skip|suppress)\b")  # it wants to answer something
FORM = "# fulcrum: ignore[rule] reason"


class Ignore(NamedTuple):
    rules: tuple[str, ...]
    reason: str
    place: str  # file:line of the comment
    lines: tuple[str, ...]  # file:line that it speaks of
    unread: str = ""  # the comment, where its form is not known


class Ignores(NamedTuple):
    comments: tuple[Ignore, ...]

    @classmethod
    def joined(cls, several: "Iterable[Ignores]") -> "Ignores":
        return cls(tuple(comment for one in several for comment in one.comments))

    def applied(self, faults: list[Fault], again: bool = False) -> tuple[list[Fault], list[tuple[str, str, str]]]:
        """Faults that stay, and those that a comment answers; a comment without a reason or of no rule is a fault of its
        own, told once."""
        stay, gone = list[Fault](), list[tuple[str, str, str]]()
        for fault in faults:
            reason = next(
                (
                    one.reason
                    for one in self.comments
                    if one.reason and fault.rule in one.rules and fault.place in one.lines
                ),
                "",
            )
            if reason:
                gone.append((fault.rule, fault.place, reason))
            else:
                stay.append(fault)
        return stay + ([] if again else self._faults()), gone

    def _faults(self) -> list[Fault]:
        faults = []
        for one in self.comments:
            if one.unread:
                faults.append(
                    _wrong(one.place, f"`{one.unread[:60]}` answers no fault: it names no rule", f"write: {FORM}")
                )
                continue
            unknown = [rule for rule in one.rules if rule not in BY_ID]
            if unknown:
                faults.append(_wrong(one.place, f"no rule is called '{unknown[0]}'", nearest(unknown[0], BY_ID)))
            if not one.reason:
                faults.append(_wrong(one.place, "a fault is ignored without a reason", f"write why: {FORM}"))
        return faults


def ignores_in(source: str, name: str) -> Ignores:
    comments = []
    lines = source.splitlines()
    for number, column, text in _comments(source, name):
        match = COMMENT.search(text)
        rules = tuple(rule.strip() for rule in match[1].split(",") if rule.strip()) if match else ()
        if match and rules:
            alone = not lines[number - 1][:column].strip()
            spoken_of = (f"{name}:{number}", *([f"{name}:{number + 1}"] if alone else []))
            comments.append(Ignore(rules, match[2].strip(), f"{name}:{number}", spoken_of))
        elif MEANT.search(text):
            comments.append(Ignore((), "", f"{name}:{number}", (), text.strip()))
    return Ignores(tuple(comments))


def _comments(source: str, name: str) -> list[tuple[int, int, str]]:
    """Line, column and text of every comment; in Python a text that only looks like one is none."""
    if not name.endswith(".py"):
        places = [(number, line.find("#"), line) for number, line in enumerate(source.splitlines(), 1)]
        return [(number, column, line[column:]) for number, column, line in places if column >= 0]
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):  # it was parsed, so this is a tokenizer's whim: nothing is ignored
        return []
    return [(*token.start, token.string) for token in tokens if token.type == tokenize.COMMENT]


def _wrong(place: str, seen: str, fix: str) -> Fault:
    return Fault(
        "ignore-comment",
        "design",
        "warning",
        place,
        seen,
        "a comment that answers nothing hides nothing",
        "none",
        (),
        fix,
        0.01,
        "line",
    )
