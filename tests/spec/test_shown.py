"""Text from files, made safe for a terminal."""

from fulcrum.spec.printable import shown, shown_lines


def test_what_a_terminal_would_obey_is_escaped():
    assert shown("a\x1b[2Jb\rc\x07\x9b31m") == "a\\x1b[2Jb\\rc\\x07\\x9b31m"
    assert shown("up\u202edown\udcff\n") == "up\\u202edown\\udcff\\n"  # turned text, a byte that is no text
    assert shown("Zwölf 日本 🐱 · plain") == "Zwölf 日本 🐱 · plain"


def test_lines_stay_lines():
    assert shown_lines("one\n  two\x1b]0;title\x07\n") == "one\n  two\\x1b]0;title\\x07\n"
