"""Ranks that would train different things: named with what differs, on all ranks, within half a
minute; nothing trains."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fulcrum
from fulcrum.files.folders import Mark, leave_mark, unseen
from fulcrum.files.sealed import SEAL, write_sealed
from fulcrum.spec.errors import RankLost
from fulcrum.training.dist.collectives import code_hash, require_agreement
from fulcrum.training.dist.ranks import ALONE

pytestmark = pytest.mark.long

sys.path.insert(0, str(Path(__file__).parent))
from ranks_of_a_run import Started, free_port, words  # noqa: E402

SCRIPT = Path(__file__).with_name("agreement_ranks.py")
SCENARIOS = 9
NAMESPACES = (
    bool(shutil.which("unshare")) and subprocess.run(["unshare", "-rm", "true"]).returncode == 0
)
own_mounts = pytest.mark.skipif(not NAMESPACES, reason="needs a mount namespace of its own")


def mounted(*pairs):
    """A command's beginning that shows it other folders under the same names, as a machine's own
    disk does."""
    mounts = " && ".join(f'mount --bind "{own}" "{name}"' for own, name in pairs)
    return ["unshare", "-rm", "sh", "-c", f'{mounts} && exec "$@"', "sh"] if NAMESPACES else []


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What both ranks saw of all scenarios, and where. Spawned once for all tests."""
    out = tmp_path_factory.mktemp("agreement")
    for name in ("told", "private", "elsewhere", "cached", "damaged"):
        (out / name).mkdir()
    copy = out / "copy"
    shutil.copytree(
        Path(fulcrum.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__", "assets")
    )
    (copy / "training/loop.py").write_text(
        (copy / "training/loop.py").read_text() + "# another checkout\n"
    )
    subprocess.run(
        [sys.executable, *words(out / "cached", images=8)], check=True, capture_output=True
    )
    shutil.copytree(out / "cached/cache", out / "own_cache")
    shutil.copytree(out / "cached/cache", out / "damaged/cache")
    shutil.copytree(out / "cached/cache", out / "damaged_cache")
    for header in (out / "own_cache").glob("latents-*/header.json"):
        encoded_otherwise(header)
    for header in (out / "damaged_cache").glob("latents-*/header.json"):
        header.write_text("{}")
    script = [str(SCRIPT), str(out), str(copy), *(free_port() for _ in range(SCENARIOS))]
    wrap = mounted(
        (out / "elsewhere", out / "private"),
        (out / "own_cache", out / "cached/cache"),
        (out / "damaged_cache", out / "damaged/cache"),
    )
    with Started(script, script, wrap={1: wrap}) as run:
        ends = run.ended(240)
    assert [code for code, _ in ends] == ([RankLost.exit_code, 1] if NAMESPACES else [0, 0]), ends
    (out / "said").write_text(ends[0][1])
    return out, *(json.loads((out / f"{rank}.json").read_text()) for rank in "01")


def encoded_otherwise(path):
    """A header that is whole, and names other rows."""
    header = json.loads(path.read_text())
    write_sealed(
        path,
        {name: value for name, value in header.items() if name != "seal"} | {"chunks": "0" * 64},
        SEAL,
    )


def refused(ranks, name):
    """What the first rank said: both ended with the code of bad input, soon, and one spoke."""
    _, first, second = ranks
    assert first[name]["code"] == second[name]["code"] == 2, (first[name], second[name])
    assert max(first[name]["seconds"], second[name]["seconds"]) < 30
    assert second[name]["said"] == ""
    return first[name]["said"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("seed", "seed expected 0, found 1"),
        ("rate", "found 0.002"),
        ("budget", "budget.images expected 80, found 160"),
        ("kept", "--keep-checkpoints expected 0, found 2"),
        ("skipped", "--most-skipped expected 0.05, found 0.2"),
        ("code", "code of the package expected"),
    ],
)
def test_a_rank_that_was_told_another_thing_is_named(ranks, name, expected):
    said = refused(ranks, name)
    assert (
        "the processes of the run do not agree" in said
        and "rank 1 on " in said
        and expected in said
    )
    assert "nothing was trained" in said and not [
        path for path in (ranks[0] / "told").iterdir() if path.is_dir()
    ]


def test_what_agrees_is_not_told(ranks):
    assert "optim" not in refused(ranks, "seed") and "budget" not in refused(ranks, "code")


@own_mounts
def test_a_folder_that_is_only_called_the_same_is_named(ranks):
    said, out = refused(ranks, "folder"), ranks[0]
    assert f"{out / 'private'} is not one folder for all processes of the run" in said
    assert (
        "rank 0 on " in said
        and "does not see what rank 1 wrote" in said
        and "does not see what rank 0 wrote" in said
    )
    assert not list((out / "private").iterdir()) and not list((out / "elsewhere").iterdir())


@own_mounts
def test_a_cache_with_other_rows_is_named(ranks):
    said = refused(ranks, "cache")
    assert "(cached encodings)" in said and "latents" in said and "rank 1 on " in said
    assert not list((ranks[0] / "cached").glob("*/checkpoints/0*80"))


@own_mounts
def test_a_rank_that_cannot_read_its_cache_is_named_by_the_others(ranks):
    said = (ranks[0] / "said").read_text()
    assert "rank 1 of 2 on " in said and "has failed: Damaged" in said and "header.json" in said
    assert not list((ranks[0] / "damaged").glob("*/checkpoints/0*"))


def test_one_process_agrees_with_itself_at_no_cost():
    require_agreement(ALONE, "anything", {"not to be written": object})


def test_the_hash_of_the_code_is_of_the_whole_package():
    """Two clones agree if and only if every Python file of the package is the same in both, at the
    same place."""
    package = Path(fulcrum.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    assert code_hash() == digest.hexdigest()[:16]


def test_a_mark_is_seen_only_where_it_was_left(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    mark = leave_mark(here)
    there.mkdir()
    (there / mark.name).write_text("a word of another study")
    assert unseen(here, [mark], 0.0) == [] and unseen(there, [mark], 0.0) == [0]
    assert unseen(here, [mark, Mark(".shared-none", "x")], 0.3) == [1]
    (there / mark.name).unlink()
    (there / mark.name).symlink_to(here / mark.name)
    assert unseen(there, [mark], 0.0) == [0], "a link was followed"
    mark.remove(here)
    assert unseen(here, [mark], 0.0) == [0]
