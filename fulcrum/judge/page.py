"""The report page: one HTML file, with JSON, CSV and Markdown next to it."""

import base64
import contextlib
import datetime
import hashlib
import os
import platform
import re
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from markupsafe import Markup

from fulcrum.files.atomic import write_atomic
from fulcrum.files.lock import holder_of, locked
from fulcrum.files.paths import open_regular, read_regular
from fulcrum.files.sealed import MOST
from fulcrum.judge import figures, schema, sections, sentences, tables
from fulcrum.judge.schema import ArmResult, StudyResult
from fulcrum.spec.errors import BadInput, FulcrumError, inert

if TYPE_CHECKING:
    from jinja2 import Environment

# --------------------------------------------------------------------------------------------------
# The report as Markdown: for a pull request, a mail, or a terminal.


def markdown(result: StudyResult, more: Sequence[tuple[str, tables.Table]] = ()) -> str:
    """The report as Markdown: answers, ranking, all metrics, noise, `more` tables, levers, remarks,
    how to reproduce."""
    lines = [f"# {escaped(result.title)}", ""]
    if result.state != "finished":
        lines += [
            (
                f"*{result.state.capitalize()}: {result.progress.done} of {result.progress.total}"
                " cells done.*"
            ),
            "",
        ]
    lines += [
        line
        for headline in sentences.headlines(result)
        for line in (f"**{escaped(headline)}**", "")
    ]
    lines += [f"- {escaped(sentences.answer(result, arm))}" for arm in result.best_first]
    more_seeds = sentences.more_seeds(result)
    notes = (
        sentences.shrinkage(result),
        figures.standing(result, result.primary),
        figures.beside(result.primary),
        schema.question(result),
        more_seeds,
    )
    lines += [line for note in notes if note for line in ("", escaped(note))]
    lines += ["", code(result.made.command)] if more_seeds else []
    titled = (
        ("Ranking", tables.ranking(result)),
        ("Failed", tables.failed(result)),
        ("All metrics", tables.readings(result)),
        ("Noise", tables.noise(result)),
        *more,
    )
    for title, sheet in titled:
        if sheet.rows:
            lines += ["", f"## {title}", "", f"{escaped(sheet.caption)}.", "", *table_rows(sheet)]
    for arm in result.compared:
        made = tables.comparisons(result, arm)
        lines += [
            "",
            f"## {escaped(arm.label)}",
            "",
            f"{code(arm.phrase)}: {escaped(arm.says)}",
            "",
        ]
        lines += [
            f"- {code(path)}: {code(before)} → {code(after)}"
            for path, before, after in schema.changed_settings(arm)
        ]
        lines += [f"- costs {escaped(sentences.cost(arm))}"] if sentences.cost(arm) else []
        lines += [f"- {escaped(sentences.parts(arm))}"] if sentences.parts(arm) else []
        lines += [
            f"- claimed: {escaped(sentences.claimed(claim))}, {escaped(claim.scope)}"
            f" ({escaped(claim.source)})"
            + (f": {escaped(claim.verdict)}" if claim.verdict else "")
            + (f". {escaped(seen)}" if (seen := sentences.seen_of(result, arm, claim)) else "")
            for claim in arm.claims
        ]
        lines += [f"- failed: seeds {seeds}: {escaped(why)}" for seeds, why in schema.reasons(arm)]
        lines += ["", *table_rows(made)] if made.rows else []
    if result.remarks:
        lines += ["", "## Remarks", "", *(f"- {escaped(remark)}" for remark in result.remarks)]
    lines += [
        "",
        "## Reproduce",
        "",
        code(result.made.command),
        "",
        *(f"- {escaped(name)}: {escaped(value)}" for name, value in sentences.facts(result)),
    ]
    return "\n".join(lines) + "\n"


def table_rows(sheet: tables.Table) -> list[str]:
    """A table as lines of Markdown, its text escaped."""
    rule = ["---" if i in sheet.text_columns else "---:" for i in range(len(sheet.columns))]
    body = [[escaped(value) for value in row] for row in (sheet.columns, *sheet.rows)]
    return ["| " + " | ".join(row) + " |" for row in (body[0], rule, *body[1:])]


def escaped(text: str) -> str:
    """Text of the study is text, not markup: neither a table's bar nor a tag nor a link may come
    from it. An underscore inside a word is no markup."""
    line = " ".join(text.split())
    if not line.isprintable():
        line = inert(line)
    return re.sub(r"[\\`*\[\]<>|#~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", line)


def code(text: str) -> str:
    """A code span whose fence is longer than any run of backticks inside."""
    line = " ".join(text.split())
    flat = (line if line.isprintable() else inert(line)).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", flat)), default=0))
    return f"{fence}{flat}{fence}" if len(fence) == 1 else f"{fence} {flat} {fence}"


# --------------------------------------------------------------------------------------------------
# The study's page: one self-contained HTML file, with its JSON, CSV and Markdown beside it.


AXES: tuple[Literal["images", "seconds", "flops"], ...] = ("images", "seconds", "flops")
NO_BREAK = "\u00a0"
CROWD = 4  # levers whose curves can share one picture


class Column(NamedTuple):
    """One arm's pictures in a sheet."""

    arm: ArmResult
    images: tuple[str, ...]


def render(result: StudyResult, gallery: str = "") -> str:
    """The whole page as text: no link to anything outside, every value of the study escaped, and no
    script unless the study is running: then one, allowed by its hash, that renews the page.
    `gallery`: where one answers that draws with this study's arms; its own server says so, and then
    prompts are links."""
    running = result.state == "running"
    script = (
        resources.files("fulcrum.judge").joinpath("templates/live.js").read_text("utf-8")
        if running
        else ""
    )
    others = result.best_first
    return inert(
        _environment()
        .get_template("page.jinja")
        .render(
            result=result,
            gallery=gallery,
            script=Markup(script),
            script_hash=script_hash(script),
            probes=sections.probe_table(result),
            style=Markup(
                resources.files("fulcrum.judge").joinpath("templates/style.css").read_text("utf-8")
            ),
            others=others,
            decisions=len(result.decisions),
            ranking=sections.ranking(result),
            trends=sections.trends(result),
            cells={(arm.name, cell.seed): cell for arm in result.trained for cell in arm.cells},
            held=_held_equal(result),
            exploratory=any(row.exploratory for row in result.effects),
            claimed=any(arm.claims for arm in result.compared),
            machines=bool(schema.machines(result)),
            fronts=_drawn(
                figures.pareto(result, result.primary, "time_ratio"),
                figures.pareto(result, result.primary, "flops_ratio"),
            ),
            curves=_curves(result),
            panels=(
                figures.panels(result, result.primary)
                if len(others) > CROWD and not result.fraction
                else []
            ),
            sheets=_sheets(result),
        )
    )


def write(result: StudyResult, folder: Path | str) -> Path:
    """Writes report.html, report.json, effects.csv and report.md; nobody sees half a file. Returns
    the page."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page = render(result)  # nothing is touched if this fails
    for name, text in (
        ("report.json", result.model_dump_json(indent=1) + "\n"),
        ("effects.csv", tables.csv_text(result)),
        ("report.md", markdown(result, sections.tables(result))),
        ("report.html", page),
    ):  # the page last: it speaks of the others
        write_atomic(folder / name, text)
    return folder / "report.html"


def read(path: Path | str) -> StudyResult:
    """A study's result from its report.json."""
    return StudyResult.model_validate_json(read_regular(Path(path), limit=MOST))


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only a page needs it

    environment = Environment(
        loader=PackageLoader("fulcrum.judge"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["glue"] = _glue
    environment.filters["gapless"] = lambda text: text.replace(" ", NO_BREAK).replace(
        f"{NO_BREAK}[", " ["
    )
    environment.globals.update(
        figures=figures,
        schema=schema,
        sections=sections,
        sentences=sentences,
        tables=tables,
    )
    return environment


def _glue(sentence: str) -> str:
    """An interval, or 'p 0.03', is one word to the eye: no line may break inside."""
    kept = re.sub(
        r"\[[^\[\]]{1,40}\]", lambda interval: interval[0].replace(" ", NO_BREAK), sentence
    )
    return re.sub(r"\b(p|±)\s(?=[<\d])", rf"\1{NO_BREAK}", kept)


def _held_equal(result: StudyResult) -> str:
    """What the headline comparisons held equal, if all held the same."""
    units = {
        row.unit for arm in result.compared if (row := result.effect(arm.name, result.primary.name))
    }
    return (
        sentences.held_equal(units.pop())
        if len(units) == 1 and units <= sentences.EQUAL.keys()
        else ""
    )


def _drawn(*figures: Markup | None) -> list[Markup]:
    return [drawn for drawn in figures if drawn is not None]


def _curves(result: StudyResult) -> list[Markup]:
    """The primary metric at equal images, time and FLOPs; then every other metric and the training
    loss."""
    if result.fraction is not None:  # no lever has a curve of its own
        return []
    first = [figures.curves(result, result.primary, axis) for axis in AXES]
    rest = [
        figures.curves(result, metric) for metric in result.metrics if metric is not result.primary
    ]
    return _drawn(*first, *rest, figures.losses(result))


def _sheets(result: StudyResult) -> list[tuple[int, list[Column]]]:
    """Seed -> one column per arm that has pictures of this seed; an arm without any stays as an
    empty column."""
    if result.grids is None or not result.grids.prompts:
        return []
    pictures = {(row.arm, row.seed): row.images for row in result.grids.arms}
    seeds = sorted({seed for _, seed in pictures})
    order = [
        *(arm for arm in result.arms if result.is_base(arm)),
        *(result.combinations or result.best_first),
    ]
    return [
        (seed, [Column(arm, pictures.get((arm.name, seed), ())) for arm in order]) for seed in seeds
    ]


def script_hash(script: str) -> str:
    """What a content security policy calls a script that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


# --------------------------------------------------------------------------------------------------
# Is a page's study running? While it is, it holds a lock and touches the page; both end with it,
# even by kill -9.


LOCK, PAGE, RESULT = "running.lock", "report.html", "report.json"
BEAT = 5.0  # seconds between two touches of the page
SILENT = 120.0  # seconds without one, and the page says so: see templates/live.js
PATIENCE = 5.0  # seconds that a study waits for its lock
HEAD = 1 << 16  # bytes of the result in which its state stands
RUNNING = b'\n "state": "running",'  # there: a title in JSON has no line break


@contextlib.contextmanager
def beating(folder: Path, every: float = BEAT) -> Iterator[None]:
    """Entered by a study as long as it runs."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(every):
            # no page yet, or the disk is full: the study says it
            with contextlib.suppress(OSError):
                os.utime(folder / PAGE)

    with locked(
        folder / LOCK,
        patience=PATIENCE,
        busy=f"this study is running already, in another process: {folder}",
        busy_hint="wait for it, or watch it: fulcrum report --watch",
        unfit_hint="remove it: there was nothing in it but a machine's name",
        kind=BadInput,
        holder=platform.node(),
        need_locks=False,  # on a file system without locks silence has to tell
    ):
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def settle(folder: Path) -> StudyResult | None:
    """A page that says "running" of a study that is gone is written again as stopped; that result,
    or None.

    Gone is what was begun on this machine and holds its lock no more. Of a study elsewhere only its
    silence is known.
    """
    if not _says_it_runs(folder) or holder_of(folder / LOCK) != platform.node():
        return None
    try:  # a study that begins now waits until this is written
        with locked(folder / LOCK, patience=0.0, create=False):
            result = stopped(read(folder / RESULT), (folder / PAGE).stat().st_mtime)
            write(result, folder)
            return result
    # held: it runs. Or nothing here can be read, or written
    except (FulcrumError, OSError, ValueError):
        return None


def notice(folder: Path) -> str:
    """What a person must know of a study that did not end and is not running; its page is settled.
    Empty for all others."""
    left = settle(folder)
    silent = (
        left is None
        and _says_it_runs(folder)
        and time.time() - (folder / PAGE).stat().st_mtime > SILENT
    )
    if left is None and not silent:
        return ""
    try:
        result = left or read(folder / RESULT)
    except ValueError:  # of another version
        return ""
    what = "it was stopped, or its machine sleeps" if silent else "it was stopped"
    return (
        f"'{result.title}' was last heard of {result.made.date}: {what}; what is done is kept\n"
        f"  go on with: {result.made.command}"
    )


def _says_it_runs(folder: Path) -> bool:
    try:
        with open(open_regular(folder / RESULT, follow=True), "rb") as stream:
            return RUNNING in stream.read(HEAD)
    except OSError:
        return False


def stopped(result: StudyResult, heard: float) -> StudyResult:
    """The result of a study that was last heard of then, as it is left: cells that ran wait for the
    next."""
    arms, combinations = (
        tuple(
            arm.model_copy(
                update={
                    "cells": tuple(
                        (
                            cell.model_copy(update={"state": "waiting"})
                            if cell.state == "running"
                            else cell
                        )
                        for cell in arm.cells
                    )
                }
            )
            for arm in part
        )
        for part in (result.arms, result.combinations)
    )
    when = datetime.datetime.fromtimestamp(heard, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return result.model_copy(
        update={
            "state": "stopped",
            "arms": arms,
            "combinations": combinations,
            "made": result.made.model_copy(update={"date": when}),
            "progress": result.progress.model_copy(update={"seconds_left": None}),
        }
    )
