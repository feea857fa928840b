"""fulcrum data: import, look at, check and filter your own pictures."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fulcrum.cli.options import Json, Quiet, emit, heard, say
from fulcrum.cli.train import train_command
from fulcrum.spec.errors import BadInput, FulcrumError

# --------------------------------------------------------------------------------------------------
# fulcrum data filter: an imported data set without what its user does not want, as a new one.


def register_filter(data: typer.Typer) -> None:
    data.command(
        "filter",
        epilog="Example: fulcrum data filter my_data my_clean_data --duplicates 4 --language en",
    )(filter_data)


def filter_data(
    store: Annotated[Path, typer.Argument(help="An imported data set.")],
    to: Annotated[Path, typer.Argument(metavar="DEST", help="New folder for what is left.")],
    duplicates: Annotated[
        int | None,
        typer.Option(
            metavar="BITS",
            help=(
                "Of pictures that look alike keep one: hashes differ in at most so many of 64 bits."
            ),
        ),
    ] = None,
    least_side: Annotated[
        int | None, typer.Option(min=1, help="Pixels, of pictures as they were given.")
    ] = None,
    most_aspect: Annotated[
        float | None, typer.Option(min=1.0, help="Longer to shorter side, as given.")
    ] = None,
    caption: Annotated[
        str, typer.Option(help="Name of the captions that rules and scores are about.")
    ] = "long",
    rules: Annotated[
        bool,
        typer.Option(
            "--rules",
            help="Drop captions that are empty, repeat themselves, or are a model's refusal.",
        ),
    ] = False,
    language: Annotated[
        str, typer.Option(help="Drop captions in another language: en. Implies --rules.")
    ] = "",
    least_words: Annotated[
        int | None, typer.Option(min=1, help="Of a caption. Implies --rules.")
    ] = None,
    most_words: Annotated[
        int | None, typer.Option(min=1, help="Of a caption. Implies --rules.")
    ] = None,
    scores: Annotated[Path | None, typer.Option(help="A table of fulcrum data score.")] = None,
    score: Annotated[str, typer.Option(help="Score the pairs now: world, or clip=FOLDER.")] = "",
    least_score: Annotated[float | None, typer.Option(help="Drop pairs that fit less.")] = None,
    drop: Annotated[
        float | None, typer.Option(help="Drop this share of the pairs, worst first.")
    ] = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Filter held-out pictures too; else they stay.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Leave pictures out by likeness, size, caption and image-text score; write what is left as a
    data set of its own.

    The new data set names its parent's hash and what was asked for; its ledger counts what went and
    why.
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
    wanted = FilterRules(
        least_side, most_aspect, duplicates, used, text_rules, least_score, drop, held_out
    )
    tell = heard(quiet)
    scorer = _scorer(scores, score)
    about = filtered_already(store, to, wanted, bool(scorer), tell, scorer)
    if about is None:
        about = filter_store(
            store, to, wanted, _scores(store, caption, scores, score, held_out, tell), tell, scorer
        )
    ledger = read_json(to / LEDGER, "")
    split = "split " + ", ".join(f"{name} {count:,}" for name, count in about["splits"].items())
    lines = [
        *ledger_lines(ledger),
        split,
        f"content {about['content'][:16]}, parent {about['parent'][:16]}",
    ]
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


def _scores(
    store: Path, caption: str, table: Path | None, scorer: str, held_out: bool, tell: Any
) -> Any:
    """(rows,) scores from a table or by a network."""
    if table is not None:
        from fulcrum.data.stores.derived_store import read_scores
        from fulcrum.data.stores.picture_store import local_folder, read_about

        about = read_about(local_folder(store))
        return read_scores(table, about["count"], about["content"])
    if scorer:
        from fulcrum.data.stores.picture_store import PictureStore, local_folder
        from fulcrum.measure.store_scores import open_scorer, score_rows
        from fulcrum.networks.captioning.captioners import WORLD
        from fulcrum.networks.captioning.recaption import foreign_store

        opened = PictureStore(local_folder(store))
        score = open_scorer(scorer)
        if scorer == WORLD and (warning := foreign_store(opened)):
            tell(warning)
        assert score is not None  # the name is not empty
        return score_rows(opened, score, caption, held_out, tell)
    return None


# --------------------------------------------------------------------------------------------------
# fulcrum data: the user's own pictures made ready to train on; the embedded world.


SHOWN = 20  # faults that are printed; --json has all
SPLITS = ("train", "validation", "reference", "curated")  # of the embedded world

app = typer.Typer(
    no_args_is_help=True, help="Your own pictures made ready to train on; the embedded world."
)


class NotSound(FulcrumError):
    """A data set that is not what was written."""


def register(parent: typer.Typer) -> None:
    register_filter(app)
    parent.add_typer(app, name="data")


@app.command(
    "import", epilog="Example: fulcrum data import photos my_data --size 64 --bad quarantine"
)
def import_data(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of pictures with .txt or .json captions beside them, "
            "or a table (metadata.jsonl, .csv, .parquet); WebDataset tar shards "
            "(folder, file, pattern, URL), MDS shards; a saved Hugging Face dataset. With a"
            " reader of "
            "your own: whatever it reads."
        ),
    ],
    to: Annotated[
        Path, typer.Argument(metavar="DEST", help="New folder for the imported data set.")
    ],
    size: Annotated[int, typer.Option(help="Pixels on a side.")] = 64,
    buckets: Annotated[
        bool,
        typer.Option(
            "--buckets",
            help="Keep aspect ratios: the nearest of several shapes "
            "instead of a square; every batch of training has one. What is held "
            "out is square.",
        ),
    ] = False,
    bucket_step: Annotated[
        int,
        typer.Option(
            help="Sides of those shapes are multiples of it; 0: an eighth of the size.",
            show_default=False,
        ),
    ] = 0,
    encoding: Annotated[
        str, typer.Option("--format", help="How pictures are stored: png, jpeg, raw.")
    ] = "png",
    quality: Annotated[int, typer.Option(min=50, max=100, help="Of jpeg.")] = 95,
    bad: Annotated[
        str,
        typer.Option(
            help="A bad sample: stop at the first, or quarantine (leave out, count, name)."
        ),
    ] = "stop",
    enlarge: Annotated[
        bool, typer.Option("--enlarge", help="Enlarge smaller pictures; else they are dropped.")
    ] = False,
    pad: Annotated[
        bool,
        typer.Option(
            "--pad",
            help="Keep the whole picture, with --background beside it, instead of cropping it.",
        ),
    ] = False,
    background: Annotated[
        str, typer.Option(help="Colour behind what is see-through, and beside what is padded.")
    ] = "white",
    once: Annotated[
        bool, typer.Option("--once", help="Drop repeated pictures, else only counted.")
    ] = False,
    hold_out: Annotated[
        float,
        typer.Option(
            help="Share of the pictures held out for validation, and as many again as reference."
        ),
    ] = 0.05,
    caption: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FIELD",
            help="A caption and the field that holds it: short=title. Repeatable.",
        ),
    ] = None,
    table: Annotated[str, typer.Option(help="Table of captions beside a folder of pictures.")] = "",
    file: Annotated[str, typer.Option(help="The field that names (or holds) the picture.")] = "",
    group: Annotated[
        str, typer.Option(help="Samples alike in this field are held out together.")
    ] = "",
    reader: Annotated[
        Path | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="A Python file with a reader of your own: docs/your-data.md. It is executed.",
        ),
    ] = None,
    shard: Annotated[int, typer.Option(min=1, max=1_000_000, help="Pictures of a shard.")] = 4096,
    shelf: Annotated[
        Path | None,
        typer.Option(
            help="Folder for copies of remote shards; else FULCRUM_SHELF, or the user's cache.",
            show_default=False,
        ),
    ] = None,
    shelf_gb: Annotated[
        float | None,
        typer.Option(
            help=(
                "Most that those copies may take; the longest unused leave first. Else"
                " FULCRUM_SHELF_GB, or 16."
            ),
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Read pictures and captions, check, crop and resize them, and write a data set to train on,
    with its ledger and card.

    Killed or stopped at a bad sample, the same command goes on. At the end it prints the command
    that trains on what was imported.
    """
    from fulcrum.data.readers.reader import Fields, open_given, open_with
    from fulcrum.data.stores.finish_import import import_summary, run_import
    from fulcrum.data.stores.importing import Options

    fields = Fields(tuple(map(_pair, caption or [])), group, file)
    options = Options(
        size,
        buckets,
        encoding,
        quality,
        bad,
        enlarge,
        once,
        hold_out,
        shard,
        bucket_step,
        pad,
        background,
    )
    options.checked()
    tell = heard(quiet)
    if reader is None:
        run_import(
            open_given(source, fields, table, _shelf(shelf, shelf_gb, tell)), to, options, tell
        )
    elif fields != Fields() or table:
        raise BadInput(
            "--caption, --group, --file and --table are for readers of ours",
            "your own reader decides them",
        )
    else:
        given, about = open_with(reader, source)
        run_import(given, to, options, tell, about)
    facts, lines = import_summary(to)
    lines += train_command(to)
    emit(facts, as_json, "\n".join(lines))


@app.command("check", epilog="Example: fulcrum data check my_data")
def check_data(
    path: Annotated[Path, typer.Argument(help="An imported data set.")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare every checksum, decode every picture, read every caption, add up the ledger. Exit
    code 1 if one is wrong."""
    from fulcrum.data.stores.verify import check

    checked = check(path, None if quiet else say)
    faults = checked["faults"]
    emit(
        checked,
        as_json,
        (
            ""
            if faults
            else f"sound: {checked['samples']:,} samples, content {checked['content'][:16]}"
        ),
    )
    if faults and as_json:
        raise typer.Exit(1)
    if faults:
        for fault in faults[:SHOWN]:
            say(fault)
        rest = f", of which {SHOWN} are shown" if len(faults) > SHOWN else ""
        raise NotSound(
            f"{path} is damaged: {len(faults):,} faults{rest}",
            "copy it again from where it was sound, or import the pictures again",
        )


@app.command("card", epilog="Example: fulcrum data card my_data")
def show_card(
    path: Annotated[
        Path | None, typer.Argument(help="An imported data set; none: the embedded world.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Counts, hashes and proportions: of an imported data set, or of every split of the embedded
    world."""
    from fulcrum.data.sheets import data_card

    card = data_card(_world(32)) if path is None else _card_of(path)
    emit(card, as_json, json.dumps(card, indent=1))


@app.command("show", epilog="Example: fulcrum data show sheet.png --of my_data")
def show_pictures(
    to: Annotated[Path, typer.Argument(help="PNG file to write.")] = Path("world.png"),
    of: Annotated[
        Path | None, typer.Option(help="An imported data set; none: the embedded world.")
    ] = None,
    as_json: Json = False,
) -> None:
    """A sheet of captioned pictures from an imported data set, or from the world."""
    from fulcrum.data.sheets import store_sheet, world_sheet

    world_sheet(to, _world(128)) if of is None else store_sheet(to, of)
    emit({"file": str(to)}, as_json, str(to))


@app.command(
    "score", epilog="Example: fulcrum data score my_data scores.csv --features clip=/models/clip"
)
def score_pairs(
    path: Annotated[Path, typer.Argument(help="An imported data set.")],
    to: Annotated[Path, typer.Argument(metavar="FILE", help="Table to write: row,score.")],
    features: Annotated[str, typer.Option(help="What knows pictures and words: clip=FOLDER.")],
    caption: Annotated[str, typer.Option(help="Name of the captions that are scored.")] = "long",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Score every training picture with its caption, for "caption_filter(scores='FILE')"."""
    from fulcrum.data.stores.derived_store import write_scores
    from fulcrum.data.stores.picture_store import PictureStore
    from fulcrum.measure.features.extractor import load_extractor
    from fulcrum.measure.store_scores import score_rows, scorer_of

    store = PictureStore(path)
    score = scorer_of(load_extractor(features))
    fits = score_rows(store, score, caption, False, heard(quiet))
    scores = {row: float(fits[row]) for row in store.split("train").tolist()}
    write_scores(to, scores, store.about)
    emit(
        {"file": str(to), "scored": len(scores)},
        as_json,
        f"{to}: scores of {len(scores):,} training pictures",
    )


def _world(size: int) -> list[Any]:
    from fulcrum.data.source import WorldSource

    return [WorldSource(split=split, domain="real", size=size, count=4096) for split in SPLITS]


def _card_of(path: Path) -> dict[str, Any]:
    from fulcrum.data.stores.picture_store import CARD, read_about

    read_about(path)
    try:
        card: dict[str, Any] = json.loads((path / CARD).read_text())
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the card of {path} cannot be read: {error}", "import the pictures again"
        ) from None
    return card


def _shelf(folder: Path | None, limit: float | None, tell: Any) -> Any:
    from fulcrum.files.remote import RemoteCache, user_cache

    own = user_cache(tell)
    return RemoteCache(folder or own.folder, own.limit / 1e9 if limit is None else limit, tell)


def _pair(text: str) -> tuple[str, str]:
    name, equals, field = text.partition("=")
    if not (name and equals and field):
        raise BadInput(
            f"a caption is written NAME=FIELD, found '{text}'", "such as --caption short=title"
        )
    return name, field
