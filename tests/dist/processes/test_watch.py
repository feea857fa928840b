"""A rank that dies, stands still or fails: named with its step and activity within half a minute,
and all end."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from fulcrum.spec.errors import BadInput, RankLost
from fulcrum.training.dist import ranks as room
from fulcrum.training.dist import ranks as start_room
from fulcrum.training.dist.ranks import BEAT, SAVING, TRAINING, Heartbeat, Sign, Standing, Watch

pytestmark = pytest.mark.long

sys.path.insert(0, str(Path(__file__).parent))
from ranks_of_a_run import Started, wait_for, words  # noqa: E402

FOREVER = 800_000  # images


class Shelf(dict):
    """A store of this process."""

    def set(self, key, value):
        self[key] = value.encode()

    def check(self, keys):
        return all(key in self for key in keys)

    def multi_get(self, keys):
        return [self[key] for key in keys]


def hearts(size=3):
    store = Shelf()
    return [Heartbeat(store, rank, size, Standing()) for rank in range(size)]


def judged(heart, agent=False, timeout=600.0):
    return Watch(heart, timeout, agent)


def test_signs_tell_where_every_rank_stands():
    first, second, _ = hearts()
    second.standing.at(TRAINING, 12)
    second.give()
    first.collect()
    assert (first.signs[1].step, first.signs[1].activity, first.signs[1].ended) == (
        12,
        TRAINING,
        None,
    )
    assert "test_watch.py" in first.signs[1].place or ".py:" in first.signs[1].place
    assert first.signs[2] == Sign()


@pytest.mark.parametrize(
    ("device", "error", "last"),
    [
        ("cuda", RuntimeError("out of memory"), "aborted"),
        ("cuda", None, "destroyed"),
        ("cpu", RuntimeError("out of memory"), "destroyed"),
    ],
)
def test_who_fails_on_a_gpu_says_so_before_it_leaves_the_group(monkeypatch, device, error, last):
    """To leave an NCCL group is to wait for the others, who wait for this one: it would have been
    alive and mute."""
    first, second, _ = hearts()
    seen: list[tuple[str, str | None]] = []

    def left(how):
        second.collect()
        seen.append((how, second.signs[0].ended))

    for heart in (first, second):  # never started: there is no thread to wait for
        monkeypatch.setattr(heart, "join", lambda timeout: None)
    monkeypatch.setattr(start_room.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(start_room.dist, "destroy_process_group", lambda: left("destroyed"))
    monkeypatch.setattr(
        start_room.dist.distributed_c10d, "_abort_process_group", lambda: left("aborted")
    )
    start_room._leave(judged(first), error, device)
    assert seen == [(last, "RuntimeError: out of memory" if last == "aborted" else None)]


def test_silence_is_counted_from_the_last_sign_and_leaving_is_no_silence():
    first, second, third = hearts()
    for heart in (second, third):
        heart.give()
    first.collect()
    third.give("")
    first.collect()
    now = time.monotonic()
    first.exchanged = now + 30  # it goes on to hear from the store
    assert judged(first).lost(now + 19, 20.0) == [] and judged(first).lost(now + 21, 20.0) == [1]
    words_ = judged(first).words([1], {})
    assert "rank 1 of 3 has given no sign of life" in words_ and "at step 0, starting" in words_


def test_a_silent_store_is_rank_0_unless_torchrun_holds_it():
    _, second, _ = hearts()
    later = time.monotonic() + 25
    assert judged(second).lost(later, 20.0) == [0]
    assert judged(second, agent=True).lost(later, 20.0) == []
    second.signs[0] = Sign(5, ended="")
    assert judged(second).lost(later, 20.0) == []


def test_a_rank_that_saves_has_a_moment_to_finish_and_no_more():
    """All write a checkpoint, so one that is missing cannot be waited for: it was, for the whole of
    --timeout."""
    first, *_ = hearts()
    first.standing.at(SAVING, 3)
    watch, now = judged(first, timeout=600), time.monotonic()
    assert (
        watch.busy(now)
        and watch.busy(now + room.FINISH - 0.1)
        and not watch.busy(now + room.FINISH + 0.1)
    )
    first.standing.at(TRAINING, 3)
    assert not judged(first).busy(now)


def test_a_process_that_was_held_says_so_and_names_nobody():
    first, *_ = hearts()
    watch = judged(first)
    watch.look(time.monotonic())
    watch.looked -= 30
    error = watch.explained(RuntimeError("gloo: connection closed"))
    assert (
        isinstance(error, RankLost)
        and error.speaker
        and "rank 0 of 3 was itself held for 30 s" in error.message
    )
    assert "rank 1" not in error.message and "SIGSTOP" in error.hint
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_process_that_was_held_for_a_moment_or_long_ago_names_who_is_lost():
    first, second, _ = hearts()
    second.give("MemoryError: 80 GB are not there")
    first.collect()
    watch = judged(first)
    # the last: another has failed by itself
    for held, woken in ((8.0, 0.0), (30.0, 60.0), (30.0, 0.0)):
        watch.held, watch.woken = held, time.monotonic() - woken
        assert watch.own_absence() == ""
    first.signs[1] = Sign()
    assert "itself held" in watch.own_absence()


def test_who_is_missing_is_told_while_a_rank_saves(capsys):
    first, second, _ = hearts()
    second.standing.at(TRAINING, 5)
    second.give()
    first.collect()
    watch = judged(first)
    for _ in range(2):
        watch.warn([1], {})
    said = capsys.readouterr().err
    assert (
        said.count("rank 1 of 3 has given no sign of life") == 1
        and "at step 5, training" in said
        and "saving" in said
    )


def test_the_first_rank_that_is_left_speaks():
    first, second, _ = hearts()
    assert (
        judged(first).speaker([1])
        and not judged(second).speaker([2])
        and judged(second).speaker([0])
    )


def test_a_slow_step_is_told_once_and_ends_nothing(capsys):
    first, second, third = hearts()
    for heart in (first, second, third):
        heart.standing.at(TRAINING, 7)
        heart.give()
    first.collect()
    watch = judged(first)
    watch.notice(time.monotonic() + 10)
    assert capsys.readouterr().err == ""
    for _ in range(2):
        watch.notice(time.monotonic() + 26)
    said = capsys.readouterr().err
    assert (
        said.count("no step for 26 s") == 1
        and "rank 1 is at step 7, training" in said
        and "--timeout" in said
    )
    first.standing.at(SAVING, 8)
    watch.notice(time.monotonic() + 26)
    assert capsys.readouterr().err == ""


def test_a_process_that_was_held_itself_blames_nobody(monkeypatch):
    first, *_ = hearts(2)
    monkeypatch.setattr(room, "HELD", 0.0)  # as if it was held between any two looks
    monkeypatch.setattr(room, "SILENT", 0.1)
    monkeypatch.setattr(room, "LOOK", 0.2)
    ends = []
    watch = judged(first)
    watch.end = lambda *found: ends.append(found)
    watch.start()
    time.sleep(1.0)
    watch.leaving.set()
    watch.join()
    assert not ends


def test_a_lost_rank_is_explained_with_what_it_said(monkeypatch):
    first, second, _ = hearts()
    second.give("MemoryError: 80 GB are not there")
    first.collect()
    error = judged(first).explained(RuntimeError("gloo: connection closed"))
    assert isinstance(error, RankLost) and error.exit_code == 4 and error.speaker
    assert "rank 1 of 3" in error.message and "MemoryError: 80 GB" in error.message
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_an_error_is_a_ranks_own_unless_all_others_have_it(monkeypatch):
    monkeypatch.setattr(room, "SAME", 0.1)
    first, second, third = hearts()
    for heart in (first, third):
        heart.give("BadInput: 5 rows cannot be dealt")
    second.end = lambda ended: None  # it is no thread here
    shared, own = BadInput("5 rows cannot be dealt"), BadInput("/data/a is not there")
    judged(second).close(shared)
    judged(second).close(own)
    assert shared.rank is None and own.rank == 1
    third.give("RankLost: rank 1 of 3 has failed")
    judged(second).close(shared)
    assert shared.rank == 1


# ---- with real processes


def step(out):
    """The last line of the run's record."""
    lines = [line for path in out.glob("*/record.jsonl") for line in path.read_text().splitlines()]
    return json.loads(lines[-1])["images"] if lines else 0


def stopped(out, size, victim, number):
    """Train on so many ranks, send one a signal; (seconds to the message, exit codes, what was
    said, the last image)."""
    with Started(*[words(out, images=FOREVER)] * size) as run:
        heard = {}

        def listen(rank, process):
            for line in process.stderr:
                heard.setdefault(rank, []).append((time.monotonic(), line))

        listeners = [
            threading.Thread(target=listen, args=pair, daemon=True)
            for pair in enumerate(run.processes)
        ]
        for listener in listeners:
            listener.start()
        before = wait_for(lambda: step(out), 240)
        time.sleep(2 * BEAT)  # a sign of the training was given: its last one is up to so old
        sent = time.monotonic()
        os.kill(run.processes[victim].pid, number)
        left = [rank for rank in range(size) if rank != victim]
        codes = {rank: run.processes[rank].wait(90) for rank in left}
        for rank in left:
            listeners[rank].join(5)
        named = [
            when - sent
            for rank in left
            for when, line in heard.get(rank, [])
            if f"rank {victim} of {size}" in line
        ]
        return (
            min(named, default=None),
            codes,
            "".join(line for rank in left for _, line in heard.get(rank, [])),
            before,
        )


def test_a_rank_that_is_killed_is_named(tmp_path):
    """kill -9 of the second, as the kernel does when memory is short."""
    seconds, codes, said, _ = stopped(tmp_path, 2, 1, signal.SIGKILL)
    print(f"kill -9 of rank 1 of 2: named after {seconds:.1f} s")
    assert (
        codes == {0: RankLost.exit_code}
        and seconds < 30
        and "training" in said
        and "Traceback" not in said
    )


def test_a_rank_that_stands_still_is_named(tmp_path):
    """SIGSTOP of the first, which holds the store."""
    seconds, codes, said, _ = stopped(tmp_path, 2, 0, signal.SIGSTOP)
    print(f"SIGSTOP of rank 0 of 2: named after {seconds:.1f} s")
    assert codes == {1: RankLost.exit_code} and seconds < 30
    assert "no sign of life" in said and "at step" in said and "training" in said


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_every_rank_is_named(tmp_path, size, number):
    for victim in range(size):
        out = tmp_path / str(victim)
        seconds, codes, said, _ = stopped(out, size, victim, number)
        print(
            f"{number.name} of rank {victim} of {size}: named after {seconds:.1f} s, codes {codes}"
        )
        assert seconds < 30 and set(codes.values()) == {RankLost.exit_code}, said
