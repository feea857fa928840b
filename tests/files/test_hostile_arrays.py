"""Entries of the array store that were harmed: refused in words, never written through, never mixed
up."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fulcrum.files import array_store as unfinished_entry
from fulcrum.files.array_store import ArrayStore
from fulcrum.files.paths import Damaged
from fulcrum.files.sealed import sealed, sha256_bytes
from fulcrum.spec.errors import RunFailed
from tests.files.small_arrays import arrays_of, assert_whole, entry, get


def _link(path: Path) -> None:
    moved = path.with_suffix(".moved")
    path.rename(moved)
    path.symlink_to(moved)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


HOSTILE: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "cut rows": ("rows.00000.bin", _cut, "should hold 296 bytes, found 295"),
    "no rows": ("rows.00000.bin", Path.unlink, "No such file"),
    "linked rows": ("rows.00000.bin", _link, "it is a link"),
    "piped rows": ("rows.00000.bin", _fifo, "it is a pipe"),
    "rows in a folder": ("rows.00000.bin", _folder, "it is a folder"),
    "cut table": ("chunks.bin", _cut, "chunks.bin cannot be read"),
    "table of none": (
        "chunks.bin",
        lambda path: path.write_bytes(b""),
        "was changed after it was written",
    ),
    "piped table": ("chunks.bin", _fifo, "it is a pipe"),
    "deep header": (
        "header.json",
        lambda path: path.write_text("[" * 200_000),
        "no readable header",
    ),
    "deep facts": (
        "header.json",
        lambda path: path.write_text('{"a":' * 200_000),
        "no readable header",
    ),
    "header of bad bytes": (
        "header.json",
        lambda path: path.write_bytes(b"\xff\xfe{}"),
        "no readable header",
    ),
    "empty header": ("header.json", lambda path: path.write_text("{}"), "no readable header"),
    "piped header": ("header.json", _fifo, "no readable header.*it is a pipe"),
    "header in a folder": ("header.json", _folder, "no readable header.*it is a folder"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", HOSTILE)
def test_damaged_entries_are_refused_in_words(case: str, tmp_path: Path) -> None:
    name, damage, message = HOSTILE[case]
    get(tmp_path)
    damage(entry(tmp_path) / name)
    with pytest.raises(Damaged, match=message) as error:
        get(tmp_path)
    assert "it will be encoded anew" in error.value.hint


SEALED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no arrays": lambda header: header.pop("arrays"),
    "arrays that are a list": lambda header: header.update(arrays=[]),
    "objects": lambda header: header["arrays"]["rows"].update(dtype="|O8"),
    "a shape below zero": lambda header: header["arrays"]["rows"].update(shape=[37, -2]),
    "an endless shape": lambda header: header["arrays"]["rows"].update(
        shape=[37, 1 << 47, 1 << 47]
    ),
    "no shape": lambda header: header["arrays"]["rows"].update(shape=[]),
    "fewer rows": lambda header: header["arrays"]["rows"].update(shape=[36, 2]),
    "a name outside": lambda header: header["arrays"].update({"../rows": header["arrays"]["rows"]}),
    "another layout": lambda header: header.update(layout=3),
    "other facts": lambda header: header.update(facts={"a": 2}),
    "another table": lambda header: header.update(chunks="0" * 64),
}


@pytest.mark.parametrize("case", SEALED)
def test_a_header_that_is_sealed_but_makes_no_sense_is_refused(case: str, tmp_path: Path) -> None:
    get(tmp_path)
    path = entry(tmp_path) / "header.json"
    header = json.loads(path.read_text())
    SEALED[case](header)
    path.write_text(json.dumps(header))
    with pytest.raises(Damaged, match=r"header.*changed after it was written"):
        get(tmp_path)
    path.write_text(json.dumps(sealed(header, "seal")))
    with pytest.raises(Damaged):
        get(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"), [("start", -1), ("start", 1 << 50), ("rows", -1), ("segment", -1)]
)
def test_a_table_that_points_outside_is_refused(field: str, value: int, tmp_path: Path) -> None:
    get(tmp_path)
    path = entry(tmp_path)
    table = np.frombuffer((path / "chunks.bin").read_bytes(), unfinished_entry.CHUNK).copy()
    table[field][1] = value
    (path / "chunks.bin").write_bytes(table.tobytes())
    header = json.loads((path / "header.json").read_text())
    header["chunks"] = sha256_bytes(table.tobytes())
    (path / "header.json").write_text(json.dumps(sealed(header, "seal")))
    with pytest.raises(Damaged):
        get(tmp_path)


@pytest.mark.parametrize(
    "bad",
    [b"\xff", b"[" * 200_000, b"{}", b'{"chunk": 1, "arrays": {"rows": 3}}', b'{"chunk": -1}'],
)
def test_a_journal_with_a_bad_line_costs_that_chunk_only(bad: bytes, tmp_path: Path) -> None:
    ArrayStore(tmp_path).share("thing", {"a": 1}, range(3), arrays_of)
    path = entry(tmp_path, ".making") / "00000.journal"
    first, second, third = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, bad, third, second[:30]]))
    made: list[int] = []
    assert_whole(get(tmp_path, made))
    assert made == [1, 3]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "suffix", ["", ".lock", ".making", ".making/00000.journal", ".making/rows.00000.bin"]
)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_of_ours_is_not_written_to(suffix: str, kind: str, tmp_path: Path) -> None:
    get(tmp_path / "other")
    folder, victim = tmp_path / entry(tmp_path / "other").name, tmp_path / "victim"
    victim.write_bytes(b"precious")
    path = Path(f"{folder}{suffix}")
    path.parent.mkdir(exist_ok=True)
    if kind == "folder" and suffix in ("", ".making"):
        pytest.skip("a folder belongs there")
    {
        "link": lambda: path.symlink_to(victim),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }[kind]()
    with pytest.raises(RunFailed):
        get(tmp_path)
    if suffix != ".lock":  # who makes some chunks only does not take the entry's lock
        with pytest.raises(RunFailed):
            ArrayStore(tmp_path).share("thing", {"a": 1}, range(2), arrays_of)
    assert victim.read_bytes() == b"precious"


@pytest.mark.skipif(os.getuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(RunFailed, match="cannot write the cache entry .*Permission denied"):
            get(tmp_path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    "change",
    [(b'"chunk": 1', b'"chunk": 3'), (b'"start": 10', b'"start": 0 ')],
    ids=["number", "place"],
)
def test_a_changed_bit_in_a_journal_never_puts_rows_where_others_belong(
    change: tuple[bytes, bytes], tmp_path: Path
) -> None:
    ArrayStore(tmp_path).share("thing", {"a": 1}, range(2), arrays_of)
    journal = entry(tmp_path, ".making") / "00000.journal"
    lines = journal.read_bytes()
    assert change[0] in lines
    journal.write_bytes(lines.replace(*change))
    made: list[int] = []
    assert_whole(get(tmp_path, made))
    assert 1 in made


def test_chunks_are_not_written_through_a_link(tmp_path: Path) -> None:
    ArrayStore(tmp_path).share("thing", {"a": 1}, range(1), arrays_of)
    making = entry(tmp_path, ".making")
    elsewhere = making.rename(tmp_path / "elsewhere")
    making.symlink_to(elsewhere)
    with pytest.raises(Damaged, match="is a link"):
        get(tmp_path)
