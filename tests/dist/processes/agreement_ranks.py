"""One rank of two, run as a script by test_agreement.py: `fulcrum train` again and again, each time
with another mishap.

python agreement_ranks.py OUT COPY PORT ...

RANK, LOCAL_RANK and WORLD_SIZE are in the environment.
"""

import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from ranks_of_a_run import words  # noqa: E402

from fulcrum.cli import main  # noqa: E402
from fulcrum.training.dist import collectives as agreement  # noqa: E402

SECOND = os.environ["RANK"] == "1"


def command(out, *more):
    said = io.StringIO()
    begun = time.monotonic()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(words(out, *more)[2:])
        except SystemExit as ended:
            return {
                "code": ended.code,
                "said": said.getvalue(),
                "seconds": time.monotonic() - begun,
            }
    raise AssertionError("a command always exits")


def another_code(out, copy):
    """The second rank's package is a copy in which a comment was added."""
    kept = agreement.ROOT
    if SECOND:
        agreement.ROOT = copy
    agreement.code_hash.cache_clear()
    try:
        return command(out)
    finally:
        agreement.ROOT = kept
        agreement.code_hash.cache_clear()


def scenarios(out, copy):
    """(name, what to do)."""
    for name, other in (
        ("seed", ("--seed", "1")),
        ("rate", ("--set", "optim.lr=0.002")),
        ("kept", ("--keep-checkpoints", "2")),
        ("skipped", ("--most-skipped", "0.2")),
    ):
        yield name, lambda other=other: command(out / "told", *(other if SECOND else ()))
    yield "code", lambda: another_code(out / "told", copy)
    yield "budget", lambda: command(out / "told", *(("--images", "160") if SECOND else ()))
    yield "folder", lambda: command(out / "private")
    yield "cache", lambda: command(out / "cached")


if __name__ == "__main__":
    place, found, (*ports, last) = Path(sys.argv[1]), {}, sys.argv[3:]
    for (name, act), port in zip(scenarios(place, Path(sys.argv[2])), ports, strict=True):
        os.environ["MASTER_PORT"] = port  # a group of its own for each
        found[name] = act()
        (place / f"{os.environ['RANK']}.json").write_text(json.dumps(found))
    # the second rank cannot read its cache: the watch ends the first, which waits for it
    os.environ["MASTER_PORT"] = last
    main(words(place / "damaged")[2:])
