"""Ranks that fail, die or fall silent before all have joined: named soon, with the right code;
nobody waits for nothing."""

import os
import signal
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from fulcrum.spec.errors import BadInput, RankLost, RunFailed
from fulcrum.training.dist import ranks as joining
from fulcrum.training.dist.early_error import telling_others
from fulcrum.training.dist.ranks import Heartbeat, Launched, Sign, Standing, Watch, start

pytestmark = pytest.mark.long

sys.path.insert(0, str(Path(__file__).parent))
from ranks_of_a_run import Started, wait_for, words  # noqa: E402

SCRIPT = str(Path(__file__).with_name("joining_ranks.py"))
MISSPELT = "no lever is called 'tred'"


def misspelt(out):
    return ["spark + tred" if word == "spark" else word for word in words(out)]


def joined(run, rank):
    """Has this rank given a sign?"""
    try:
        store = dist.TCPStore(
            "127.0.0.1", int(run.port), None, False, timedelta(seconds=5), wait_for_workers=False
        )
        return store.check([f"fulcrum/0/1/sign/{rank}"])
    except RuntimeError:
        return False


def waiting(run, *ranks):
    """Wait until these ranks have come to the store."""
    with socket.socket() as probe:
        wait_for(lambda: probe.connect_ex(("127.0.0.1", int(run.port))) == 0)
    for rank in ranks:
        wait_for(lambda rank=rank: joined(run, rank))


# ---- an error before joining


def test_an_error_of_one_rank_is_said_and_the_other_learns_of_it_at_once(tmp_path):
    begun = time.monotonic()
    with Started(words(tmp_path), misspelt(tmp_path)) as run:
        first, second = run.ended(240)
    print(f"both ended after {time.monotonic() - begun:.1f} s")
    assert first[0] == RankLost.exit_code and second[0] == BadInput.exit_code, (first, second)
    assert "rank 1 of 2 on " in first[1] and f"has failed: {MISSPELT}" in first[1]
    assert f"error on rank 1 of 2: {MISSPELT}" in second[1] and "did you mean" in second[1]
    assert not list(tmp_path.glob("*/about.json"))


def test_an_error_of_the_rank_that_holds_the_store_is_learnt_too(tmp_path):
    with Started(misspelt(tmp_path), words(tmp_path)) as run:
        first, second = run.ended(240)
    assert first[0] == BadInput.exit_code and second[0] == RankLost.exit_code, (first, second)
    assert (
        f"error on rank 0 of 2: {MISSPELT}" in first[1] and f"has failed: {MISSPELT}" in second[1]
    )


def test_an_error_of_all_ranks_is_said_once(tmp_path):
    with Started(*[misspelt(tmp_path)] * 3) as run:
        ends = run.ended(240)
    assert [code for code, _ in ends] == [BadInput.exit_code] * 3
    assert [said.count(MISSPELT) for _, said in ends] == [1, 0, 0] and ends[0][1].startswith(
        "error: "
    )


@pytest.mark.parametrize(
    ("env", "expected"), [({}, ""), ({"RANK": "1", "LOCAL_RANK": "1"}, "rank 1")]
)
def test_where_nobody_can_be_asked_an_error_is_not_lost(env, expected):
    with telling_others(
        "WORLD_SIZE is 2, but MASTER_ADDR is not set", {"WORLD_SIZE": "2", **env}
    ) as whose:
        assert whose == expected


# ---- while joining


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rank_that_is_killed_while_all_join_is_named(victim):
    """A third never comes, so the two are still joining."""
    with Started(*[[SCRIPT, "join", "60"]] * 2, size=3) as run:
        waiting(run, 0, 1)
        os.kill(run.processes[victim].pid, signal.SIGKILL)
        sent = time.monotonic()
        code, said = run.ended(90, without=(victim,))[1 - victim]
    print(f"kill -9 of rank {victim} while joining: ended after {time.monotonic() - sent:.1f} s")
    assert code == RankLost.exit_code and f"rank {victim} of 3 has given no sign of life" in said


def meeting(signs, limit=600.0, sizes=None):
    """The first of three ranks, which has heard these signs, waits for all of them."""
    heart = Heartbeat(None, 0, 3, Standing())  # it is no thread here, and asks no store
    heart.signs |= signs
    heart.sizes = sizes or dict.fromkeys({0, *signs}, 3)
    joining.meet(Launched(0, 3, 0, "node-a", 29500), heart, Watch(heart, 600.0, False), limit)


def test_all_that_have_come_go_on():
    meeting({1: Sign(1), 2: Sign(4)})


def test_who_has_come_and_who_has_not_is_told_at_the_limit():
    with pytest.raises(
        RankLost, match="waited 0.2 s for rank 2, and ranks 0, 1 had come"
    ) as raised:
        meeting({1: Sign(1)}, limit=0.2)
    assert raised.value.exit_code == 4 and raised.value.speaker
    assert "log of who is missing" in raised.value.hint and "node-a:29500" in raised.value.hint


def test_who_is_waited_for_is_told_before_the_limit(monkeypatch, capsys):
    monkeypatch.setattr(joining, "SLOW", 0.05)
    with pytest.raises(RankLost):
        meeting({}, limit=0.3)
    assert (
        capsys.readouterr().err.count(
            "rank 0 of 3 waits for ranks 1, 2 to join; 0 s at most (--timeout)"
        )
        == 1
    )


def test_who_failed_before_it_joined_is_told_at_once():
    with pytest.raises(
        RankLost, match="rank 2 of 3 on node-b has failed: no lever is called 'tred'"
    ):
        meeting({2: Sign(1, host="node-b", ended="no lever is called 'tred'")})


def test_nobody_goes_on_before_all_have_said_how_many_they_are():
    with pytest.raises(RankLost, match="waited 0.2 s"):
        meeting({1: Sign(1), 2: Sign(1)}, limit=0.2, sizes={0: 3, 1: 3})
    with pytest.raises(
        BadInput, match="WORLD_SIZE is 2 for rank 1; WORLD_SIZE is 3 for ranks 0, 2"
    ):
        meeting({1: Sign(1), 2: Sign(1)}, sizes={0: 3, 1: 2, 2: 3})


def test_ranks_that_were_told_other_numbers_say_so():
    with Started(*[[SCRIPT, "join", "60"]] * 2, env={1: {"WORLD_SIZE": "3"}}) as run:
        ends = run.ended(240)
    for code, said in ends:
        assert (
            code == BadInput.exit_code
            and "WORLD_SIZE is 2 for rank 0; WORLD_SIZE is 3 for rank 1" in said
        ), ends


def test_a_port_that_never_answers_is_named(monkeypatch):
    monkeypatch.setattr(joining, "SILENT", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = str(silent.getsockname()[1])
        env = {
            "WORLD_SIZE": "2",
            "RANK": "1",
            "LOCAL_RANK": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        begun = time.monotonic()
        with (
            pytest.raises(RunFailed, match="listens at .* and has not answered for 1 s") as raised,
            start(env=env),
        ):
            pass
        assert (
            time.monotonic() - begun < 10
            and "MASTER_PORT" in raised.value.hint
            and raised.value.exit_code == 1
        )
        assert raised.value.rank == 1, "with LOCAL_RANK=1 nobody would say it"


def test_a_rank_0_that_never_comes_is_named():
    env = {
        "WORLD_SIZE": "2",
        "RANK": "1",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    with (
        pytest.raises(RankLost, match="nobody listens at 127.0.0.1:1 .* rank 0 has not come"),
        start(timeout=1.0, env=env),
    ):
        pass


# ---- while one saves, and when one was held


def stopped(process):
    """As SIGSTOP leaves it."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_rank_that_is_stopped_while_all_save_is_named_and_blames_nobody_when_it_wakes():
    with Started(*[[SCRIPT, "save", "120"]] * 2) as run:
        wait_for(lambda: stopped(run.processes[1]), 240)
        code, said = run.ended(60, without=(1,))[0]  # and not after the 120 s
        run.processes[1].send_signal(signal.SIGCONT)
        woken = run.ended(60, without=(0,))[1]
    assert code == RankLost.exit_code and "rank 1 of 2 has given no sign of life" in said, said
    assert "drawing, measuring or saving" in said
    assert woken[0] == RankLost.exit_code and "rank 1 of 2 was itself held for" in woken[1], woken
    assert "rank 0 of 2" not in woken[1]


@pytest.mark.slow
def test_a_rank_that_draws_for_long_keeps_its_time():
    with Started(*[[SCRIPT, "draw", "60"]] * 2) as run:
        assert [end[0] for end in run.ended(240)] == [0, 0]
