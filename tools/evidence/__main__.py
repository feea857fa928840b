"""Write the evidence page of this repository: python -m tools.evidence docs/evidence

The page shows the ranking of all kept studies, every published claim next to what was measured, and
pictures. The same studies give the same files, byte for byte.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.studies.verify import results
from tools.evidence.files import write


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.evidence", description=__doc__.splitlines()[0]
    )
    parser.add_argument("folder", type=Path, help="the kept studies, each in a folder of its name")
    parser.add_argument(
        "--readme",
        type=Path,
        help="a Markdown file with the two evidence marks, to write its opening",
    )
    parser.add_argument(
        "--levers",
        type=Path,
        help="the folder of measured.json, to write the table of measured rows",
    )
    asked = parser.parse_args(words)
    try:
        studies = results(asked.folder, CATALOG)
        changed = write(studies, asked.folder, asked.readme, asked.levers)
    except BadInput as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    print(f"{len(studies)} studies; written:")
    print("\n".join(f"  {path}" for path in changed) or "  nothing: all files are current")
    return 0


if __name__ == "__main__":
    sys.exit(main())
