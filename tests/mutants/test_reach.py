"""Which tests a mutant meets: those that execute its line; of a change that acts at import, all that use its module."""

from pathlib import Path

import pytest

from mutants import reach
from mutants.forked_tests import Ending
from mutants.operators import changes_of

RECORD = "class Header:\n    layout: int = 1\n"
READER = "from fulcrum.files.record import Header\n\n\ndef read():\n    return Header().layout + 1\n"


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
    reads, slow, other = (f"tests/files/test_reader.py::test_{name}" for name in ("reads", "slow", "other"))
    told = Ending(
        {reads: 0.1, slow: 9.0, other: 0.1},
        "",
        "",
        {reads: {"fulcrum/files/reader.py": [5]}, slow: {"fulcrum/files/reader.py": [5]}, other: {}},
    )
    monkeypatch.setattr(reach, "run_tests", lambda tree, files, **options: told)
    known = reach.Reach(tmp_path, tmp_path / "kept")
    (at_import,) = changes_of(RECORD)
    inside = next(one for one in changes_of(READER) if one.before == "+")
    assert known.tests_for("fulcrum/files/record.py", at_import, 20.0) == {reads: 0.1, slow: 9.0}
    assert known.tests_for("fulcrum/files/reader.py", inside, 1.0) == {reads: 0.1}
    elsewhere = inside._replace(lines=(1, 1))
    assert known.tests_for("fulcrum/files/reader.py", elsewhere, 20.0) == {}
