"""Every error of the system is one sentence and one hint."""

import errno
import os
from pathlib import Path

import pytest

from fulcrum.files.paths import explained, is_out_of_memory, remedy
from fulcrum.spec.errors import BadInput, RunFailed


@pytest.mark.parametrize(
    "number, hint",
    [
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "make room"),
        (errno.EFBIG, "make room"),
        (errno.EROFS, "choose a place that you may use"),
        (errno.EACCES, "choose a place that you may use"),
        (errno.EISDIR, "move away the folder that stands where a file belongs"),
        (errno.ENOTDIR, "move away the file that stands where a folder belongs"),
        (errno.ENAMETOOLONG, "choose a shorter name"),
        (errno.ENOENT, "is the path right?"),
        (errno.EIO, ""),
    ],
)
def test_each_has_its_sentence_and_hint(number: int, hint: str) -> None:
    with pytest.raises(RunFailed) as error, explained("write the cache entry", Path("/a/b")):
        raise OSError(number, os.strerror(number), "/a/b")
    assert (
        error.value.message == f"cannot write the cache entry /a/b: {os.strerror(number)}"
        and error.value.hint == hint
    )


def test_a_site_has_its_own_words() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(BadInput) as error,
        explained("", Path("x"), message="could not save", hint="so", kind=BadInput),
    ):
        raise full
    assert (error.value.message, error.value.hint) == (
        "could not save: No space left on device",
        "so",
    )
    assert remedy(full, "start again") == "make room and start again"
    assert remedy(OSError(errno.EIO, "x"), "start again") == "start again"


def test_an_error_without_a_number_is_told_too() -> None:
    with (
        pytest.raises(RunFailed, match="cannot read x: it went wrong"),
        explained("read", Path("x")),
    ):
        raise OSError("it went wrong")


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), explained("read", Path("x")):
        raise KeyError("x")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you"
            " tried 9 bytes"
        ),
        RuntimeError("can't start new thread"),
        ImportError("libx.so: failed to map segment from shared object: Cannot allocate memory"),
    ],
)
def test_whoever_says_that_memory_is_short_is_understood(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("shapes differ")) and not is_out_of_memory(
        OSError(errno.EIO, "x")
    )
