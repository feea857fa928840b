"""TOML within limits: what is small to write is not long to parse."""

import time

import pytest

from fulcrum.files.user_code import MOST_LETTERS, parse_toml


@pytest.mark.parametrize(
    "text, why",
    [
        ("x = " + "[" * 5_000, "nested too deep"),
        ("x = " + "9" * 5_000, "digits"),
        ("a" * (MOST_LETTERS + 1), "letters"),
    ],
    ids=lambda text: text[:12],
)
def test_what_is_beyond_measure_is_refused_at_once(text: str, why: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ValueError, match=why):
        parse_toml(text)
    assert time.monotonic() - begun < 5


def test_what_people_write_is_parsed() -> None:
    text = "a.b.c = 1\nurl = 'https://a.b.c.d.example/x.y.z'\ndots = '" + "...." * 50 + "'\n"
    assert parse_toml(text)["a"] == {"b": {"c": 1}}
    long = "a = 1 #"
    # as many as there may be
    assert parse_toml(long + "." * (MOST_LETTERS - len(long))) == {"a": 1}
