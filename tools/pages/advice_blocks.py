"""What the advice says today, as the blocks of docs/advice.md: of a run, how good that is, and what
to ask next."""

import os
from pathlib import Path

from fulcrum.advice.advice import advise, next_plan, text
from fulcrum.advice.back_test import back_test, back_test_text
from fulcrum.advice.effect_pool import known_effects
from fulcrum.levers.catalog import CATALOG
from fulcrum.studies.plan import Plan

PAGE = "advice.md"
RUN = "spark"
NO_STUDIES = Path(os.devnull)  # what ships alone: a page does not depend on who writes it
END = "<!-- end of what it says -->"


def blocks() -> dict[str, str]:
    """The command -> what it prints."""
    scores = back_test(
        known_effects(CATALOG, NO_STUDIES), CATALOG, Plan.model_fields["primary"].default
    )
    advice = advise(RUN, CATALOG, NO_STUDIES)
    plan = next_plan(advice, CATALOG, NO_STUDIES)
    return {
        f"fulcrum advise {RUN}": text(advice),
        "fulcrum advise --backtest": back_test_text(scores).rstrip(),
        f"fulcrum advise {RUN} --plan next.toml": plan.words(Path("next.toml")),
    }


def with_blocks(page: str, printed: dict[str, str]) -> str:
    """The page with what its commands print, each between its two marks; a page without them is
    refused."""
    for command, words in printed.items():
        before, begin, rest = page.partition(begin_of(command))
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(
                f"docs/{PAGE} has no place for what `{command}` prints: {begin_of(command)} ..."
                f" {END}"
            )
        page = f"{before}{begin}\n\n```\n{words}\n```\n\n{end}{after}"
    return page


def refresh(docs: Path) -> Path:
    """Write what the commands print into the page; its other words are a person's."""
    page = docs / PAGE
    page.write_text(with_blocks(page.read_text(encoding="utf-8"), blocks()), encoding="utf-8")
    return page


def begin_of(command: str) -> str:
    return f"<!-- what `{command}` says: written by `make docs`, held by a test -->"
