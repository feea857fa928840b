"""The device path without a GPU: real runs on a device that refuses what a GPU does, and what
commands say without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fulcrum.cli import main
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.studies.plan import Plan
from fulcrum.studies.runner import PROCESS, gpus_of, room
from fulcrum.training.build import assemble
from fulcrum.training.dist.machine import at_hand, moved, require_device, settled
from fulcrum.training.feed import Feed
from fulcrum.training.flow.noise import TOLERANCE

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).with_name("strange_runs.py")
# of the way from the start; 2e-7 was seen: off the CPU some padding of texts is projected too
NEAR = 1e-5
READ = "training/loop.py read_numbers"
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")


def found(what, out):
    """What the script says. A process of its own: the device is registered once and before the
    first backward pass."""
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), what, str(out)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return found("runs", tmp_path_factory.mktemp("strange"))


@pytest.mark.parametrize("recipe", ["spark", "pocket", "codec"])
def test_a_run_on_another_device_is_the_run_of_the_cpu(recipe, runs):
    """Steps, pictures drawn with the weights, and the held-out loss; all that is trained lives
    there."""
    assert "error" not in runs[recipe], runs[recipe]
    assert runs[recipe]["where"] == ["strange"]
    assert runs[recipe]["apart"] < NEAR and runs[recipe]["loss"] < NEAR
    assert runs[recipe]["pictures"] <= 1  # of 255


@pytest.mark.parametrize("recipe", ["spark", "pocket"])
def test_draws_are_made_there_within_the_tolerance(recipe, runs):
    """Noise within one rounding; times, dropped captions and kept tokens to the bit."""
    draws = runs[recipe]["draws"]
    assert {"t", "eps", "drop_text"} <= set(draws) and ("keep" in draws) == (recipe == "pocket")
    assert draws.pop("eps") <= TOLERANCE and set(draws.values()) == {0.0}


def test_a_bad_step_is_refused_there_too(runs):
    """With every third step no number, the device ends where the CPU does; where a run stops at
    such a step, the weights are those before it."""
    refused = runs["refused"]
    assert "error" not in refused, refused
    assert refused["skipped"] == [2, 2] and refused["averaged"] == [6, 6]
    assert refused["apart"] < 1e-4
    assert "is not finite" in refused["stopped"][0] and refused["stopped"][1] == 2
    assert refused["as it was"]


def test_where_the_host_waits_for_the_device(runs):
    """Three steps with a session's observers: the numbers of each are read once, before the
    update."""
    assert runs["waits"] == {READ: 3}


def test_a_forgotten_move_is_refused(runs):
    """The proof can fail: without the one move of the feed the device refuses the step."""
    assert "Mixed" in runs["forgotten"] and "'cpu'" in runs["forgotten"]


def test_a_session_on_another_device_resumes_and_is_measured(runs):
    """Previews, checkpoints, averages and metrics; lost in the middle it ends with the same
    weights."""
    assert isinstance(runs["far"], str), runs["far"]
    assert runs["resumed"] == runs["far"]
    assert runs["far measured"] == pytest.approx(runs["near measured"], abs=1e-3)


@pytest.mark.slow
def test_every_lever_is_on_and_steps_there(tmp_path):
    levers = found("levers", tmp_path)
    assert set(levers) == set(CATALOG.levers)
    assert {name: told for name, told in levers.items() if told.get("where") != ["strange"]} == {}
    waits = {name: set(told["waits"]) - {READ} for name, told in levers.items()}
    assert {name: places for name, places in waits.items() if places} == {}, (
        "docs/on-a-gpu.md lists them"
    )


def test_moved_keeps_the_form_and_copies_nothing_that_is_there():
    one = torch.ones(2)
    assert moved(one, "cpu") is one
    assert moved("a word", "meta") == "a word"  # what is no tensor is left alone
    kept = moved({"a": (one, None)}, "meta")
    assert kept["a"][0].is_meta and kept["a"][1] is None
    assert settled(torch.nn.Linear(1, 1), "meta").weight.is_meta


def test_a_feed_of_another_device_is_refused(tiny, cache):
    with pytest.raises(ValueError, match="hands batches over on 'meta'"):
        assemble(tiny(), 0, System(), Feed(tiny(), 0, cache, device="meta"))


@without_gpu
@pytest.mark.parametrize(
    "words",
    [
        ["train", "spark"],
        ["sample", "0123", "a red circle"],
        ["encode", "spark"],
        ["measure", "0123"],
    ],
)
def test_cuda_without_a_gpu_is_refused_before_anything_is_made(words, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--device", "cuda", "--out", str(tmp_path / "out"), "--json"])
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert ended.value.code == 2
    assert "torch finds no GPU" in said["error"] and "--device cpu" in said["hint"]
    assert not (tmp_path / "out").exists()


def test_another_device_is_no_device(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["train", "spark", "--device", "auto", "--out", str(tmp_path), "--json"])
    assert "no device is called 'auto'" in capsys.readouterr().out


@without_gpu
def test_what_stands_beside_the_cells_takes_the_cpu_where_there_is_no_gpu():
    assert at_hand("cuda") == at_hand("cpu") == "cpu"


def test_each_process_needs_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    require_device("cuda", 2)
    with pytest.raises(BadInput, match="3 processes need a GPU each, and torch finds 2"):
        require_device("cuda", 3)


def test_lanes_share_no_gpu(tiny):
    assert room([tiny()], threads=1, cores=64, memory=64 * PROCESS, gpus=8).lanes == 8
    assert room([tiny()], threads=1, processes=4, cores=64, memory=64 * PROCESS, gpus=8).lanes == 2
    eight = [str(one) for one in range(8)]
    assert [gpus_of(lane, 4, eight) for lane in range(3)] == [eight[:4], eight[4:], eight[:4]]
    assert [gpus_of(lane, 1, ["GPU-a", "GPU-b"]) for lane in range(2)] == [["GPU-a"], ["GPU-b"]]


def test_a_plans_device_is_part_of_it_and_the_cpu_was_always_there():
    plan = Plan(title="t", baseline="spark", arms=("muon",), seeds=(0, 1))
    assert "device" not in plan.frozen  # plans of before keep their hash
    assert plan.model_copy(update={"device": "cuda"}).hash != plan.hash
