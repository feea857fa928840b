"""Which tests a mutant meets: those that execute its line; of a change that acts at import, all
that use its module."""

from pathlib import Path

import pytest

from mutants import reach
from mutants.forked_tests import Ending
from mutants.operators import changes_of

RECORD = "class Header:\n    layout: int = 1\n"
READER = (
    "from fulcrum.files.record import Header\n\n\ndef read():\n    return Header().layout + 1\n"
)


def test_a_record_without_functions_is_met_by_tests_of_what_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "fulcrum/files/record.py": RECORD,
        "fulcrum/files/reader.py": READER,
        "tests/files/test_reader.py": "from fulcrum.files.reader import read\n",
        "tests/study/test_far.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    reads, slow, other = (
        f"tests/files/test_reader.py::test_{name}" for name in ("reads", "slow", "other")
    )
    told = Ending(
        {reads: 0.1, slow: 9.0, other: 0.1},
        "",
        "",
        {
            reads: {"fulcrum/files/reader.py": [5]},
            slow: {"fulcrum/files/reader.py": [5]},
            other: {},
        },
    )
    monkeypatch.setattr(reach, "run_tests", lambda tree, files, **options: told)
    known = reach.Reach(tmp_path, tmp_path / "kept")
    (at_import,) = changes_of(RECORD)
    inside = next(one for one in changes_of(READER) if one.before == "+")
    assert known.tests_for("fulcrum/files/record.py", at_import, 20.0) == {reads: 0.1, slow: 9.0}
    assert known.tests_for("fulcrum/files/reader.py", inside, 1.0) == {reads: 0.1}
    elsewhere = inside._replace(lines=(1, 1))
    assert known.tests_for("fulcrum/files/reader.py", elsewhere, 20.0) == {}


def test_files_are_watched_one_by_one_and_only_until_there_are_tests_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        f"tests/files/test_{name}.py": "#" * size
        for name, size in {"far": 3, "near": 5, "reader": 9}.items()
    }
    for name, text in {"fulcrum/files/reader.py": READER, **texts}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    watched = []

    def run_tests(tree: Path, files: list[str], **options: object) -> Ending:
        watched.append(files[0])
        test = f"{files[0]}::test_reads"
        return Ending({test: 4.0}, "", "", {test: {"fulcrum/files/reader.py": [5]}})

    monkeypatch.setattr(reach, "run_tests", run_tests)
    change = next(one for one in changes_of(READER) if one.before == "+")
    for most, asked in (
        (20.0, ["reader", "far", "near"]),
        (8.0, ["reader", "far"]),
        (4.0, ["reader"]),
    ):
        watched.clear()
        rounds = list(
            reach.Reach(tmp_path, tmp_path / f"kept {most}").rounds(
                "fulcrum/files/reader.py", change, most
            )
        )
        assert [file for tests in rounds for file in tests] == [
            f"tests/files/test_{name}.py::test_reads" for name in asked
        ]
        assert watched == [f"tests/files/test_{name}.py" for name in asked]
    (known,) = reach.Reach(tmp_path, tmp_path / "kept 20.0").rounds(
        "fulcrum/files/reader.py", change, 20.0
    )
    assert len(known) == 3, "of what is known all at once"
