"""Hashes and seals come out as in the files that were written before; whatever cannot be read is
said in one sentence."""

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from fulcrum.files import sealed as module
from fulcrum.files.paths import Damaged
from fulcrum.files.sealed import (
    SEAL,
    is_intact,
    read_json,
    read_sealed,
    seal,
    sealed,
    sha256_bytes,
    sha256_file,
    sha256_json,
    sha256_text,
    write_sealed,
)
from fulcrum.spec.errors import BadInput, RunFailed

VALUE = {"images": 512, "loss": 0.25, "name": "zwölf", "deep": {"b": [1, None], "a": True}}


def test_hashes_are_those_of_the_older_helpers(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc" * 100_000)
    assert sha256_file(tmp_path / "x") == hashlib.sha256(b"abc" * 100_000).hexdigest()
    assert (
        sha256_bytes(b"abc", 12) == "ba7816bf8f01" and sha256_text("abc", 16) == "ba7816bf8f01cfea"
    )
    assert (
        sha256_json(VALUE) == hashlib.sha256(json.dumps(VALUE, sort_keys=True).encode()).hexdigest()
    )
    plain = json.dumps(
        ["reference", "a", "b", 64, 3]
    )  # measure/reference and pretrained/folder hashed lists without sorting
    assert (
        sha256_json(["reference", "a", "b", 64, 3], 32)
        == hashlib.sha256(plain.encode()).hexdigest()[:32]
    )


def test_the_seal_of_a_known_value_never_changes() -> None:
    assert (
        seal({"b": 2, "a": 1})
        == seal({"a": 1, "b": 2, "check": "x"})
        == hashlib.sha256(b'{"a": 1, "b": 2}').hexdigest()
    )
    assert seal({"check": 1}, SEAL) == hashlib.sha256(b'{"check": 1}').hexdigest()


@pytest.mark.parametrize("field", ["check", "seal"])
def test_a_sealed_file_comes_back_and_a_changed_one_does_not(tmp_path: Path, field: str) -> None:
    path = tmp_path / "x.json"
    write_sealed(path, VALUE, field)
    assert (
        read_sealed(path, "again", field) == sealed(VALUE, field) == {**VALUE, field: seal(VALUE)}
    )
    path.write_text(path.read_text().replace("512", "513"))
    with pytest.raises(
        BadInput, match="x.json was changed after it was written: its checksum does not fit"
    ) as error:
        read_sealed(path, "again", field)
    assert error.value.hint == "again"
    with pytest.raises(Damaged):
        read_sealed(path, "again", field, kind=Damaged)


def test_a_value_without_a_seal_is_not_intact() -> None:
    assert is_intact(sealed({})) and not is_intact({}) and not is_intact({"check": None})


@pytest.mark.parametrize(
    "content, why",
    [
        (b"\xff{}", "cannot be read"),
        (b"{", "cannot be read"),
        (b"[" * 200_000, "cannot be read: maximum recursion"),
        (b'{"a":' * 200_000, "cannot be read"),
        (b"[1]", "holds no JSON object"),
        (b"", "cannot be read"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "cannot be read"),
    ],
)
def test_what_is_no_json_object_is_refused_in_words(
    tmp_path: Path, content: bytes, why: str
) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(BadInput, match=f"state.json {why}") as error:
        read_json(tmp_path / "state.json", "try this")
    assert error.value.hint == "try this"


def test_a_mark_of_utf8_is_no_part_of_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(tmp_path / "config.json", "") == {"a": 1}


@pytest.mark.timeout(20)
def test_what_is_no_plain_file_is_refused_in_words(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "folder", "loop", "missing"):
        with pytest.raises(Damaged, match=f"{name} cannot be read"):
            read_json(tmp_path / name, "try this", kind=Damaged)


def test_a_limit_holds(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "x.json", "", limit=8) == {"a": 1}
    with pytest.raises(BadInput, match="more than 7 bytes"):
        read_json(tmp_path / "x.json", "", limit=7)


@pytest.mark.parametrize(
    "number, hint",
    [
        (errno.ENOSPC, "make room and start the same command again: what is finished is kept"),
        (errno.EROFS, "start the same command again: what is finished is kept"),
    ],
)
def test_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def fail(path: Path, value: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(module, "write_json", fail)
    with pytest.raises(RunFailed) as error:
        write_sealed(tmp_path / "x.json", VALUE)
    assert (
        error.value.message == f"could not write x.json: {os.strerror(number)}"
        and error.value.hint == hint
    )


def test_a_file_that_is_larger_than_any_of_ours_is_not_read(tmp_path: Path) -> None:
    """Sparse, it takes no room on the disk: terabytes would fill the memory."""
    with open(tmp_path / "x.json", "wb") as stream:
        stream.truncate(1 << 42)
    for kind in (BadInput, Damaged):
        with pytest.raises(kind, match="it holds more than 268,435,456 bytes"):
            read_sealed(tmp_path / "x.json", "", kind=kind)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"metrics": [1]}, "found list"),
        ({"other": 1}, "it is not there"),
        ({"metrics": None}, "NoneType"),
    ],
)
def test_a_good_seal_over_other_fields_is_refused_in_words(
    tmp_path: Path, value: dict, found: str
) -> None:
    path = tmp_path / "point.json"
    write_sealed(path, value)
    with pytest.raises(
        BadInput,
        match=f"point.json is not what is kept under this name: expected dict 'metrics', .*{found}",
    ):
        read_sealed(path, "measure it again", fields={"metrics": dict})
    write_sealed(path, {"metrics": {}, "more": 1})
    assert read_sealed(path, "", fields={"metrics": dict})["more"] == 1
