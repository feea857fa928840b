"""A fork that waits for what never comes is ended long before its time is over; one that computes is not."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from mutants import forked_tests


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
