"""Exit codes are what the pages say: a job script decides by them whether to start again."""

import re
from pathlib import Path

import pytest

from fulcrum.cli import UNREAD
from fulcrum.cli.audit import FAULTS
from fulcrum.cli.rerun import UNDECIDED
from fulcrum.cli.train import resume_command
from fulcrum.spec.errors import (
    INTERRUPTED,
    REQUEUE,
    BadInput,
    FulcrumError,
    RankLost,
    RunFailed,
    TrainingFailed,
)

DOCS = Path(__file__).parents[2] / "docs"
OF_ERRORS = {FulcrumError, BadInput, RankLost, RunFailed, TrainingFailed}
CODES = {
    0,
    FAULTS,
    UNDECIDED,
    REQUEUE,
    INTERRUPTED,
    UNREAD,
    *(kind.exit_code for kind in OF_ERRORS),
}


def test_the_table_names_every_code_and_no_other():
    section = (
        (DOCS / "many-processes.md")
        .read_text(encoding="utf-8")
        .partition("## Exit codes")[2]
        .partition("\n## ")[0]
    )
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.M)} == CODES


def test_the_page_of_commands_names_them_too():
    page = (DOCS / "reference/commands.md").read_text(encoding="utf-8")
    said = page.partition("- Exit codes: ")[2].partition("([when")[0]
    assert {int(code) for code in re.findall(r"(?:^|[\s,])(\d+)\s", said)} == CODES


@pytest.mark.parametrize(
    ("processes", "env", "command"),
    [
        (1, {}, "fulcrum train 'spark + muon'"),
        (
            8,
            {"LOCAL_WORLD_SIZE": "8"},
            "torchrun --nproc-per-node 8 -m fulcrum train 'spark + muon'",
        ),
        # torchrun on eight machines: 64 on one of them would find no GPUs
        (64, {"LOCAL_WORLD_SIZE": "8"}, ""),
        (8, {"SLURM_NTASKS": "8"}, ""),
    ],
)
def test_how_to_go_on_is_said_only_where_it_is_known(processes, env, command):
    assert resume_command(["train", "spark + muon"], processes, env) == command
