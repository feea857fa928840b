"""fulcrum data filter: an imported data set without what its user does not want, as a new one."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fulcrum.cli.options import Json, Quiet, emit, heard
from fulcrum.cli.trained.next_command import train_command
from fulcrum.spec.errors import BadInput


def register_filter(data: typer.Typer) -> None:
    data.command("filter", epilog="Example: fulcrum data filter my_data my_clean_data --duplicates 4 --language en")(
        filter_data
    )


def filter_data(
    store: Annotated[Path, typer.Argument(help="An imported data set.")],
    to: Annotated[Path, typer.Argument(metavar="DEST", help="New folder for what is left.")],
    duplicates: Annotated[
        int | None,
        typer.Option(
            metavar="BITS", help="Of pictures that look alike keep one: hashes differ in at most so many of 64 bits."
        ),
    ] = None,
    least_side: Annotated[int | None, typer.Option(min=1, help="Pixels, of pictures as they were given.")] = None,
    most_aspect: Annotated[float | None, typer.Option(min=1.0, help="Longer to shorter side, as given.")] = None,
    caption: Annotated[str, typer.Option(help="Name of the captions that rules and scores are about.")] = "long",
    rules: Annotated[
        bool, typer.Option("--rules", help="Drop captions that are empty, repeat themselves, or are a model's refusal.")
    ] = False,
    language: Annotated[str, typer.Option(help="Drop captions in another language: en. Implies --rules.")] = "",
    least_words: Annotated[int | None, typer.Option(min=1, help="Of a caption. Implies --rules.")] = None,
    most_words: Annotated[int | None, typer.Option(min=1, help="Of a caption. Implies --rules.")] = None,
    scores: Annotated[Path | None, typer.Option(help="A table of fulcrum data score.")] = None,
    score: Annotated[str, typer.Option(help="Score the pairs now: world, or clip=FOLDER.")] = "",
    least_score: Annotated[float | None, typer.Option(help="Drop pairs that fit less.")] = None,
    drop: Annotated[float | None, typer.Option(help="Drop this share of the pairs, worst first.")] = None,
    held_out: Annotated[bool, typer.Option("--held-out", help="Filter held-out pictures too; else they stay.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Leave pictures out by likeness, size, caption and image-text score; write what is left as a data set of its own.

    The new data set names its parent's hash and what was asked for; its ledger counts what went and why.
    """
    from fulcrum.data.caption_quality import CaptionRules
    from fulcrum.data.stores.derived_store import FilterRules, filter_store, filtered_already
    from fulcrum.data.stores.importing import ledger_lines
    from fulcrum.data.stores.picture_store import LEDGER
    from fulcrum.files.sealed import read_json

    text_rules = None
    if rules or language or least_words or most_words:
        text_rules = CaptionRules(least_words, most_words, language=language)
    used = caption if text_rules or scores or score else ""
    wanted = FilterRules(least_side, most_aspect, duplicates, used, text_rules, least_score, drop, held_out)
    tell = heard(quiet)
    scorer = _scorer(scores, score)
    about = filtered_already(store, to, wanted, bool(scorer), tell, scorer)
    if about is None:
        about = filter_store(store, to, wanted, _scores(store, caption, scores, score, held_out, tell), tell, scorer)
    ledger = read_json(to / LEDGER, "")
    split = "split " + ", ".join(f"{name} {count:,}" for name, count in about["splits"].items())
    lines = [*ledger_lines(ledger), split, f"content {about['content'][:16]}, parent {about['parent'][:16]}"]
    facts = {
        "folder": str(to),
        "ledger": ledger,
        **{name: about[name] for name in ("count", "splits", "content", "parent")},
    }
    emit(facts, as_json, "\n".join([*lines, *([] if as_json else train_command(to))]))


def _scorer(table: Path | None, scorer: str) -> dict[str, Any]:
    """Who gives the scores; empty: nobody."""
    if table is not None and scorer:
        raise BadInput("--scores and --score say two things about the scores", "leave one out")
    if table is not None:
        from fulcrum.files.paths import explained
        from fulcrum.files.sealed import sha256_file

        with explained("read", table, message=f"the scores {table} cannot be read", kind=BadInput):
            return {"scores_sha256": sha256_file(table)}
    return {"scorer": scorer} if scorer else {}


def _scores(store: Path, caption: str, table: Path | None, scorer: str, held_out: bool, tell: Any) -> Any:
    """(rows,) scores from a table or by a network."""
    if table is not None:
        from fulcrum.data.stores.derived_store import read_scores
        from fulcrum.data.stores.picture_store import local_folder, read_about

        about = read_about(local_folder(store))
        return read_scores(table, about["count"], about["content"])
    if scorer:
        from fulcrum.networks.captioning.captioners import score_rows

        return score_rows(store, scorer, caption, held_out, tell)
    return None
