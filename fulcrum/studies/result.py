"""The result of a study as the report shows it."""

import contextlib
import datetime
import gc
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fulcrum.data.fillers import OneStyle, World
from fulcrum.files.sealed import read_json
from fulcrum.judge.cells import CellRecord, Cells, finished_cells
from fulcrum.judge.design import JudgedArm
from fulcrum.judge.effects import (
    lever_costs,
)
from fulcrum.judge.findings import findings_of, fraction_findings
from fulcrum.judge.looks import spending
from fulcrum.judge.metrics import (
    margins,
    shown_metric,
)
from fulcrum.judge.schema import (
    ArmCost,
    ArmResult,
    CellCounts,
    CellResult,
    CellState,
    ClaimResult,
    CurvePoint,
    GridArm,
    Grids,
    LossPoint,
    PlanFacts,
    Probes,
    Provenance,
    RateSearch,
    StudyResult,
    TimedCost,
)
from fulcrum.judge.sequence import StoppedArm, sequence
from fulcrum.judge.statistics import pairs_needed
from fulcrum.measure.preview import NOT_ENDED, read_lines
from fulcrum.networks.fillers import EmbeddedText
from fulcrum.spec.edit import explain, get
from fulcrum.spec.errors import BadInput
from fulcrum.spec.remark import Remark, remark
from fulcrum.spec.run import RunSpec
from fulcrum.spec.words import in_brief
from fulcrum.studies.arms import Arm, baseline_of, bases_of, unequal
from fulcrum.studies.cell import (
    Cell,
    Layout,
    cell_record,
    failed,
    finished,
    measuring,
    pictures,
    read_points,
)
from fulcrum.studies.claims import claim_places
from fulcrum.studies.frozen_plan import added_seeds
from fulcrum.studies.judging import judged_arms, metrics_of
from fulcrum.studies.plan import Plan
from fulcrum.studies.runner import Board
from fulcrum.training.dist.machine import fulcrum_version, machine_words

# --------------------------------------------------------------------------------------------------
# What a study ran, for its page: the plan's choices, what the baseline is, its data and its text
# encoder in words.


def plan_facts(plan: Plan, base: Arm, cells: Cells) -> PlanFacts:
    run = base.run
    return PlanFacts(
        hash=plan.hash,
        baseline=str(base.phrase),
        primary_metric=plan.primary,
        seeds=plan.seeds,
        images=run.budget.images,
        smallest_effect=margins(plan, [JudgedArm(base.name, base.name)], cells, plan.primary).get(
            base.name, plan.smallest_effect or 0.0
        ),
        alpha=plan.alpha,
        threads_per_cell=plan.threads,
        guidance=float(get(run, "sample.guide.scale")),
        learning_rate_policy=plan.rate_policy,
        sample_count=plan.samples,
        settings=plan.settings,
        data=_data(run),
        text=_text(run),
        looks=plan.looks,
        spending=spending(plan.looks, plan.alpha),
    )


def baseline_says(plan: Plan, arm: Arm) -> str:
    """What a baseline is: its recipe, with the levers and settings that every arm has too."""
    scale = next((one.settings for one in plan.scales if one.name == arm.scale), ())
    images = (f"budget.images={plan.images}",) if plan.images is not None else ()
    changed = (*map(str, arm.levers), *plan.settings, *images, *scale)
    return f"the recipe {arm.phrase.recipe}" + (
        f" with {', '.join(changed)}" if changed else " as it is"
    )


def _data(run: RunSpec) -> str:
    source, caption = run.data.source, run.data.caption
    words = f"{caption.style} captions" if isinstance(caption, OneStyle) else in_brief(caption)
    captions = f"{words}, {run.data.size} px"
    if type(source) is not World:
        return f"{in_brief(source)}, {captions}"
    objects = "one object" if source.max_objects == 1 else f"up to {source.max_objects} objects"
    kind = "photographed" if source.domain == "real" else "drawn"
    planted = f", {source.mislabelled:.0%} of them mislabelled" if source.mislabelled else ""
    return f"the embedded world: {source.count:,} {kind} scenes of {objects}{planted}, {captions}"


def _text(run: RunSpec) -> str:
    text = run.encode.text
    return (
        f"the embedded encoder, width {text.width}"
        if isinstance(text, EmbeddedText)
        else in_brief(text)
    )


# --------------------------------------------------------------------------------------------------
# What a reader must know before believing a study's effects, as remarks.


def remarks(plan: Plan, arms: Sequence[Arm], searches: Sequence[RateSearch] = ()) -> list[Remark]:
    """What a reader must know before believing the effects."""
    found, judged = _rates(plan, searches), judged_arms(plan, arms)
    needed = pairs_needed(plan.alpha)
    if len(plan.seeds) < needed and plan.design != "fractional":
        text = (
            f"{len(plan.seeds)} pairs cannot reach significance at {plan.alpha:g}: it takes "
            f"{needed}. Read the intervals, not the verdicts."
        )
        found.append(remark("too-few-seeds", text, pairs=len(plan.seeds), needed=needed))
    found += [
        remark("lever-warns", f"{arm.name}: {lever.card.warns}", arm=arm.name, lever=lever.name)
        for arm in arms
        for lever in arm.added
        if lever.card.warns
    ]
    for arm in arms:
        count = len(arm.added) + len(arm.removed)
        if arm.compound and count > 1:
            text = (
                f"{arm.name} is a compound of {count} levers: its effect belongs to them together."
            )
            found.append(remark("compound", text, arm=arm.name, levers=count))
        found += [
            remark(label.code, f"{arm.name} {label.text}.", arm=arm.name, **label.values)
            for label in arm.labels
        ]
    found += [
        remark(
            "other-base",
            f"{arm.name} is compared with {arm.against}, not with the baseline: its effect is the"
            " difference to that.",
            arm=arm.name,
            against=arm.against,
        )
        for arm in arms
        if len(bases_of(arm, arms)) > 1
    ]
    apart = [arm.name for arm in judged if arm.own_loss]
    if apart:
        text = (
            f"The validation loss of {', '.join(apart)} is not compared: the objective, the latent"
            " space or the prompts are not those of what it would be compared with."
        )
        found.append(remark("loss-not-compared", text, arms=apart))
    found += [
        remark(
            "evaluated-otherwise",
            f"{arm.name} is evaluated with other {', '.join(arm.may_differ)} than what it is"
            " compared with.",
            arm=arm.name,
            fields=list(arm.may_differ),
        )
        for arm in judged
        if arm.may_differ
    ]
    return [*found, *unequal(arms), *_design(plan)]


def _design(plan: Plan) -> list[Remark]:
    """What a plan's design does to the meaning of its effects."""
    found = list[Remark]()
    if plan.design == "leave_one_out":
        text = (
            "Each arm is the whole stack without one lever: a lever that helps makes its arm worse."
            " Published claims are about adding a lever to a plain recipe, and are not held against"
            " this."
        )
        found.append(remark("leave-one-out", text))
    if plan.design == "fractional":
        text = (
            "A lever's effect is its mean over the settings of the others: published claims are"
            " about adding it to a plain recipe, and are not held against this. Effects at equal"
            " time or FLOPs are not read off a fraction."
        )
        found.append(remark("fractional", text))
    if plan.trunk is not None:
        text = (
            f"All arms branch from '{plan.trunk}' trained for {plan.trunk_images:,} images with the"
            " same seed: the effects are those of a late change, not of training with it from the"
            " start."
        )
        found.append(remark("late-change", text, trunk=plan.trunk, images=plan.trunk_images))
    return found


def disturbed(cells: Cells) -> list[Remark]:
    """Cells that are not the trainings that were asked for: steps of theirs were left out, or they
    were rolled back."""
    found = []
    for arm, by_seed in cells.items():
        for seed, cell in sorted(by_seed.items()):
            backs, skipped = cell.rolled_back, cell.skipped
            if not backs and not skipped:
                continue
            rolled = f" and it was rolled back {backs} time{'s' * (backs > 1)}" if backs else ""
            text = (
                f"{arm}, seed {seed}: {skipped} of its steps were left out{rolled}; its pair counts"
                " all the same."
            )
            found.append(
                remark("disturbed", text, arm=arm, seed=seed, skipped=skipped, rolled_back=backs)
            )
    return found


def _rates(plan: Plan, searches: Sequence[RateSearch]) -> list[Remark]:
    if isinstance(plan.learning_rates, str):
        text = (
            f"Learning rates: {plan.learning_rates}. Every arm ran at the recipe's rate; no arm was"
            " tuned, so a verdict on an optimizer or a precision holds at this rate only."
        )
        return [remark("rates-not-tuned", text, policy=plan.learning_rates)]
    text = (
        f"Learning rates: {plan.learning_rates}; the validation loss has seen this choice, the"
        " other metrics have not."
    )
    found = [remark("rates-swept", text)]
    if edge := [search.arm for search in searches if search.note]:
        text = (
            f"The best rate of {', '.join(edge)} lies at the edge of the sweep: a wider one may"
            " find a better."
        )
        found.append(remark("best-rate-at-edge", text, arms=edge))
    return found


# --------------------------------------------------------------------------------------------------
# Arms, their cells and their pictures as the report shows them.


# Names of levers that are spelled in their own way; longer ones first.
SPELLED = {
    "end to end": "End-to-end",
    "min snr": "Min-SNR",
    "x prediction": "x-prediction",
    "bf16": "BF16",
    "edm": "EDM",
    "ema": "EMA",
    "irepa": "iREPA",
    "lpips": "LPIPS",
    "repa": "REPA",
    "sft": "SFT",
    "snr": "SNR",
    "sprint": "SPRINT",
    "tread": "TREAD",
}


def shown_arm(
    plan: Plan,
    arm: Arm,
    arms: Sequence[Arm],
    cells: Sequence[CellResult],
    cost: ArmCost | None,
    claims: Sequence[ClaimResult],
) -> ArmResult:
    return ArmResult(
        name=arm.name,
        phrase=str(arm.phrase),
        label=label(arm),
        says="; ".join(lever.card.says for lever in arm.added) or _says(plan, arm),
        compound=arm.compound,
        against="" if baseline_of(arm, arms) is arms[0] else arm.against,
        scale=arm.scale,
        labels=tuple(label.text for label in arm.labels),
        codes=arm.labels,
        diff=tuple(arm.changes),
        cost=cost or ArmCost(),
        claims=tuple(claims),
        cells=tuple(cells),
    )


def _says(plan: Plan, arm: Arm) -> str:
    """Of an arm that adds nothing: a stack without one of its levers, or a baseline."""
    gone = "; ".join(lever.card.says for lever in arm.removed)
    return f"taken away: {gone}" if gone else baseline_says(plan, arm)


def label(arm: Arm) -> str:
    """What a person calls the arm: "Short captions", "Muon", "BF16 storage"."""
    if arm.is_baseline:
        return f"the baseline [{arm.scale}]" if arm.scale else "the baseline"
    words = re.sub(
        rf"\b({'|'.join(SPELLED)})\b", lambda word: SPELLED[word[0]], arm.name.replace("_", " ")
    )
    return words if words.startswith(tuple(SPELLED.values())) else words[:1].upper() + words[1:]


def shown_cell(
    cell: Cell,
    record: CellRecord | None,
    board: Board | None,
    out: Path,
    curve: Sequence[CurvePoint],
    most: int,
    ended: bool,
    apart: bool,
) -> CellResult:
    """What the report shows of a cell, which has a `record` once it has finished or failed; a loss
    of another kind is `apart` and not put beside the baseline's."""
    final = {name: value.value for name, value in record.metrics.items()} if record else {}
    if apart:
        final.pop("validation_loss", None)
        curve = [point.model_copy(update={"values": _without_loss(point)}) for point in curve]
    lines = read_lines(
        out.joinpath(cell.key, "record.jsonl"), record.lines if record else NOT_ENDED, most
    )
    state: CellState = board.state.get(cell.key, "waiting") if board else "waiting"
    if record:
        state = "failed" if record.failed else "done"
    elif ended:
        state = "stopped"
    return CellResult(
        seed=cell.seed,
        key=cell.key,
        state=state,
        budget=cell.run.budget.images,
        images=record.images if record else _images(lines),
        final=final,
        curve=tuple(point for point in curve if point.values),
        loss=tuple(LossPoint(images=line["images"], loss=line["loss"]) for line in lines),
        failure=record.failure or "" if record else "",
        machine=machine_words(record.machine) if record else "",
    )


def _images(lines: Sequence[Mapping[str, Any]]) -> int:
    return int(lines[-1]["images"]) if lines else 0


def _without_loss(point: CurvePoint) -> dict[str, float | None]:
    return {name: value for name, value in point.values.items() if name != "validation_loss"}


def curve_of(
    cell: Cell, out: Path, plan: Plan, record: CellRecord | None, how: str
) -> list[CurvePoint]:
    """A cell's values over images: the held-out loss at every look, all metrics at the plan's
    evaluation points."""
    lines = read_lines(out.joinpath(cell.key, "curve.jsonl"), record.lines if record else NOT_ENDED)
    looks = {line["images"]: line for line in lines}
    points = (
        read_points(out / cell.key, cell.run, how, plan.evaluations)
        if len(plan.evaluations) > 1
        else {}
    )
    values_at = {
        images: {name: value["value"] for name, value in metrics.items()}
        for images, metrics in points.items()
    }
    if record and not record.failed and points:
        final = {name: value.value for name, value in record.metrics.items()}
        values_at[cell.run.budget.images] = final
    curve = []
    for images in sorted(looks.keys() | values_at.keys()):
        values = dict(values_at.get(images, {}))
        if images in looks:
            values["validation_loss"] = looks[images]["validation_loss"]
        seconds = looks[images]["seconds"] if images in looks else None
        curve.append(CurvePoint(images=images, seconds=seconds, values=values))
    return curve


def grids(layout: Layout, cells: Cells, out: Path, how: str) -> Grids:
    """The same prompts and noises for every arm, at the first seed that the arm has finished."""
    keys = {(cell.arm, cell.seed): cell.key for cell in layout.cells}
    finished = {arm.name: finished_cells(cells, arm.name) for arm in layout.arms}
    first = [(name, min(by_seed)) for name, by_seed in finished.items() if by_seed]
    shown = [(name, seed, pictures(out, keys[name, seed], how)) for name, seed in first]
    return Grids(
        prompts=tuple(shown[0][2]["prompts"]) if shown else (),
        arms=tuple(
            GridArm(arm=name, seed=seed, images=tuple(drawn["pictures"]))
            for name, seed, drawn in shown
        ),
    )


# --------------------------------------------------------------------------------------------------
# A fractional study as the report shows it: its levers in the place of arms, the combinations that
# were trained beside them.


def as_fraction(
    plan: Plan,
    layout: Layout,
    cells: Cells,
    costs: Mapping[str, ArmCost] | None,
    result: StudyResult,
) -> StudyResult:
    """The result of all cells, with effects of levers instead of arms."""
    arms = [layout.arms[0], *layout.levers]
    combinations = judged_arms(plan, layout.arms)
    metrics = [metric.name for metric in result.metrics]
    places = claim_places(plan, arms, metrics)
    levers = judged_arms(plan, arms)
    findings = fraction_findings(plan, combinations, levers, cells, metrics, places)
    spent = lever_costs(plan, combinations, costs) if costs else {}
    found = (*remarks(plan, arms, layout.searches), *findings.remarks)
    shown = [
        shown_arm(plan, arm, arms, (), spent.get(arm.name), findings.claims[arm.name])
        for arm in layout.levers
    ]
    return StudyResult(
        **{
            **{name: getattr(result, name) for name in StudyResult.model_fields},
            "arms": (result.arms[0], *shown),
            "combinations": result.arms[1:],
            "effects": findings.effects,
            "detectable": findings.detectable,
            "remarks": tuple(one.text for one in found),
            "codes": found,
            "interactions": findings.interactions,
            "time_to_target": (),
            "pareto": (),
            "fraction": findings.fraction,
        }
    )


# --------------------------------------------------------------------------------------------------
# The record that the report shows: what every cell found, effects with verdicts, noise, cost,
# contrasts, remarks.


LOSS_POINTS = 80_000  # of all cells' training losses together: what a page can hold


class StudyState(NamedTuple):
    """How far a study is."""

    board: Board | None = None
    seconds_left: float | None = None
    costs: Mapping[str, TimedCost] | None = None
    seconds: float | None = None
    stopped: tuple[StoppedArm, ...] = ()
    ended: bool = False  # the study was stopped, or failed, before its end


NOT_BEGUN = StudyState()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Ten thousand cells are millions of small objects that all stay: to look through them for
    rubbish, again and again, would take a quarter of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_uncollected()
def collect(
    cells: Sequence[Cell], out: Path, how: str, kept: dict[str, CellRecord] | None = None
) -> dict[str, dict[int, CellRecord]]:
    """arm -> seed -> the cells that have finished or failed, finished ones first; `kept` remembers
    these between calls, as a finished cell stays."""
    kept = {} if kept is None else kept
    records: dict[str, dict[int, CellRecord]] = {}
    for cell in cells:
        if cell.key not in kept:
            values = finished(out, cell, how)
            if values is None:
                continue
            kept[cell.key] = cell_record(cell.arm, cell.seed, values)
        records.setdefault(cell.arm, {})[cell.seed] = kept[cell.key]
    for cell in cells:
        if cell.key not in kept and (outcome := failed(out, cell, how)) is not None:
            record = cell_record(cell.arm, cell.seed, outcome)
            records.setdefault(cell.arm, {})[cell.seed] = record
    return records


@_uncollected()
def assemble_result(
    plan: Plan,
    layout: Layout,
    out: Path,
    command: str,
    state: StudyState = NOT_BEGUN,
    kept: dict[str, CellRecord] | None = None,
) -> StudyResult:
    """Everything the report shows, for a study that is running or finished."""
    arms, cells, how = layout.arms, layout.cells, measuring(plan).how
    judged = judged_arms(plan, arms)
    records: Cells = collect(cells, out, how, kept)
    sequenced = sequence(plan, judged, records) if plan.looks else None
    spared = {cell.key for cell in cells if sequenced and sequenced.spares(cell.arm, cell.seed)}
    if sequenced:  # what another study has finished or lost beyond the looks is none of this one's
        records = sequenced.within(records)
    curves = {
        cell.key: curve_of(cell, out, plan, records.get(cell.arm, {}).get(cell.seed), how)
        for cell in cells
        if cell.known
    }
    records = _with_curves(cells, records, curves)
    ended = {one.arm for one in state.stopped}
    metrics = metrics_of(plan, arms[0].run)
    findings = findings_of(
        plan,
        judged,
        records,
        metrics,
        claim_places(plan, arms, metrics),
        state.costs,
        state.stopped,
        sequenced,
    )
    not_run = {cell.key for cell in cells if cell.arm in ended or cell.key in spared}
    settled = [cell for by_seed in records.values() for cell in by_seed.values()]
    censored = sum(
        cell.key in not_run and cell.seed not in records.get(cell.arm, {}) for cell in cells
    )
    most = max(8, LOSS_POINTS // max(len(cells), 1))
    apart = {arm.name for arm in judged if arm.own_loss}
    shown: dict[str, list[CellResult]] = {arm.name: [] for arm in arms}
    for cell in cells:
        record, curve = records.get(cell.arm, {}).get(cell.seed), curves.get(cell.key, [])
        shown[cell.arm].append(
            shown_cell(
                cell,
                record,
                state.board,
                out,
                curve,
                most,
                cell.key in not_run,
                cell.arm in apart,
            )
        )
    found = (
        *filter(None, [added_seeds(plan, out)]),
        *remarks(plan, arms, layout.searches),
        *disturbed(records),
        *map(_censored, state.stopped),
    )
    result = StudyResult(
        title=plan.title,
        state=(
            "finished"
            if len(settled) + censored == len(cells)
            else "stopped"
            if state.ended
            else "running"
        ),
        plan=plan_facts(plan, arms[0], records),
        made=provenance(command, state.seconds),
        metrics=tuple(shown_metric(name, records, arms[0].name) for name in metrics),
        arms=tuple(
            shown_arm(
                plan,
                arm,
                arms,
                shown[arm.name],
                (state.costs or {}).get(arm.name),
                findings.claims[arm.name],
            )
            for arm in arms
        ),
        effects=findings.effects,
        noise=findings.noise,
        detectable=findings.detectable,
        grids=grids(layout, records, out, how),
        remarks=tuple(one.text for one in found),
        codes=found,
        interactions=findings.interactions,
        scales=findings.scales,
        trends=findings.trends,
        time_to_target=findings.time_to_target,
        sweeps=tuple(layout.searches),
        pareto=findings.pareto,
        probes=probes(out),
        progress=CellCounts(
            done=sum(not cell.failed for cell in settled),
            total=len(cells) - censored,
            failed=sum(cell.failed for cell in settled),
            seconds_left=state.seconds_left,
        ),
    )
    if plan.design != "fractional":
        return result
    return as_fraction(plan, layout, records, state.costs, result)


def provenance(command: str, seconds: float | None = None) -> Provenance:
    """By what, when and where a result is made."""
    return Provenance(
        version=fulcrum_version(),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=command,
        machine=f"{platform.system()} {platform.machine()}",
        seconds=seconds,
    )


def probes(out: Path) -> Probes | None:
    """Which metric sees which fault, if `fulcrum measure --probe` was asked under the same
    folder."""
    path = out / "cache" / "probes.json"
    if not path.exists():
        return None
    hint = "remove it, and make it again with: fulcrum measure --probe"
    try:
        return Probes.model_validate(read_json(path, hint))
    except ValidationError as error:
        raise BadInput(f"{path} holds no table of probes: {explain(error)}", hint) from None


def _with_curves(
    cells: Sequence[Cell], records: Cells, curves: Mapping[str, Sequence[CurvePoint]]
) -> dict[str, dict[int, CellRecord]]:
    """The records, each with the values that were measured on the way."""
    drawn = {(cell.arm, cell.seed): cell for cell in cells}
    return {
        arm: {
            seed: record._replace(
                curve=tuple(curves[drawn[arm, seed].key]),
                budget=drawn[arm, seed].run.budget.images,
            )
            for seed, record in by_seed.items()
        }
        for arm, by_seed in records.items()
    }


def _censored(one: StoppedArm) -> Remark:
    text = (
        f"{one.arm} was stopped at {one.share:.0%} of the budget by the crossing guard: worse at"
        " successive points, and not coming back by the end. It is counted as censored: it has no"
        " final value."
    )
    return remark("stopped-by-guard", text, arm=one.arm, share=one.share)
