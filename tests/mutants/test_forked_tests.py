"""A fork that waits for what never comes is ended long before its time is over; one that computes
is not."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from mutants import forked_tests

pytestmark = pytest.mark.long


def forked(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            work()
        finally:
            os._exit(0)
    return pid


def compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_who_waits_for_ever_is_ended_and_who_computes_or_waits_for_one_who_does_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forked_tests, "STILL", 2.0)
    began = time.monotonic()
    assert forked_tests._waited(forked(lambda: time.sleep(600)), 300.0) == signal.SIGALRM
    assert time.monotonic() - began < 60
    for work in (lambda: compute(2.5), lambda: os.waitpid(forked(lambda: compute(2.5)), 0)):
        assert forked_tests._waited(forked(work), 300.0) == 0


def test_only_what_is_asked_for_runs_and_of_each_file_the_quickest_first(tmp_path: Path) -> None:
    only = {"b.py::slow": 2.0, "b.py::quick": 0.1, "a.py::one": 1.0}
    names = ("b.py::slow", "b.py::other", "b.py::quick", "a.py::one", "a.py::two")
    items = [SimpleNamespace(nodeid=name) for name in names]
    forked_tests._Watcher(tmp_path, only, None).pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == ["b.py::quick", "b.py::slow", "a.py::one"]
