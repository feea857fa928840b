"""kill -9 at a random step, from outside, then the same command: the same weights hash."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fulcrum.cli import main

pytestmark = pytest.mark.long

SETTINGS = [
    word
    for setting in ("model.width=32", "model.heads=2", "budget.batch=16", "data.source.count=256")
    for word in ("--set", setting)
]


def command(out, *more, phrase="spark"):
    return [
        sys.executable,
        "-c",
        "from fulcrum.cli import main; main()",
        "train",
        phrase,
        "--images",
        "3200",
        "--out",
        str(out),
        "--threads",
        "1",
        "--no-compile",
        "--json",
        "--quiet",
        *SETTINGS,
        *more,
    ]


@pytest.mark.slow
def test_kill_9_at_random_steps(tmp_path):
    whole = subprocess.run(command(tmp_path / "whole"), capture_output=True, text=True)
    expected = json.loads(whole.stdout.splitlines()[-1])["weights_sha256"]
    for trial in range(3):
        out = tmp_path / f"killed{trial}"
        process = subprocess.Popen(command(out), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not list(out.glob("*/record.jsonl")):
            time.sleep(0.05)
        time.sleep(random.Random(trial).uniform(0.5, 6.0))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        again = subprocess.run(command(out), capture_output=True, text=True)
        assert json.loads(again.stdout.splitlines()[-1])["weights_sha256"] == expected


def last_weights(capsys, words):
    """Of the run that a command trains or goes on with, in this process: its key, and all tensors
    of its last save."""
    with pytest.raises(SystemExit) as end:
        main(words[3:])
    said = capsys.readouterr()
    assert not end.value.code, said.out + said.err
    key, out = json.loads(said.out.splitlines()[-1])["key"], Path(words[words.index("--out") + 1])
    last = max((out / key / "checkpoints").glob("0*"))
    return key, {
        f"{part.stem}.{name}": value
        for part in last.glob("*.safetensors")
        for name, value in load_file(part).items()
    }


def test_an_adapter_that_was_killed_learns_the_same_bits(tmp_path, capsys):
    """LoRA beside a trained run, kill -9 between two checkpoints: weights, moments and what the run
    began from."""
    base, before = last_weights(capsys, command(tmp_path / "base", "--images", "320"))
    for name in ("whole", "killed"):
        shutil.copytree(tmp_path / "base", tmp_path / name)
    begun = ("--start", base, "--images", "1600")
    learn = {"phrase": "spark + lora(rank=4, targets=[matrix, head])"}
    key, whole = last_weights(capsys, command(tmp_path / "whole", *begun, **learn))
    killed = command(tmp_path / "killed", *begun, **learn)
    process = subprocess.Popen(killed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and len(list(tmp_path.glob(f"killed/{key}/checkpoints/0*"))) < 2:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    said = process.communicate()[1]
    folder = tmp_path / "killed" / key
    assert process.returncode == -signal.SIGKILL and folder.is_dir(), said
    assert not (folder / "result.json").exists(), "it was too late to kill it"
    again, resumed = last_weights(capsys, killed)
    assert again == key and resumed.keys() == whole.keys()
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []
    learned = [
        name
        for name in whole
        if name.startswith("model.") and not torch.equal(whole[name], before.get(name, whole[name]))
    ]
    products = [name for name in whole if name.startswith("model.") and name not in before]
    assert products and not learned, "the base stays, the products are what learns"
    assert any(whole[name].abs().max() > 0 for name in products if whole[name].is_floating_point())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_ctrl_c_and_sigterm_save_and_say_how_to_go_on(tmp_path, number, code):
    process = subprocess.Popen(
        command(tmp_path, "--images", "320000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while (
        not any(path.stat().st_size for path in tmp_path.glob("*/record.jsonl"))
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    process.send_signal(number)
    time.sleep(0.02)
    process.send_signal(number)  # launchers pass it on once more
    out, _ = process.communicate(timeout=120)
    said = json.loads(out.splitlines()[-1])
    assert (
        process.returncode == code
        and "everything is saved" in said["error"]
        and "fulcrum train" in said["hint"]
    )
    assert list(tmp_path.glob("*/checkpoints/0*"))
