"""A disk that is full while a worker writes its cell: said clearly, nothing finished is lost, and
the study goes on."""

import json
import os
import resource
import subprocess
import sys

import pytest

from fulcrum.files.atomic import write_json
from fulcrum.spec.errors import BadInput
from fulcrum.training.run_folder import open_folder
from tests.study.small import SMALL

PLAN = (
    'title = "Full"\nbaseline = "spark"\narms = ["bf16_storage"]\nseeds = [0, 1]\nimages = 48\n'
    f"settings = {json.dumps(SMALL)}\nsamples = 64\ncompile = false\n"
)


def study(folder, most=resource.RLIM_INFINITY):
    """Run the study where no file may grow beyond `most` bytes: the error of a write is a full
    disk's."""

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    return subprocess.run(
        [
            sys.executable,
            "-m",
            "fulcrum",
            "study",
            "run",
            str(folder / "plan.toml"),
            "--out",
            str(folder / "runs"),
            "--quiet",
            "--lanes",
            "1",
        ],
        capture_output=True,
        text=True,
        timeout=280,
        preexec_fn=limited,
    )


@pytest.mark.slow
def test_a_study_goes_on_after_its_disk_was_full(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    for most in (50_000, 330_000):  # the cache, then a checkpoint
        result = study(tmp_path, most)
        assert (
            result.returncode == 1
            and "File too large" in result.stderr
            and "Traceback" not in result.stderr
        ), result.stderr
        assert not list(tmp_path.glob("runs/**/.*.writing"))
    done = study(tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_run_whose_description_could_not_be_written_can_be_made_again(
    tiny, tmp_path, monkeypatch
):
    def full(*given, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            open_folder(tmp_path, tiny(), 0, "spark", {})
    folder = next(tmp_path.iterdir())
    assert not list(folder.iterdir())  # nothing half-written stays
    (folder / ".about.json.123").write_text('{"key":')  # what kill -9 leaves
    assert open_folder(tmp_path, tiny(), 0, "spark", {}).path == folder
    other = open_folder(tmp_path, tiny(), 1, "spark", {}).path
    (other / "about.json").unlink()
    write_json(other / "mine.json", {})
    with pytest.raises(BadInput, match="not the folder of a run"):
        open_folder(tmp_path, tiny(), 1, "spark", {})
