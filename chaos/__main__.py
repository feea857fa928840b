"""The attack on the whole program, counted.

    make chaos                          two minutes, as in CI
    python -m chaos --seconds 3600      an hour: half on disks, half on input

Kills -9 at every write call and at any moment, full, broken and read-only disks, short writes: each command is given again
afterwards and must end where the undisturbed one ends, bit for bit. Then mutated input for every reader: a refusal in words
is sound, anything else is a loss. Exit code 1 if a promise was broken.
"""

import argparse
import tempfile
from pathlib import Path

from chaos import disk_attack, input_attack
from chaos.hostile_input import TARGETS
from chaos.subjects import SUBJECTS

ON_INPUT = 0.3  # share of the time


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="how long to go on (120)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random in the attack (0)")
    parser.add_argument("--only", action="append", default=[], help="a command or a kind of input; may be repeated")
    asked = parser.parse_args()
    only = frozenset(asked.only)
    names = [one.name for one in (*SUBJECTS, *TARGETS)]
    if unknown := only - set(names):
        parser.error(f"nothing under attack is called {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        struck = disk_attack.attack(Path(folder), (1 - ON_INPUT) * asked.seconds, asked.seed, only)
    fed = input_attack.attack(ON_INPUT * asked.seconds, asked.seed, only)
    losses = [*struck.losses, *fed.losses]
    for loss in losses:
        print(f"{loss}\n")
    for name, number in sorted(fed.inputs.items()):
        print(f"{number:>12,} {name}")
    for name, number in sorted(struck.struck.items()):
        print(f"{number:>12,} {name}")
    print(f"{sum(fed.inputs.values()):>12,} inputs in all; seed {asked.seed}; {len(losses)} promises broken")
    if not struck.struck and not fed.inputs:
        raise SystemExit("nothing was attacked: give it more --seconds")
    raise SystemExit(bool(losses))


if __name__ == "__main__":
    main()
