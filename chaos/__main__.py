"""The attack on the whole program, counted.

    make chaos                          as in CI: under four minutes
    python -m chaos --seconds 3600      an hour, half of it on disks

Kills -9 at every write call and at any moment, of commands, of their workers and of the ranks of a
run; full, broken, slow and read-only disks, short writes, clocks that are set, little memory; two
of everything at once. Each command is given again afterwards and must end where the undisturbed one
ends, bit for bit. Then mutated input for every reader: a refusal in words is sound, anything else
is a loss. Exit code 1 if a promise was broken, or less was struck than `--least-…` asks.
"""

import argparse
import tempfile
import time
from pathlib import Path

from chaos import crowd_attack, disk_attack, input_attack
from chaos.counted_page import too_few, write_counts
from chaos.crowd_attack import SCENES
from chaos.hostile_input import TARGETS
from chaos.subjects import SUBJECTS
from chaos.target import Prepared
from chaos.trial import Host

LEAST = {"kills": "kills", "faults": "write faults", "inputs": "inputs"}  # option -> what it counts
ON_INPUT, ON_CROWDS = 0.2, 0.3  # shares of the time; the rest is for single commands


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=120.0,
        help="how long to go on, without what is prepared (120)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of everything random in the attack (0)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="a command, a scene or a kind of input; repeatable",
    )
    for name, what in LEAST.items():
        help = f"fail if there were fewer {what} (0)"
        parser.add_argument(f"--least-{name}", type=int, default=0, metavar="COUNT", help=help)
    parser.add_argument(
        "--page", type=Path, help="a page whose block of counts is written anew: docs/promises.md"
    )
    asked = parser.parse_args()
    names = [one.name for one in (*SUBJECTS, *SCENES, *TARGETS)]
    only = frozenset(asked.only or names)
    if unknown := only - set(names):
        parser.error(
            f"nothing under attack is called {', '.join(sorted(unknown))}; there are:"
            f" {', '.join(names)}"
        )
    subjects = [one for one in SUBJECTS if one.name in only]
    scenes = [one for one in SCENES if one.name in only]
    targets = [one for one in TARGETS if one.name in only]
    begun, seconds, seed = time.monotonic(), asked.seconds, asked.seed
    with tempfile.TemporaryDirectory(prefix="chaos-") as place, Host() as host:
        prepared = Prepared(host, Path(place))
        alone = disk_attack.attack(prepared, subjects, (1 - ON_INPUT - ON_CROWDS) * seconds, seed)
        crowd = crowd_attack.attack(prepared, scenes, ON_CROWDS * seconds, seed, least=len(scenes))
    fed = input_attack.attack(targets, ON_INPUT * seconds, seed)
    losses, counts = [*alone.losses, *crowd.losses, *fed.losses], alone.counts + crowd.counts
    for name, number in (*sorted(fed.inputs.items()), *sorted(counts.items())):
        print(f"{number:>12,} {name}")
    print(f"{fed.inputs.total():>12,} inputs in all; seed {seed}; {len(losses)} promises broken")
    if not counts and not fed.inputs:
        raise SystemExit("nothing was attacked: give it more --seconds")
    if asked.page:
        write_counts(asked.page, counts, fed.inputs, len(losses), time.monotonic() - begun, seed)
    short = too_few(
        counts,
        fed.inputs.total(),
        {what: getattr(asked, f"least_{name}") for name, what in LEAST.items()},
    )
    for line in short:
        print(f"too few: {line}; give it more --seconds")
    raise SystemExit(bool(losses or short))


if __name__ == "__main__":
    main()
