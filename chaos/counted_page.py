"""The counts of an attack as a block of a page, between two marks: what was struck how often, and
what was lost."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

BEGIN, END = (
    "<!-- counted by `python -m chaos --page`: do not edit -->",
    "<!-- end of what was counted -->",
)


def too_few(struck: Mapping[str, int], inputs: int, least: Mapping[str, int]) -> list[str]:
    """What was asked for and not reached: an attack that strikes nothing breaks no promise
    either."""
    reached = {**struck, "inputs": inputs}
    return [
        f"{reached.get(name, 0):,} {name}, at least {wanted:,} were asked for"
        for name, wanted in least.items()
        if reached.get(name, 0) < wanted
    ]


def write_counts(
    page: Path,
    struck: Mapping[str, int],
    inputs: Mapping[str, int],
    losses: int,
    seconds: float,
    seed: int,
) -> None:
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{page} has no place for the counts: expected the lines\n{BEGIN}\n{END}")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(
        f"{before}{BEGIN}\n{block(struck, inputs, losses, seconds, seed)}\n{END}{after}"
    )


def block(
    struck: Mapping[str, int], inputs: Mapping[str, int], losses: int, seconds: float, seed: int
) -> str:
    day = datetime.now(UTC).date().isoformat()
    lines = [
        f"{day}, {seconds / 60:.0f} minutes, seed {seed}: **{losses} promises broken**.",
        "",
        "| what | how often |",
        "|---|---|",
        *(f"| {name} | {number:,} |" for name, number in sorted(struck.items())),
        f"| inputs, to {len(inputs)} readers | {sum(inputs.values()):,} |",
    ]
    return "\n".join(lines)
