"""A worker that is stopped in the middle of a cell ends without a word: the study has said why."""

import gc
import runpy

import pytest

from fulcrum.study.run.workers import signs_of_life, worker


def test_a_worker_that_is_stopped_prints_no_traceback(monkeypatch):
    def stopped(line):
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "serve", stopped)
    monkeypatch.setattr(signs_of_life, "LineToStudy", lambda: None)  # it would take this process's standard output
    monkeypatch.setattr(gc, "disable", lambda: None)  # of this process
    with pytest.raises(SystemExit) as end:
        runpy.run_module("fulcrum.study.run.workers.worker_start", run_name="__main__")
    assert end.value.code == 130
