"""fulcrum encode: the cache that training reads, filled beforehand by one or more processes,
resumed after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fulcrum import phrase
from fulcrum.cli import app
from fulcrum.spec.errors import BadInput
from fulcrum.training import estimate as cache_forecast
from fulcrum.training.estimate import tell_cache
from fulcrum.training.feed import Feed

SMALL = ("data.source.count=600", "budget.images=64", "budget.batch=32")


WORDS = ["encode", "spark + repa", *(word for setting in SMALL for word in ("--set", setting))]


def encoded(*words: str) -> str:
    done = CliRunner().invoke(app, [*WORDS, *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def contents(out: Path) -> dict[str, bytes]:
    """The rows of every entry that a run reads, wherever they lie in its files."""
    feed = Feed(phrase("spark + repa", *SMALL), 0, out / "cache")
    arrays = {
        (job.what, name): array
        for job in feed.jobs()
        for name, array in feed.cache.finished(job).items()
    }
    return {f"{what} {name}": np.asarray(array).tobytes() for (what, name), array in arrays.items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("alone")
    return out, json.loads(encoded("--out", str(out), "--json").splitlines()[-1])


def test_training_finds_everything_encoded(alone):
    out, answer = alone
    assert [entry["what"] for entry in answer["entries"]] == ["latents", "texts", "teacher tokens"]
    assert all(entry["samples"] == 600 and entry["bytes"] > 0 for entry in answer["entries"])
    lines: list[str] = []
    batch, _ = Feed(phrase("spark + repa", *SMALL), 0, out / "cache", lines.append).at(0)
    assert batch.x0.shape == (32, 8, 8, 8) and set(batch.teacher) == {"world"} and not lines


def finished(out: Path) -> list[str]:
    """Chunks that are noted in the journals of entries in the making."""
    journals = (path.read_text() for path in out.glob("cache/*.making/*.journal"))
    return [line for journal in journals for line in journal.splitlines()]


def test_two_processes_killed_and_started_again_give_the_same_bytes(alone, tmp_path):
    running = subprocess.Popen(
        [sys.executable, "-m", "fulcrum", *WORDS, "--out", str(tmp_path), "--processes", "2"],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(finished(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGKILL)  # its own session: itself and its one child
    running.wait()
    assert finished(tmp_path)
    printed = encoded("--out", str(tmp_path), "--processes", "2")
    assert contents(tmp_path) == contents(alone[0])
    assert not list(tmp_path.glob("cache/*.making"))
    assert "600 samples" in printed


def test_machines_that_share_a_folder_make_a_part_each(alone, tmp_path):
    for part in ("0/2", "1/2"):
        encoded("--out", str(tmp_path), "--part", part)
    assert len(finished(tmp_path)) == 9, (
        "three chunks of 256 of three entries, and none is made twice"
    )
    encoded("--out", str(tmp_path))
    assert contents(tmp_path) == contents(alone[0])


def test_what_it_will_weigh_is_told_before_it_is_made(alone, tmp_path, monkeypatch):
    """Within a tenth of what it weighs then; nothing where all is there, where it is little, or of
    a missing disk."""
    run, said = phrase("spark + repa", *SMALL), []
    feed = Feed(run, 0, tmp_path / "not yet" / "cache", said.append)
    tell_cache(feed)
    assert not said, "little"
    monkeypatch.setattr(cache_forecast, "WORTH_TELLING", 0.0)
    monkeypatch.setattr(cache_forecast, "_gb", lambda value: f"{value:.0f} bytes")
    tell_cache(feed)
    assert len(said) == 1 and "of 600 pictures" in said[0] and not list(tmp_path.iterdir())
    told, weighs = (
        int(said[0].split(" about ")[1].split()[0]),
        sum(entry["bytes"] for entry in alone[1]["entries"]),
    )
    assert abs(told - weighs) < 0.1 * weighs, (told, weighs)
    monkeypatch.setattr(cache_forecast, "_free", lambda folder: 1000.0)
    tell_cache(feed)
    assert "1000 bytes free" in said[1] and "may not fit" in said[2]
    tell_cache(Feed(run, 0, alone[0] / "cache", said.append))
    assert len(said) == 3


def test_a_part_that_cannot_be_had_says_so_before_anything_is_made(tmp_path):
    done = CliRunner().invoke(
        app, ["encode", "prx_256", "--out", str(tmp_path), "--set", "data.source.count=8"]
    )
    assert isinstance(done.exception, BadInput) and "encode.codec.path" in done.exception.hint
    assert not list(tmp_path.iterdir())
    done = CliRunner().invoke(app, ["encode", "spark", "--out", str(tmp_path), "--part", "3/2"])
    assert isinstance(done.exception, BadInput) and "K < N" in done.exception.message
