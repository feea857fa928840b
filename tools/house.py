"""Measure how large the package is and how plainly it is written, against limits.

    python -m tools.house            sizes of the rooms, wording, and what is above its limit
    python -m tools.house --words    every place whose wording counts, as file:line

A statement of two packed assignments (`a, b = 1, 2`) counts twice. Inline branches are conditional
expressions, `and`, `or` and comprehension loops: fewer statements that are denser are no gain, so
both have a limit.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fulcrum"
LIMITS = {"files": 262, "statements": 36_100, "packed": 905, "inline": 6_850}
#: docstrings, comments and messages of the package; words per 1,000 that make a reader stop
MOST_STUMBLES = 13.0
STUMBLES = re.compile(
    r"\b(abreast|anew|beside|goes on|going on|held against|hangs on|in words|let go|lies|nobody"
    r"|nothing but|of its own|of one's own|of their own|one's|seldom|stands|thereof|told|tells"
    r"|what is|what are|what it|what they|what was|what of|whoever|whatever|who is|who has)\b",
    re.IGNORECASE,
)


def sizes() -> dict[str, Counter[str]]:
    """Room -> files, statements, packed assignments and inline branches."""
    rooms: dict[str, Counter[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        row = rooms.setdefault(parts[0] if len(parts) > 1 else "top", Counter())
        row["files"] += 1
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            row.update(counted(node))
    return rooms


def counted(node: ast.AST) -> dict[str, int]:
    """Return what one node of a syntax tree adds; a docstring adds nothing."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return {}
    if isinstance(node, ast.IfExp | ast.BoolOp | ast.comprehension):
        return {"inline": 1}
    match node:
        case ast.Assign(targets=[ast.Tuple(), *_], value=ast.Tuple(elts=values)):
            return {"statements": len(values), "packed": 1}
    return {"statements": 1} if isinstance(node, ast.stmt) else {}


def prose() -> Iterator[tuple[str, str]]:
    """Yield place and text of each docstring, message and comment of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        source = path.read_text("utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield f"{name}:{node.lineno}", node.value
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield f"{name}:{token.start[0]}", token.string


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", action="store_true", help="list the wording that counts")
    asked = parser.parse_args()
    rooms = sizes()
    total = sum(rooms.values(), Counter())
    for room, row in sorted(rooms.items(), key=lambda item: -item[1]["statements"]):
        print(f"{room:10}" + "".join(f"{row[name]:9,} {name}" for name in LIMITS))
    print(f"{'all':10}" + "".join(f"{total[name]:9,} {name}" for name in LIMITS))
    words = 0
    stumbles = 0
    for place, text in prose():
        words += len(text.split())
        found = STUMBLES.findall(text)
        stumbles += len(found)
        if asked.words and found:
            print(f"{place}: {', '.join(found)}")
    rate = 1000 * stumbles / words
    print(f"{words:,} words, {stumbles:,} that make a reader stop: {rate:.1f} per 1,000")
    above = [
        f"{total[name]:,} {name}, at most {limit:,}"
        for name, limit in LIMITS.items()
        if total[name] > limit
    ]
    if rate > MOST_STUMBLES:
        above.append(f"{rate:.1f} stumbles per 1,000 words, at most {MOST_STUMBLES:g}")
    if above:
        print("above the limit: " + "; ".join(above), file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
