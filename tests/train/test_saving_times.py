"""When a run is saved: wanted by time or by images, paid from an account of 1 %; and the thread
that writes."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from fulcrum.files.sealed import sha256_file
from fulcrum.spec.errors import RunFailed
from fulcrum.spec.phrase import place
from fulcrum.spec.run import System
from fulcrum.training import checkpoint, saver
from fulcrum.training import saver as saving_times
from fulcrum.training.checkpoint import RowSpan, State, rows_of, write_tensors
from fulcrum.training.dist.ranks import ALONE
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.saver import GRANTED, LEAST, LONGEST, SHARE, SavingTimes
from fulcrum.training.session import Order, perform


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def steps(times, clock, seconds, step, cost, stretch=10**9):
    """Go through so many seconds of steps; the times at which it was saved, each for `cost`
    seconds."""
    saved, images = [], 0
    while clock.now < seconds:
        clock.now += step
        images += 1
        if times.due(images):
            saved.append(clock.now)
            clock.now += cost
            times.saved(cost)
    return saved


@pytest.mark.parametrize("cost", [0.01, 0.5, 5.0])
def test_saving_takes_its_share_and_no_more(cost):
    clock = Clock()
    times = SavingTimes(ALONE, 0, 10**9, clock=clock)
    saved = steps(times, clock, 20_000, 0.5, cost)
    gaps = [later - earlier for earlier, later in zip(saved, saved[1:], strict=False)]
    assert len(saved) * cost <= GRANTED + SHARE * clock.now + cost
    # as often as it may; the first is paid for
    assert min(gaps) >= LEAST and max(gaps[1:]) < max(LEAST, cost / SHARE) + 2
    assert saved[0] < LEAST + 2


def test_what_costs_too_much_is_saved_every_half_hour_all_the_same():
    clock = Clock()
    saved = steps(SavingTimes(ALONE, 0, 10**9, clock=clock), clock, 20_000, 0.5, 100.0)
    gaps = [later - earlier for earlier, later in zip(saved, saved[1:], strict=False)]
    assert all(LONGEST <= gap < LONGEST + 102 for gap in gaps) and len(gaps) > 5


def test_tenths_of_a_short_run_are_saved_while_it_can_pay():
    clock = Clock()
    assert len(steps(SavingTimes(ALONE, 0, 10, clock=clock), clock, 50, 0.5, 0.01)) == 10
    clock.now = 0.0
    # two would be 4 of 3.5 seconds
    assert len(steps(SavingTimes(ALONE, 0, 10, clock=clock), clock, 50, 0.5, 2.0)) == 1


def test_a_person_who_says_how_often_is_obeyed():
    clock = Clock()
    times = SavingTimes(ALONE, 24, 10**9, every=16, clock=clock)
    assert [images for images in range(32, 200, 8) if times.due(images)] == list(range(32, 200, 16))


def test_many_processes_ask_each_other_seldom(monkeypatch):
    clock, asked = Clock(), []
    monkeypatch.setattr(
        saving_times, "largest", lambda values, ranks: asked.append(clock.now) or list(values)
    )
    times = SavingTimes(ALONE.__class__(0, 2), 0, 10**9, clock=clock)
    saved = steps(times, clock, 3600, 0.1, 0.2)
    assert (
        len(saved) > 50 and max(b - a for a, b in zip(saved, saved[1:], strict=False)) < LEAST + 2
    )
    assert len(asked) < 0.03 * 36_000  # of the steps


def test_a_file_of_pieces_is_safetensors_and_tells_its_rows(tmp_path):
    tensors = {
        "a": torch.randn(3, 5),
        "b": torch.arange(4),
        "c": torch.tensor(2.0),
        "d": torch.randn(2, 2).bfloat16(),
        "e": torch.zeros(0, 3),
    }
    path = tmp_path / "model.safetensors"
    assert write_tensors(path, tensors, {"a": RowSpan(6, 20)}) == sha256_file(path)
    back = load_file(path)
    assert back.keys() == tensors.keys() and all(
        torch.equal(back[name], value) for name, value in tensors.items()
    )
    from safetensors import safe_open

    with safe_open(path, framework="pt") as stream:
        assert rows_of(stream.metadata()) == {"a": RowSpan(6, 20)}
    with pytest.raises(FileExistsError):
        write_tensors(path, tensors)


def test_a_checkpoint_holds_what_stood_when_it_was_begun(tiny, tmp_path, monkeypatch):
    """The thread writes late, and training has gone on: what lies on the disk is the state that was
    copied."""
    real, late = checkpoint.save, threading.Event()
    states = {}

    def slowly(folder, saved, *ranks):
        late.wait(5)
        time.sleep(0.05)
        real(folder, saved, *ranks)

    monkeypatch.setattr(checkpoint, "save", slowly)

    def observers(built, folder, state):
        def look(seen):
            live = saver.live_parts(seen.built)
            states[seen.state.images] = {
                part: saver.copied(tensors) for part, tensors in live.items()
            }
            if seen.state.images >= 24:
                late.set()

        return [look]

    run = tiny()
    result = perform(
        Order(run, 0, "spark", tmp_path, System(save_every=16), quiet=True),
        lambda text: None,
        observers,
    )
    folder = tmp_path / result["key"] / "checkpoints"
    for path in checkpoint.listing(folder):
        saved = checkpoint.load(path)
        for part, tensors in states[saved.state.images].items():
            assert tensors.keys() == saved.parts[part].keys()
            assert all(
                torch.equal(value, saved.parts[part][name]) for name, value in tensors.items()
            )
    assert len(checkpoint.listing(folder)) == 2


def test_a_disk_that_is_full_while_the_thread_writes_is_told_and_does_not_hang(
    tiny, tmp_path, monkeypatch
):
    """The thread's error was raised from itself: a circle of causes, which whoever explains an
    error walked for ever."""

    def full(folder, saved, *ranks):
        raise checkpoint.could_not_save(folder, saved.state.images, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(RunFailed, match="No space left") as error:
        perform(
            Order(tiny(), 0, "spark", tmp_path, System(save_every=16), quiet=True),
            lambda text: None,
        )
    assert error.value.__cause__ is not error.value and place(error.value) == ""


def test_a_circle_of_causes_is_walked_once():
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert place(one) == ""


def test_many_processes_ask_half_way_to_when_it_may_be_time(monkeypatch):
    """An eighth of a second each: after the first step 59.875 s are left, 239 steps are half of
    them; then half of the rest, which is known from the pace of the steps in between."""
    clock, asked = Clock(), []
    monkeypatch.setattr(
        saving_times,
        "largest",
        lambda values, ranks: asked.append(int(8 * clock.now)) or list(values),
    )
    times = SavingTimes(ALONE.__class__(0, 2), 0, 10**9, clock=clock)
    for images in range(1, 470):
        clock.now = images / 8
        assert not times.due(images)
    expected = [1]
    while (left := int(8 * LEAST) - expected[-1]) > 20:
        expected.append(expected[-1] + left // 2)
    assert asked[: len(expected)] == expected and len(expected) == 6


@pytest.mark.parametrize("seen", [0, 5, 8, 13])
def test_the_next_save_is_at_a_multiple_of_the_stretch(seen):
    clock = Clock()
    times = SavingTimes(ALONE, seen, 8, clock=clock)
    assert [images for images in range(seen + 1, 50) if times.due(images)] == [
        images for images in range(8, 50, 8) if images > seen
    ]


def held(times):
    """A saver without a run."""
    made = object.__new__(saver.Saver)
    made.times, made.thread, made.failure = times, None, None
    return made


def test_what_writing_computes_beside_the_training_is_paid_for_and_what_fails_is_kept():
    times = SavingTimes(ALONE, 0, 8, clock=Clock())
    error = OSError("broken")

    def fails():
        raise error

    for device, write in (
        ("cpu", lambda: sum(range(10**6))),
        ("cuda", lambda: sum(range(10**6))),
        ("cpu", fails),
    ):
        before, made = times.spent, held(times)
        made._kept(write, device)
        assert (times.spent > before) == (device == "cpu") and made.failure is (
            error if write is fails else None
        )
        assert times.cost == times.spent


def test_a_training_that_fails_waits_for_what_is_being_written_but_not_for_ever(monkeypatch):
    made, over = held(None), threading.Event()
    made.leave()  # nothing is
    made.thread = threading.Thread(target=over.wait, daemon=True)
    made.thread.start()
    monkeypatch.setattr(saver, "PATIENCE", 0.05)
    made.leave()
    assert made.thread.is_alive()
    monkeypatch.setattr(saver, "PATIENCE", 30.0)
    threading.Timer(0.2, over.set).start()
    made.leave()
    assert not made.thread.is_alive()


def test_a_save_that_is_waited_for_is_paid_for_as_well(monkeypatch):
    """Else the next would come at once: the last one is not known to be young."""
    clock, written = Clock(), []
    made = held(SavingTimes(ALONE, 0, 8, clock=clock))
    made.before_saving = lambda: None
    made.folder, made.group = RunFolder(Path("run")), None
    monkeypatch.setattr(saver, "live_parts", lambda built: {})
    monkeypatch.setattr(checkpoint, "save", lambda *given: written.append(given))
    clock.now = 70.0
    made.keep(SimpleNamespace(ranks=ALONE, system=System()), State())
    assert (
        len(written) == 1 and made.times.last == 70.0 and made.times.spent == made.times.cost > 0.0
    )


def test_a_run_is_saved_when_it_is_due_and_not_by_this_at_its_end():
    """The last state is kept by whoever ends the run."""
    saved, asked = [], []
    made = held(
        SimpleNamespace(due=lambda images, writing: asked.append(writing) or images % 16 == 0)
    )
    made.begin = lambda built, state: saved.append(state)
    built = SimpleNamespace(ranks=ALONE, run=SimpleNamespace(budget=SimpleNamespace(images=48)))
    for images in range(8, 56, 8):
        made(SimpleNamespace(images=images, built=built, state=images))
    assert saved == [16, 32] and asked == [False] * 5
