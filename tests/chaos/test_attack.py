"""The attack itself: a fault that is planted is reported, and a command that keeps its promises is
not."""

import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from chaos import crowd_attack, disk_attack
from chaos.counted_page import BEGIN, END, too_few, write_counts
from chaos.crowd_attack import SCENES, Scene, Staged
from chaos.host import Child
from chaos.loss import unsound
from chaos.subjects import Subject
from chaos.target import Prepared
from chaos.trial import Fault, Host, Process, Strike

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("cc") is None, reason="the shim is written in C"),
]


@pytest.fixture(scope="module")
def host():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        with Host("planted:main") as host:
            yield host


def subject(name):
    return Subject(
        name, [name], lambda host, folder: None, lambda folder, end: (folder / "result").read_text()
    )


def struck(host, name, folder, trials=40):
    return disk_attack.attack(Prepared(host, folder), [subject(name)], 0.0, seed=3, least=trials)


def test_a_write_that_is_not_atomic_is_reported(host, tmp_path):
    found = struck(host, "careless", tmp_path)
    assert any("ends elsewhere than the undisturbed" in loss.what for loss in found.losses)
    assert found.counts["kills"] > 3 and found.counts["write faults"] > 3


def test_a_traceback_is_reported(host, tmp_path):
    found = struck(host, "talkative", tmp_path)
    assert {loss.what for loss in found.losses} >= {"prints a traceback"}


def test_what_keeps_its_promises_is_not_reported(host, tmp_path):
    found = struck(host, "careful", tmp_path)
    assert (
        found.losses == []
        and {"kills", "write faults", "clock jumps", "slow disks"} <= found.counts.keys()
    )


def test_an_attack_that_struck_too_little_says_so():
    least = {"kills": 500, "write faults": 300, "inputs": 1_000_000}
    assert too_few({"kills": 500, "write faults": 300}, 1_000_000, least) == []
    assert too_few({"kills": 499}, 2_000_000, least) == [
        "499 kills, at least 500 were asked for",
        "0 write faults, at least 300 were asked for",
    ]


@pytest.mark.parametrize(("name", "sound"), [("appends", False), ("appends_alone", True)])
def test_two_at_once_that_are_not_kept_apart_are_reported(host, tmp_path, name, sound):
    found = crowd_attack.attack(
        Prepared(host, tmp_path), [Scene("two of them", subject(name))], 0.0, seed=1, least=6
    )
    assert found.counts["pairs at once"] == 6 and (found.losses == []) == sound, found.losses


@pytest.mark.parametrize(
    ("fault", "days"), [(Fault.CLOCK_BACK, -400), (Fault.CLOCK_FORTH, 400), (Fault.NONE, 0)]
)
def test_the_clock_is_set_at_a_call(host, tmp_path, fault, days):
    place = tmp_path / "folder"
    place.mkdir()
    end = host.run(["year"], place, Strike(fault, 1))
    assert round((int(end.text.split()[1]) - time.time()) / 86400) == days
    assert end.calls


def test_a_command_that_is_killed_before_it_begins_has_said_nothing(host, tmp_path):
    place = tmp_path / "folder"
    place.mkdir()
    for _ in range(20):
        end = host.run(["patient"], place, Strike(kill_after=0.0))
        assert end.exit == -9 and end.calls is None


def test_memory_is_limited_and_given_back(host, tmp_path):
    place = tmp_path / "folder"
    place.mkdir()
    short = host.run(["greedy"], place, Strike(memory=64 << 20))
    assert short.exit == 1 and "not enough memory" in short.text
    assert host.run(["greedy"], place).exit == 0


def test_a_worker_is_killed_and_a_process_that_stands_still_is_ended(host, tmp_path):
    place = tmp_path / "folder"
    place.mkdir()
    worker = host.run(["parent"], place, Strike(kill_after=0.3, worker=True))
    assert worker.exit == 0 and "worker ended with -9" in worker.text
    threaded = host.run(["threaded_parent"], place, Strike(kill_after=0.3, worker=True))
    assert threaded.struck and "worker ended with -9" in threaded.text, (
        "a study starts its workers in threads"
    )
    stopped = host.run(["watchful_parent"], place, Strike(stall_after=0.3, worker=True))
    assert stopped.struck and not stopped.hung and "worker stands still" in stopped.text
    still, whole = host.together(
        [Process(["patient"], Strike(stall_after=0.1)), Process(["year"], delay=0.5)], place
    )
    assert still.exit == -9 and not still.hung and whole.exit == 0


def test_a_strike_that_comes_too_late_is_not_counted_as_one(host, tmp_path):
    place = tmp_path / "folder"
    place.mkdir()
    for strike in (
        Strike(kill_after=30.0),
        Strike(Fault.NO_SPACE, 1000),
        Strike(stall_after=30.0, worker=True),
    ):
        assert not host.run(["year"], place, strike).met(strike)
    kill = Strike(kill_after=0.1)
    assert host.run(["patient"], place, kill).met(kill)
    for strike in (Strike(Fault.SLOW, 1), Strike(Fault.KILL_AFTER, 1), Strike(memory=64 << 20)):
        assert host.run(["year"], place, strike).met(strike)


def test_what_is_written_outside_of_the_folder_is_reported(host, tmp_path):
    place = tmp_path / "trials" / "folder"
    place.mkdir(parents=True)
    end = host.run(["astray"], place)
    names = ("behind.txt", "beside.txt", "renamed.txt", "started.txt")
    assert end.exit == 0 and end.outside == tuple(str(place.parent / name) for name in names)
    assert [what for what, _ in unsound(end)] == ["changes something outside of its folder"]
    end = host.run(["at_home"], place)
    assert end.exit == 0 and end.outside == () and list(unsound(end)) == [], end


def test_ranks_are_struck_at_calls_that_write_and_at_moments():
    (ranks,) = (scene for scene in SCENES if scene.ranks)
    staged, dice = Staged(ranks, None, "", 5.0, (40, 3)), random.Random(0)
    pairs = [crowd_attack._strikes(staged, dice) for _ in range(300)]
    at_calls = [
        (rank, strike) for pair in pairs for rank, strike in enumerate(pair) if strike.fault
    ]
    assert {rank for rank, _ in at_calls} == {0, 1} and {strike.name for _, strike in at_calls} == {
        "kills",
        "write faults",
    }
    assert all(1 <= strike.at <= (40, 3)[rank] for rank, strike in at_calls)
    assert sum(strike.kill_after is not None for pair in pairs for strike in pair) > 50
    assert sum(strike.stall_after is not None for pair in pairs for strike in pair) > 10


def test_the_counts_of_an_attack_stand_on_its_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_counts(
        page, Counter({"kills": 512}), Counter({"plans": 900_000, "phrases": 100_000}), 0, 3600.0, 7
    )
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "60 minutes, seed 7: **0 promises broken**" in text
    assert "| kills | 512 |" in text and "to 2 readers | 1,000,000 |" in text
    page.write_text("no place")
    with pytest.raises(SystemExit, match="no place for the counts"):
        write_counts(page, Counter(), Counter(), 0, 1.0, 0)


def test_a_process_that_is_killed_as_it_notes_its_calls_has_noted_none(tmp_path):
    child = Child({"said": str(tmp_path / "said")})
    child.status = 9
    (tmp_path / "said.seen").write_text("")
    assert child.told()["calls"] is None
    (tmp_path / "said.seen").write_text("41")
    assert child.told()["calls"] == 41
