"""A write that fails names the file that a person knows, says what helps, and leaves nothing
half-written."""

import errno
import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from fulcrum.cli import main
from fulcrum.files.atomic import atomic_path, folder_atomic, write_atomic, write_json, write_new
from fulcrum.files.paths import naming, sentence_and_hint
from fulcrum.files.sealed import append_bytes, append_records, write_sealed

LIMIT = 4096  # bytes of a file
DATA = b"x" * (2 * LIMIT)
HOME = [
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "data.source.count=64",
    "data.source.max_objects=2",
]


@contextmanager
def small_disk(most: int = LIMIT) -> Iterator[None]:
    """No file may grow beyond `most` bytes: the error is a full disk's, and comes in the middle of
    a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fill_folder(path: Path) -> None:
    with folder_atomic(path) as aside:
        (aside / "part").write_bytes(DATA)


def fill_path(path: Path) -> None:
    with atomic_path(path) as aside:
        aside.write_bytes(DATA)


def fill_tensors(path: Path) -> None:
    with atomic_path(path) as aside:
        save_file({"a": torch.zeros(LIMIT)}, aside)


def fill_folder_with_tensors(path: Path) -> None:
    """As a library does that saves a model on its own."""
    with folder_atomic(path) as aside:
        save_file({"a": torch.zeros(LIMIT)}, aside / "model.safetensors")


WRITERS: dict[str, Callable[[Path], object]] = {
    "write_atomic": lambda path: write_atomic(path, DATA),
    "write_json": lambda path: write_json(path, DATA.decode()),
    "write_new": lambda path: write_new(path, DATA),
    "atomic_path": fill_path,
    "folder_atomic": fill_folder,
    "tensors": fill_tensors,
    "tensors in a folder": fill_folder_with_tensors,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_names_the_file_and_keeps_nothing_half_written(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "mine"
    with small_disk(), pytest.raises(OSError) as error:
        WRITERS[name](path)
    message, hint = sentence_and_hint(error.value)
    assert (
        message == f"cannot use {path}: File too large"
        and hint == "make room and start the same command again"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "append",
    [lambda path: append_bytes(path, DATA), lambda path: append_records(path, {"a": "x" * LIMIT})],
)
def test_a_line_that_does_not_fit_names_its_file(
    tmp_path: Path, append: Callable[[Path], None]
) -> None:
    with small_disk(), pytest.raises(OSError) as error:
        append(tmp_path / "record.jsonl")
    assert (
        sentence_and_hint(error.value)[0]
        == f"cannot use {tmp_path / 'record.jsonl'}: File too large"
    )


def test_a_sealed_file_says_it_in_its_own_words(tmp_path: Path) -> None:
    from fulcrum.spec.errors import RunFailed

    with small_disk(), pytest.raises(RunFailed, match=r"plan\.json: File too large") as error:
        write_sealed(tmp_path / "plan.json", {"a": DATA.decode()})
    assert "make room" in error.value.hint and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "number, hint",
    [(errno.EROFS, "choose a place"), (errno.EACCES, "choose a place"), (errno.ENOSPC, "room")],
)
def test_a_folder_that_cannot_be_written_is_told_by_the_files_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    real = os.open

    def refuse(path: str, flags: int, *given: int, **options: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, flags, *given, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError) as error:
        write_atomic(tmp_path / "mine", b"")
    message, remedy = sentence_and_hint(error.value)
    assert message == f"cannot use {tmp_path / 'mine'}: {os.strerror(number)}" and hint in remedy
    assert error.value.filename2 is None


@pytest.mark.parametrize("range_of_noise", [1, 256], ids=["small", "large"])
@pytest.mark.parametrize("most", [0, 100, 2_000, 10_000])
def test_an_import_on_a_full_disk_names_file_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], most: int, range_of_noise: int
) -> None:
    (tmp_path / "given").mkdir()
    noise = np.random.default_rng(0).integers(0, range_of_noise, (8, 64, 64, 3), np.uint8)
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels).save(tmp_path / "given" / f"{number}.png")
        (tmp_path / "given" / f"{number}.txt").write_text("noise")
    with small_disk(most), pytest.raises(SystemExit) as ended:
        main(
            [
                "data",
                "import",
                str(tmp_path / "given"),
                str(tmp_path / "store"),
                "--quiet",
                "--json",
            ]
        )
    answer = json.loads(capsys.readouterr().out)
    assert (
        ended.value.code == 1
        and str(tmp_path / "store") in answer["error"]
        and "make room" in answer["hint"]
    ), answer


def test_an_error_of_another_kind_keeps_its_words(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError) as error, naming(tmp_path):
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    assert error.value.filename is None
    assert sentence_and_hint(OSError("of a library")) == ("OSError: of a library", "")


def full(*given: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place, most", [("fsync", 0), ("limit", 20_000), ("limit", 60_000)])
def test_a_training_on_a_full_disk_names_file_and_remedy(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    most: int,
) -> None:
    words = [
        "train",
        "spark",
        "--images",
        "16",
        "--out",
        str(tmp_path / "runs"),
        "--quiet",
        "--no-compile",
        "--json",
    ]
    for setting in HOME:
        words += ["--set", setting]
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
        if place == "fsync":
            patch.setattr(os, "fsync", full)
            main(words)
        with small_disk(most):
            main(words)
    answer = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1 and str(tmp_path / "runs") in answer["error"], answer
    assert "No space left" in answer["error"] or "File too large" in answer["error"], answer
    assert "make room" in answer["hint"] or "free some space" in answer["hint"], answer
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".writing")]
