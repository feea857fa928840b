"""Text from files, made safe for a terminal."""

from fulcrum.spec.errors import inert, shown, shown_lines


def test_what_a_terminal_would_obey_is_escaped():
    assert shown("a\x1b[2Jb\rc\x07\x9b31m") == "a\\x1b[2Jb\\rc\\x07\\x9b31m"
    # turned text, a byte that is no text
    assert shown("up\u202edown\udcff\n") == "up\\u202edown\\udcff\\n"
    assert shown("Zwölf 日本 🐱 · plain") == "Zwölf 日本 🐱 · plain"


def test_lines_stay_lines():
    assert shown_lines("one\n  two\x1b]0;title\x07\n") == "one\n  two\\x1b]0;title\\x07\n"


def test_a_page_keeps_its_own_signs_and_nothing_that_is_obeyed():
    assert inert("a\u00a0b\tc\n\u2011\U0001f431") == "a\u00a0b\tc\n\u2011\U0001f431"
    assert inert("\x1b[2J\r\0\x9b\u202e\ud800") == "\\x1b[2J\\r\\x00\\x9b\\u202e\\ud800"
