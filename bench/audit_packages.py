"""What the audit says of installed packages: a line for each fault, so that `diff` shows what a
change of the rules adds.

python bench/audit_packages.py [PACKAGE ...] > after.txt
"""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

from fulcrum.advice.audit import audit
from fulcrum.spec.errors import BadInput

PACKAGES = ("accelerate", "diffusers", "peft", "transformers")


def main(packages: tuple[str, ...]) -> None:
    files, unread, counts = 0, 0, Counter[str]()
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            print(f"{package} is not installed", file=sys.stderr)
            continue
        folder = Path(spec.origin).parent
        for path in sorted(folder.rglob("*.py")):
            files += 1
            try:
                faults = audit(str(path)).faults
            except BadInput as error:
                unread += 1
                print(f"{path.relative_to(folder.parent)}: not read: {error}")
                continue
            for fault in faults:
                counts[fault.rule] += 1
                print(f"{fault.place.replace(f'{folder.parent}/', '')}\t{fault.rule}\t{fault.seen}")
    told = ", ".join(f"{rule} {count}" for rule, count in sorted(counts.items())) or "nothing"
    print(
        f"{files:,} files, {unread} not read, {sum(counts.values())} faults: {told}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or PACKAGES)
