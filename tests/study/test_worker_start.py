"""A worker's first word comes when all is loaded; one that is stopped in a cell ends without any:
the study says why."""

import gc
import io
import json
import runpy
import signal
import sys

import pytest
import torch

from fulcrum.spec.run import System
from fulcrum.studies import worker
from fulcrum.studies import worker as signs_of_life


def test_a_worker_that_is_stopped_prints_no_traceback(monkeypatch):
    def stopped(line):
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "serve", stopped)
    # it would take this process's standard output
    monkeypatch.setattr(signs_of_life, "LineToStudy", lambda: None)
    monkeypatch.setattr(gc, "disable", lambda: None)  # of this process
    with pytest.raises(SystemExit) as end:
        runpy.run_module("fulcrum.studies.worker_start", run_name="__main__")
    assert end.value.code == 130


def test_a_worker_is_ready_when_all_that_may_hold_its_threads_is_loaded(monkeypatch):
    """From then on it must give its signs more often: a GPU's context and a person's files come
    before."""
    done = []

    class Line:
        def ready(self):
            done.append("ready")

        def say(self, text):
            done.append("answer")

    setup = {"system": System().model_dump(), "files": []}
    monkeypatch.setattr(
        sys, "stdin", io.StringIO(f"{json.dumps(setup)}\n{json.dumps({'key': 'a'})}\n")
    )
    monkeypatch.setattr(sys, "argv", ["worker_start", "0"])
    monkeypatch.setattr(torch, "zeros", lambda *shape, device: done.append(f"context on {device}"))
    monkeypatch.setattr(worker, "with_files", lambda files: (done.append("files"), ()))
    monkeypatch.setattr(worker, "answer", lambda *asked: {"key": "a", "ok": True})
    # of this process
    for place, name in (
        (worker, "leave_with"),
        (signal, "signal"),
        (gc, "freeze"),
        (gc, "unfreeze"),
    ):
        monkeypatch.setattr(place, name, lambda *told: None)
    worker.serve(Line())
    assert done == ["context on cpu", "files", "ready", "answer"]
