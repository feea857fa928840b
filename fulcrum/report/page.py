"""The study's page: one self-contained HTML file, with its JSON, CSV and Markdown beside it."""

import base64
import hashlib
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import read_regular
from fulcrum.files.sealed import MOST
from fulcrum.report import design_tables, markdown_text, ranking, run_facts, table
from fulcrum.report.arm_result import ArmResult
from fulcrum.report.figures import arm_marks, cost_figure, curve_figure, difference_figure, range_figure
from fulcrum.report.schema import StudyResult
from fulcrum.report.wording import certainty, claim_sentences, number, sentences
from fulcrum.spec.errors import inert

AXES: tuple[Literal["images", "seconds", "flops"], ...] = ("images", "seconds", "flops")
NO_BREAK = "\u00a0"
CROWD = 4  # levers whose curves can share one picture


class Column(NamedTuple):
    """One arm's pictures in a sheet."""

    arm: ArmResult
    images: tuple[str, ...]


def render(result: StudyResult, gallery: str = "") -> str:
    """The whole page as text: no link to anything outside, every value of the study escaped, and no script unless the
    study is running: then one, allowed by its hash, that renews the page. `gallery`: where one answers that draws with
    this study's arms; its own server says so, and then prompts are links."""
    running = result.state == "running"
    script = resources.files("fulcrum.report").joinpath("templates/live.js").read_text("utf-8") if running else ""
    others = result.best_first
    return inert(
        _environment()
        .get_template("page.jinja")
        .render(
            result=result,
            gallery=gallery,
            script=Markup(script),
            script_hash=script_hash(script),
            probes=design_tables.probe_table(result),
            style=Markup(resources.files("fulcrum.report").joinpath("templates/style.css").read_text("utf-8")),
            others=others,
            decisions=len(result.decisions),
            ranking=ranking.ranking(result),
            trends=design_tables.trends(result),
            cells={(arm.name, cell.seed): cell for arm in result.trained for cell in arm.cells},
            held=_held_equal(result),
            exploratory=any(row.exploratory for row in result.effects),
            claimed=any(arm.claims for arm in result.compared),
            machines=bool(certainty.machines(result)),
            fronts=_drawn(
                cost_figure.pareto(result, result.primary, "time_ratio"),
                cost_figure.pareto(result, result.primary, "flops_ratio"),
            ),
            curves=_curves(result),
            panels=curve_figure.panels(result, result.primary) if len(others) > CROWD and not result.fraction else [],
            sheets=_sheets(result),
        )
    )


def write(result: StudyResult, folder: Path | str) -> Path:
    """Writes report.html, report.json, effects.csv and report.md; nobody sees half a file. Returns the page."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page = render(result)  # nothing is touched if this fails
    for name, text in (
        ("report.json", result.model_dump_json(indent=1) + "\n"),
        ("effects.csv", table.csv_text(result)),
        ("report.md", markdown_text.markdown(result, design_tables.tables(result))),
        ("report.html", page),
    ):  # the page last: it speaks of the others
        write_atomic(folder / name, text)
    return folder / "report.html"


def read(path: Path | str) -> StudyResult:
    """A study's result from its report.json."""
    return StudyResult.model_validate_json(read_regular(Path(path), limit=MOST))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fulcrum.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["glue"] = _glue
    environment.filters["gapless"] = lambda text: text.replace(" ", NO_BREAK).replace(f"{NO_BREAK}[", " [")
    environment.globals.update(
        words=sentences,
        certainty=certainty,
        claims=claim_sentences,
        number=number,
        table=table,
        difference_figure=difference_figure,
        cost_figure=cost_figure,
        range_figure=range_figure,
        run_facts=run_facts,
        arm_marks=arm_marks,
        design_tables=design_tables,
    )
    return environment


def _glue(sentence: str) -> str:
    """An interval, or 'p 0.03', is one word to the eye: no line may break inside."""
    kept = re.sub(r"\[[^\[\]]{1,40}\]", lambda interval: interval[0].replace(" ", NO_BREAK), sentence)
    return re.sub(r"\b(p|±)\s(?=[<\d])", rf"\1{NO_BREAK}", kept)


def _held_equal(result: StudyResult) -> str:
    """What the headline comparisons held equal, if all held the same."""
    units = {row.unit for arm in result.compared if (row := result.effect(arm.name, result.primary.name))}
    return sentences.held_equal(units.pop()) if len(units) == 1 and units <= sentences.EQUAL.keys() else ""


def _drawn(*figures: Markup | None) -> list[Markup]:
    return [drawn for drawn in figures if drawn is not None]


def _curves(result: StudyResult) -> list[Markup]:
    """The primary metric at equal images, time and FLOPs; then every other metric and the training loss."""
    if result.fraction is not None:  # no lever has a curve of its own
        return []
    first = [curve_figure.curves(result, result.primary, axis) for axis in AXES]
    rest = [curve_figure.curves(result, metric) for metric in result.metrics if metric is not result.primary]
    return _drawn(*first, *rest, curve_figure.losses(result))


def _sheets(result: StudyResult) -> list[tuple[int, list[Column]]]:
    """Seed -> one column per arm that has pictures of this seed; an arm without any stays as an empty column."""
    if result.grids is None or not result.grids.prompts:
        return []
    pictures = {(row.arm, row.seed): row.images for row in result.grids.arms}
    seeds = sorted({seed for _, seed in pictures})
    order = [*(arm for arm in result.arms if result.is_base(arm)), *(result.combinations or result.best_first)]
    return [(seed, [Column(arm, pictures.get((arm.name, seed), ())) for arm in order]) for seed in seeds]


def script_hash(script: str) -> str:
    """What a content security policy calls a script that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
