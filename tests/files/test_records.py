"""JSON lines: a bad one is named and costs itself, nothing else."""

import json
import os
from pathlib import Path

import pytest

from fulcrum.files.sealed import append_bytes, append_records, keep_records, read_records, read_tail
from fulcrum.spec.errors import BadInput

GOOD = b'{"images": 16, "loss": 1.0}\n'


def test_lines_come_back_as_they_were_appended(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    assert read_records(path).lines == [] and read_tail(path) == []
    append_records(path, {"images": 16, "loss": 1.0})
    append_records(path, {"images": 32}, {"images": 48})
    assert path.read_bytes() == GOOD + b'{"images": 32}\n{"images": 48}\n'
    records = read_records(path)
    assert (
        [value["images"] for value in records.values]
        == [16, 32, 48]
        == [value["images"] for value in read_tail(path)]
    )
    assert records.faults == [] and not records.cut


@pytest.mark.parametrize(
    "bad", [b"\xff\xfe", b"{", b"[1]", b"7", b"", b"[" * 200_000, b'{"a": "\xc3"}']
)
def test_a_bad_line_is_named_and_passed_over(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "record.jsonl"
    path.write_bytes(GOOD + bad + b"\n" + GOOD)
    records = read_records(path)
    assert len(records.values) == 2 and len(records.faults) == 1
    assert records.faults[0].startswith(f"line 2 of {path} cannot be read: ")
    with pytest.raises(BadInput, match=r"line 2 of .*record.jsonl cannot be read") as error:
        records.require_good("remove it")
    assert error.value.hint == "remove it" and len(read_tail(path)) in (1, 2)


def test_a_last_line_that_was_cut_off_is_no_reason_to_refuse_and_the_next_begins_anew(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record.jsonl"
    path.write_bytes(GOOD + b'{"images": 3')
    records = read_records(path)
    assert (
        records.cut and records.require_good("") == [json.loads(GOOD)] and len(records.faults) == 1
    )
    append_records(path, {"images": 48})
    assert path.read_bytes() == GOOD + b'{"images": 3\n{"images": 48}\n'
    assert [value["images"] for value in read_records(path).values] == [16, 48]


def test_the_tail_is_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    append_records(path, *({"images": number} for number in range(100)))
    append_bytes(path, b'{"images": 1')
    assert read_tail(path, size=60) == [{"images": 97}, {"images": 98}, {"images": 99}]
    assert len(read_tail(path)) == 100


def test_a_resume_keeps_good_lines_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    odd = b'{"loss":1.50,  "images":32}\n'
    path.write_bytes(GOOD + b"\xff\n" + odd + b'{"images": 64}\n{"images": 8')
    faults = keep_records(path, lambda line: line["images"] <= 32)
    assert path.read_bytes() == GOOD + odd
    assert [fault.split(" of ")[0] for fault in faults] == ["line 2", "line 5"]
    assert os.listdir(tmp_path) == ["record.jsonl"]


def test_of_many_bad_lines_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    for bad in (20, 21, 1_523):
        path.write_bytes(b"7\n" * bad + GOOD)
        faults = keep_records(path, lambda line: True)
        assert [fault.split(" of ")[0] for fault in faults[:20]] == [
            f"line {number}" for number in range(1, 21)
        ]
        assert faults[20:] == (
            [] if bad == 20 else [f"{bad - 20:,} more lines of {path} cannot be read"]
        )
        assert path.read_bytes() == GOOD


def test_a_record_that_is_not_there_is_made(tmp_path: Path) -> None:
    assert keep_records(tmp_path / "record.jsonl", lambda line: True) == []
    assert (tmp_path / "record.jsonl").read_bytes() == b""


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_plain_file_is_refused_and_set_aside(tmp_path: Path, kind: str) -> None:
    path, theirs = tmp_path / "record.jsonl", tmp_path / "theirs"
    theirs.write_text("precious")
    {
        "link": lambda: path.symlink_to(theirs),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }[kind]()
    for write in (
        lambda: append_records(path, {"images": 1}),
        lambda: append_bytes(path, b"x"),
        lambda: read_records(path),
    ):
        with pytest.raises(OSError):
            write()
    assert read_tail(path) == []
    faults = keep_records(path, lambda line: True)
    assert len(faults) == 1 and "set aside as damaged-record.jsonl" in faults[0]
    assert path.read_bytes() == b"" and not path.is_symlink() and theirs.read_text() == "precious"
    append_records(path, {"images": 1})
    assert len(read_records(path).values) == 1
