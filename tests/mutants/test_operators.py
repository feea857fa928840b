"""Small changes to a text: what is changed, what is left alone, and that a changed function is
swapped in."""

import sys
from pathlib import Path

import pytest

from mutants import forked_tests
from mutants.operators import changes_of
from mutants.sampled_run import ROOMS, files_of, sample
from mutants.tree_copy import ROOT

TEXT = '''"""1 + 1"""
from typing import Literal
LIMIT = 3

def f(a: int | None, *, b: Literal[1, 2] = 1) -> int | str:
    assert a is not None
    if a < LIMIT and not b:
        raise ValueError(f"{a + 1} is {1 - 2}")
    a += 2
    send(a, flush=True)
    return max(a, -b) ** 2
'''

DECORATED = """from contextlib import contextmanager
from functools import lru_cache

class A:
    @property
    def b(self):
        return [1 + k for k in range(2)]

@contextmanager
def c():
    yield 1 + 1

@lru_cache
def d():
    return 1
"""


def told() -> set[tuple[int, str, str]]:
    return {(one.line, one.before, one.after) for one in changes_of(TEXT)}


def test_operators_numbers_words_and_statements_are_changed() -> None:
    assert {
        (3, "3", "4"),
        (7, "<", "<="),
        (7, "and", "or"),
        (7, "not ", ""),
        (9, "+=", "-="),
        (10, "send(a, flush=True)", "pass"),
        (10, "flush=True", ""),
        (10, "True", "False"),
        (11, "max", "min"),
        (11, "-", ""),
        (11, "**", "*"),
        (5, "1", "2"),
    } <= told()


def test_annotations_messages_and_assertions_are_left_alone() -> None:
    assert {line for line, _, _ in told()} == {3, 5, 7, 8, 9, 10, 11}
    assert {(line, after) for line, _, after in told() if line in (5, 8)} == {(5, "2"), (8, "pass")}


def test_every_change_gives_another_text_that_compiles() -> None:
    texts = [one.applied(TEXT) for one in changes_of(TEXT)]
    assert len(set(texts)) == len(texts) and TEXT not in texts
    for text in texts:
        compile(text, "changed", "exec", dont_inherit=True)


def test_a_change_of_a_default_acts_when_the_module_is_imported() -> None:
    assert {one.line: one.inside for one in changes_of(TEXT)} == {
        3: False,
        5: False,
        **dict.fromkeys((7, 8, 9, 10, 11), True),
    }


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_of_the_sample_has_its_files(room: str, tmp_path: Path) -> None:
    assert len(files_of(room)) >= len(ROOMS[room])
    places = [tmp_path / "fulcrum/moved" / name for name in ROOMS[room]]
    places = [place if place.suffix else place / "topic/deep.py" for place in places]
    for place in (*places, tmp_path / "fulcrum/moved/other.py"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    assert files_of(room, tmp_path) == sorted(places)
    places[0].unlink()
    with pytest.raises(LookupError, match=ROOMS[room][0]):
        files_of(room, tmp_path)


@pytest.mark.slow  # six thousand texts are compiled, three times
def test_a_sample_is_the_same_for_a_seed_and_takes_as_many_of_each_room() -> None:
    first, again, other = (sample(5, seed) for seed in (0, 0, 1))
    assert first == again != other and len(first) == 20
    assert all(one.change.applied((ROOT / one.file).read_text()) for one in first)


def test_a_changed_function_is_swapped_in_also_under_decorators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = DECORATED
    (tmp_path / "swapped_here.py").write_text(before)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(forked_tests, "_IMPORTED", {})
    module = __import__("swapped_here")
    forked_tests.know_functions(tmp_path)
    after = (
        before.replace("1 + k", "2 + k")
        .replace("yield 1 + 1", "yield 1 - 1")
        .replace("return 1\n", "return 7\n")
    )
    forked_tests.swap(tmp_path, "swapped_here.py", before, after)
    with module.c() as c:
        assert (module.A().b, c, module.d()) == ([2, 3], 0, 7)
    with pytest.raises(LookupError, match="has changed"):
        forked_tests.swap(tmp_path, "swapped_here.py", before, before)
    del sys.modules["swapped_here"]
