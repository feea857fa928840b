"""Faults put in on purpose.

    make mutants                             one for each promise: a test must fail by an assertion,
                                             and pass without it
    python -m mutants sample --seconds 240   goes on with a seeded sample of all small changes to
                                             the rooms that matter
    python -m mutants told                   what the sample has shown so far

Everything happens in a copy of the tree. Exit code 1 if a fault that stands for a promise was not
noticed.
"""

import argparse
import json
import tempfile
from pathlib import Path

from mutants import promise_mutants, sampled_run
from mutants.forked_tests import warm_up
from mutants.tree_copy import ROOT


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("promises", "sample", "told"))
    parser.add_argument(
        "--only", action="append", default=[], help="words of a promise; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="outcomes of promises as lines of JSON")
    parser.add_argument(
        "--seconds", type=float, default=240.0, help="how long to go on with the sample (240)"
    )
    parser.add_argument(
        "--each", type=int, default=90, help="mutants of each of the four groups of rooms (90)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument(
        "--room", choices=tuple(sampled_run.ROOMS), help="only mutants of this group of rooms"
    )
    parser.add_argument("--again", action="store_true", help="only those that survived before")
    parser.add_argument(
        "--keep", type=Path, default=ROOT / "build" / "mutants", help="where outcomes are kept"
    )
    asked = parser.parse_args()
    if asked.what == "told":
        print("\n".join(sampled_run.summary(asked.keep, asked.each, asked.seed)))
        return
    warm_up()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        if asked.what == "sample":
            asked.keep.mkdir(parents=True, exist_ok=True)
            chosen = [
                one
                for one in sampled_run.sample(asked.each, asked.seed)
                if asked.room in (None, one.room)
            ]
            place, say = Path(folder), lambda text: print(text, flush=True)
            sampled_run.go_on(asked.keep, place, chosen, asked.seconds, asked.again, say)
            return
        unnoticed = 0
        for outcome in promise_mutants.tried(Path(folder), asked.only):
            unnoticed += not outcome.noticed
            print(json.dumps(outcome._asdict()) if asked.json else str(outcome), flush=True)
    raise SystemExit(bool(unnoticed))


if __name__ == "__main__":
    main()
