"""What a result says in a sentence, as data: a code, and the names and numbers that the sentence
states."""

from typing import Any

from pydantic import Field, JsonValue

from fulcrum.spec.record import Frozen


class Remark(Frozen):
    """Only code and values are kept and compared: the sentence may be worded differently later."""

    code: str
    values: dict[str, JsonValue] = {}
    text: str = Field(default="", exclude=True)


def remark(code: str, text: str, **values: Any) -> Remark:
    return Remark(code=code, values=values, text=text)
