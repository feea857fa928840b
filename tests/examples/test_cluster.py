"""The jobs under examples/cluster: bash reads them, their commands exist, and each exit code has
the right consequence."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from fulcrum.cli import app
from tools.pages.command_pages import every_command

JOBS = Path(__file__).parents[2] / "examples/cluster"
SCRIPTS = sorted(path for path in JOBS.iterdir() if path.suffix in (".sh", ".sbatch"))
COMMANDS = every_command(app)
SBATCH = {
    "job-name",
    "nodes",
    "ntasks-per-node",
    "gpus-per-node",
    "cpus-per-task",
    "time",
    "requeue",
    "signal",
    "open-mode",
}


def ids(path):
    return path.name


@pytest.mark.parametrize("script", SCRIPTS, ids=ids)
def test_bash_can_read_it(script):
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert script.read_text().startswith("#!/usr/bin/env bash\n# ") and os.access(script, os.X_OK)


@pytest.mark.parametrize("script", SCRIPTS, ids=ids)
def test_its_commands_and_options_exist(script):
    lines = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    calls = [
        found
        for line in lines
        for found in re.findall(r"\bfulcrum (study run|train|encode)\b(.*)", line)
    ]
    assert calls or script.name == "rank.sh"
    for name, rest in calls:
        known = {
            option for one in COMMANDS[name].params for option in (*one.opts, *one.secondary_opts)
        }
        assert not [
            option for option in re.findall(r"(?<!\S)--[\w-]+", rest) if option not in known
        ], rest


@pytest.mark.parametrize("script", [path for path in SCRIPTS if path.suffix == ".sbatch"], ids=ids)
def test_slurm_is_asked_before_the_first_command(script):
    lines = script.read_text().splitlines()
    asked = [number for number, line in enumerate(lines) if line.startswith("#SBATCH ")]
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert asked and max(asked) < first
    names = {re.match(r"#SBATCH --([\w-]+)(=\S+)?$", lines[number]).group(1) for number in asked}
    assert names <= SBATCH and {"nodes", "gpus-per-node", "time"} <= names


def test_the_readme_names_every_file():
    named = set(re.findall(r"^\| `([\w.]+)` \|", (JOBS / "README.md").read_text(), re.M))
    assert named == {path.name for path in SCRIPTS}


def job(script, tmp_path, code, restarts=0):
    """A job run with stand-ins: srun starts two tasks and ends with `code`, scontrol writes down
    what it is asked."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    stand_ins = {
        "srun": (
            'while [ "${1#--}" != "$1" ]; do shift; done\n'
            'for task in 0 1; do SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=2 "$@"; done\n'
            + f"exit {code}\n"
        ),
        "scontrol": (
            f'echo "scontrol $*" >> {tmp_path}/asked\ncase "$1" in show) printf'
            ' "node-a\\nnode-b\\n" ;; esac\n'
        ),
        "fulcrum": (
            'echo "$1 ${RANK:-} ${LOCAL_RANK:-} ${WORLD_SIZE:-} $MASTER_ADDR $MASTER_PORT"'
            f" >> {tmp_path}/ran"
        ),
    }
    for name, text in stand_ins.items():
        (tools / name).write_text("#!/usr/bin/env bash\n" + text)
        (tools / name).chmod(0o755)
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_JOB_NODELIST": "node-[a-b]",
        "SLURM_RESTART_COUNT": str(restarts),
        "FULCRUM_JOBS": str(JOBS),
    }
    done = subprocess.run(
        ["bash", str(JOBS / script), "spark"], env=env, capture_output=True, text=True, timeout=60
    )
    asked = tmp_path / "asked"
    ran = (tmp_path / "ran").read_text().splitlines()
    return done.returncode, asked.read_text() if asked.exists() else "", ran


@pytest.mark.parametrize("script", ["one_node.sbatch", "many_nodes.sbatch", "requeue.sbatch"])
def test_every_task_becomes_a_rank(tmp_path, script):
    code, _, ran = job(script, tmp_path, 0)
    host = "127.0.0.1" if script == "one_node.sbatch" else "node-a"
    assert code == 0 and [line for line in ran if line.startswith("train")] == [
        f"train 0 0 2 {host} 20007",
        f"train 1 1 2 {host} 20007",
    ]


@pytest.mark.parametrize(
    ("code", "restarts", "again"),
    [
        (75, 0, True),
        (75, 40, True),
        (4, 0, True),
        (4, 5, False),
        (134, 0, True),
        (134, 5, False),
        (137, 0, True),
        (253, 5, False),
        (1, 0, False),
        (2, 0, False),
    ],
)
def test_only_what_can_go_on_is_queued_again(tmp_path, code, restarts, again):
    ended, asked, _ = job("requeue.sbatch", tmp_path, code, restarts)
    assert ended == code and ("scontrol requeue 7" in asked) == again
