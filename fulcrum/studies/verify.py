"""Verify a kept study: judge its cells again and compare numbers, verdicts and codes."""

import contextlib
import json
import math
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import read_regular
from fulcrum.files.sealed import read_json
from fulcrum.judge.card import METRICS
from fulcrum.judge.cells import CellRecord, Cells
from fulcrum.judge.design import JudgedArm
from fulcrum.judge.effects import EXPLORATORY, all_findings, confirmed, effects_on
from fulcrum.judge.metrics import EQUAL, values_of
from fulcrum.judge.schema import Effect, StudyResult
from fulcrum.judge.statistics import noise_floor
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.phrase import PREFIX, Catalogue
from fulcrum.studies.arms import wanted
from fulcrum.studies.cell import cell_record
from fulcrum.studies.kept import (
    PLAN,
    RESULT,
    changed_files,
    judged_again,
    kept_studies,
    needs_no_files,
    read_facts,
    record_of,
    require_contents,
    require_kept,
    require_same_plan,
    result_text,
    write_contents,
)
from fulcrum.studies.kept_cells import KEPT_HINT, KeptCells, read_kept
from fulcrum.studies.plan import Plan
from fulcrum.studies.plan_file import load
from fulcrum.studies.proof import PRIMARY_ANYWHERE
from fulcrum.training.dist.machine import MACHINE, machine_words

# --------------------------------------------------------------------------------------------------
# A kept study without the files of one's own that it was run with: its effects again, from the
# pairs of its cells alone.
#
# Such a file holds the recipe, and without it nobody can tell which runs the plan asks for, what is
# claimed of them or what they cost. But the plan alone says which cells are pairs, and pairs are
# all that means, intervals, p-values and verdicts at equal images are made from. Where they are not
# enough (interim looks, fractions, equal time and FLOPs), a row is held against itself: the verdict
# against the interval, the interval against the mean.


# What an effect is made of; the rest of its record (notes, claims, what was detectable) needs the
# recipe.
JUDGED = (
    *("n", "mean", "low", "high", "tie_low", "tie_high", "correlation"),
    *("p_adjusted", "margin", "verdict", "shrunk", "exploratory", "planned", "failed"),
)
SIGNS = {"better": 1.0, "worse": -1.0}


class Compared(NamedTuple):
    """What of a kept study is held against what: name, as it was kept, as it comes out of the
    cells."""

    rows: list[tuple[str, Any, Any]]
    #: what of a row that could not be judged does not go with the rest of it
    contradictions: list[str]
    judged: int  # effects that were judged again
    others: int  # effects that could only be held against themselves


def compared_pairs(plan: Plan, result: StudyResult, kept: KeptCells) -> Compared:
    """Every effect and every noise of a kept study beside what its cells say."""
    cells = _cell_records(kept)
    plan = _with_primary(plan, cells)
    # only the recipe tells what an arm changes of the cards: they are not compared
    arms = [JudgedArm(one.name, one.against, one.scale, may_differ=None) for one in wanted(plan)]
    seeds, alpha = result.plan.seeds, result.plan.alpha
    names = [arm.name for arm in (result.arms if result.fraction is None else result.trained)]
    rows: list[tuple[str, Any, Any]] = [
        ("arms", names, [arm.name for arm in arms]),
        (
            "plan",
            _facts(result.plan.primary_metric, seeds, alpha),
            _facts(plan.primary, plan.seeds, plan.alpha),
        ),
        (
            "noise",
            [row.model_dump() for row in result.noise],
            _noise(result, cells, arms[0].name),
        ),
    ]
    again, contradictions, judged = _judged(plan, arms, result, cells), list[str](), 0
    for row in result.effects:
        place = f"{row.arm}, {row.metric}" + (f" at equal {row.unit}" if row.unit != EQUAL else "")
        found = again.pop((row.arm, row.metric), None) if row.unit == EQUAL else None
        if found is not None:
            judged += 1
            rows.append((place, _shown(row), _shown(found)))
        elif _is_judged(plan, row):
            rows.append((place, _shown(row), None))
        else:
            rows.append((place, _plain(row), _plain(row) | _mean(plan, arms, row, cells)))
            contradictions += [f"{place}: {words}" for words in _contradictions(row)]
    rows += [(f"{arm}, {metric}", None, _shown(row)) for (arm, metric), row in again.items()]
    return Compared(rows, contradictions, judged, len(result.effects) - judged)


def _cell_records(kept: KeptCells) -> dict[str, dict[int, CellRecord]]:
    """arm -> seed -> the cells that are kept, finished and failed ones."""
    records = dict[str, dict[int, CellRecord]]()
    for line in kept.lines.values():
        if line["kind"] != "arm":
            continue
        arm, seed, outcome = line["arm"], line["seed"], dict(line["outcome"])
        if "metrics" in outcome:
            outcome["metrics"] = kept.unpacked(outcome["metrics"])
        record = cell_record(arm, seed, outcome)
        there = records.setdefault(arm, {}).setdefault(seed, record)
        if there is not record:
            raise BadInput(
                f"two cells of {arm}, seed {seed} are kept: only its --with FILE tells which"
                " counts",
                "name that file",
            )
    return records


def _with_primary(plan: Plan, cells: Cells) -> Plan:
    """As `with_primary` has it, asking the cells instead of the recipe what can be measured."""
    finished = [cell for by_seed in cells.values() for cell in by_seed.values() if not cell.failed]
    there = any(plan.primary in cell.metrics for cell in finished)
    if "primary" in plan.model_fields_set or there or not finished:
        return plan
    margin = plan.smallest_effect if "smallest_effect" in plan.model_fields_set else None
    return plan.model_copy(update={"primary": PRIMARY_ANYWHERE, "smallest_effect": margin})


def _is_judged(plan: Plan, row: Effect) -> bool:
    """Do the pairs and the plan alone give this effect?"""
    sequential = bool(plan.looks) and row.metric == plan.primary
    return row.unit == EQUAL and plan.design != "fractional" and not sequential


def _judged(
    plan: Plan,
    arms: Sequence[JudgedArm],
    result: StudyResult,
    cells: Cells,
) -> dict[tuple[str, str], Effect]:
    """(arm, metric) -> the effect at equal images, judged in its family."""
    if plan.design == "fractional":
        return {}
    kept = {(row.arm, row.metric) for row in result.effects if row.unit == EQUAL}
    families = dict[str, list[Effect]]()
    for metric in [metric.name for metric in result.metrics]:
        # A loss of another kind is not compared, and only the recipe tells which is.
        told = [
            row
            for row in effects_on(plan, arms, cells, metric)
            if metric != "validation_loss" or (row.arm, metric) in kept
        ]
        families |= {metric: told} if told and not (plan.looks and metric == plan.primary) else {}
    findings = all_findings(plan, arms, cells, families)
    return {(row.arm, row.metric): confirmed(plan, row) for row in findings}


def _mean(plan: Plan, arms: Sequence[JudgedArm], row: Effect, cells: Cells) -> dict[str, Any]:
    """Of an arm that ended at some look of a sequential plan: the mean of so many pairs."""
    against = {arm.name: arm.against for arm in arms}.get(row.arm)
    if row.unit != EQUAL or plan.design == "fractional" or against is None or row.mean is None:
        return {}
    before, after = (values_of(cells, name, row.metric) for name in (against, row.arm))
    pairs = [seed for seed in plan.seeds if seed in before and seed in after][: max(row.n, 0)]
    mean = sum(after[seed] - before[seed] for seed in pairs) / len(pairs) if pairs else None
    return {"n": len(pairs), "mean": mean}


def _contradictions(row: Effect) -> Iterator[str]:
    """What of a row does not go with the rest of it, in words."""
    if row.unit != EQUAL and row.verdict not in (EXPLORATORY, "failed"):
        yield f"a verdict '{row.verdict}' at equal {row.unit}, which no plan sets out to decide"
    low, mean, high = row.low, row.mean, row.high
    if low is not None and mean is not None and high is not None and not low <= mean <= high:
        yield f"a mean of {mean:g} outside of its interval, {low:g} to {high:g}"
    if row.verdict in SIGNS:
        sign = SIGNS[row.verdict] * (1.0 if METRICS[row.metric].better == "higher" else -1.0)
        clear = low is not None and high is not None and (low > 0.0 if sign > 0.0 else high < 0.0)
        if not clear:
            yield (
                f"a verdict '{row.verdict}' with an interval that does not lie on that side of zero"
            )
    if row.verdict == "tie":
        ends, margin = (row.tie_low, row.tie_high), row.margin
        if margin is None or any(end is None or abs(end) > margin for end in ends):
            yield "a verdict 'tie' with an interval that does not lie within the margin"


def _noise(result: StudyResult, cells: Cells, baseline: str) -> list[dict[str, Any]]:
    values = {metric.name: values_of(cells, baseline, metric.name) for metric in result.metrics}
    return [
        noise_floor(found, metric).model_dump()
        for metric, found in values.items()
        if len(found) > 1
    ]


def _shown(row: Effect) -> Mapping[str, Any]:
    return {name: value for name, value in row.model_dump(mode="json").items() if name in JUDGED}


def _facts(primary: str, seeds: Sequence[int], alpha: float) -> dict[str, Any]:
    return {"primary_metric": primary, "seeds": list(seeds), "alpha": alpha}


def _plain(row: Effect) -> dict[str, Any]:
    return {"n": row.n, "mean": row.mean}


# --------------------------------------------------------------------------------------------------
# Verify that the numbers, verdicts and codes of a kept study follow from its cells.
#
# Sentences are not compared: what they say is in the codes beside them, and words may improve.


CLOSE = 1e-6  # relative: another machine's last bits move no verdict
NAMED = 6  # differences that are named
ARM_WORDS = (
    "label",
    "says",
    "labels",
    "claims.note",
    "claims.scope",
    "claims.source",
    "claims.why",
)
WORDS = frozenset(  # where a result holds sentences, for people
    (
        "remarks",
        *("plan.data", "plan.text", "plan.learning_rate_policy"),
        *("metrics.label", "metrics.explain", "metrics.agreement"),
        *(f"{arms}.{words}" for arms in ("arms", "combinations") for words in ARM_WORDS),
        *("effects.note", "effects.warnings", "trends.axis", "sweeps.note"),
        *("fraction.rule", "fraction.aliased"),
    )
)
UNSEEN = "that the plan asks for these cells, what is claimed, costs, interactions and trends"
# What code does with values that it was not written for.
UNFIT = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
)


class Verified(NamedTuple):
    """A study judged again from its cells."""

    result: StudyResult
    cells: int
    effects: int  # that were judged again
    differences: tuple[str, ...]  # from what was kept, each in a line; none: all is as it was
    whole: bool = True  # False: without the files that it was run with, so from its pairs alone
    #: effects that the pairs alone do not give, and that were only held against themselves
    others: int = 0
    coded: bool = True  # False: kept before remarks had codes, so they were not compared

    @property
    def words(self) -> str:
        """What was looked at, and what was not."""
        if self.whole:
            uncoded = (
                ""
                if self.coded
                else " (remarks not checked: kept before they had codes, see fulcrum study migrate)"
            )
            return f"{self.cells} cells, {self.effects} effects judged again{uncoded}"
        others = f", {self.others} held only against their own intervals" if self.others else ""
        return (
            f"{self.cells} cells, {self.effects} effects judged again from their pairs{others} "
            f"(not checked without its --with FILE: {UNSEEN})"
        )


def verify(
    folder: Path, catalogue: Catalogue, user_files: Mapping[str, str] | None = None
) -> Verified:
    """Judge a kept study again, and compare every number, verdict and code with what was kept. Of
    one that was run with files of one's own which are not named: what follows from the pairs of its
    cells."""
    require_kept(folder)
    with _in_words(folder):
        cells = read_kept(folder)  # a line that was changed is told as that line
        needed, given = own_files(folder), user_files or {}
        require_contents(folder, besides=(RESULT,))
        if not needed.keys() <= given.keys():
            return _verified_by_pairs(folder, cells)
        result = judged_again(folder, catalogue, {name: given[name] for name in needed})
        before, after = read_json(folder / RESULT, KEPT_HINT), record_of(result)
        coded = isinstance(before, dict) and before.get("codes") is not None
        changed = tuple(differences(_without_words(before, coded), _without_words(after, coded)))
    return Verified(result, len(cells.lines), len(result.effects), changed, coded=coded)


def migrate(
    folder: Path, catalogue: Catalogue, user_files: Mapping[str, str] | None = None
) -> bool:
    """Write the result of a kept study again, as this version writes it; returns whether it
    changed.

    Only the result and the list of hashes are written. A study whose numbers or verdicts do not
    follow from its cells is refused.
    """
    verified = verify(folder, catalogue, user_files)
    if verified.differences:
        raise BadInput(
            f"{folder} does not follow from its cells:\n{named(verified.differences)}", KEPT_HINT
        )
    if not verified.whole:
        raise BadInput(f"{folder} was run with files of one's own", "name them: --with FILE")
    text = result_text(verified.result)
    if read_regular(folder / RESULT).decode() == text:
        return False
    write_atomic(folder / RESULT, text)
    write_contents(folder)
    return True


def results(folder: Path, catalogue: Catalogue) -> dict[str, StudyResult]:
    """The studies that lie in a folder, by name, judged again; one that was run with files of one's
    own as it was kept, if that follows from its pairs."""
    return {study.name: _judged_or_kept(study, catalogue) for study in kept_studies(folder)}


def _judged_or_kept(folder: Path, catalogue: Catalogue) -> StudyResult:
    require_kept(folder)
    with _in_words(folder):
        alone = not own_files(folder)
        require_contents(folder, besides=(RESULT,) if alone else ())
        if alone:
            return judged_again(folder, catalogue)
        verified = _verified_by_pairs(folder, read_kept(folder))
    if verified.differences:
        raise BadInput(
            f"{folder} does not follow from its cells:\n{named(verified.differences)}", KEPT_HINT
        )
    return verified.result


def own_files(folder: Path) -> dict[str, str]:
    """The files of one's own that a study was run with. What needs none may name none: they leave
    parts of it unseen."""
    files: dict[str, str] = read_facts(folder)["user_files"]
    if files and needs_no_files(load(folder / PLAN), folder):
        raise BadInput(
            f"{folder} says that it was run with {_file_names(sorted(files))}, and its plan asks"
            " for nothing but our own recipe and levers",
            f"{KEPT_HINT}; if an earlier version kept it so: fulcrum study keep {folder / PLAN}"
            f" {folder}",
        )
    return files


def _verified_by_pairs(folder: Path, cells: KeptCells) -> Verified:
    plan = load(folder / PLAN)
    require_same_plan(plan, folder)
    result = _as_kept(folder, cells)
    compared = compared_pairs(plan, result, cells)
    wrong = [
        line for name, before, after in compared.rows for line in differences(before, after, name)
    ]
    changed = (*map(str, changed_files(folder)), *wrong, *compared.contradictions)
    return Verified(
        result, len(cells.lines), compared.judged, changed, whole=False, others=compared.others
    )


def _as_kept(folder: Path, cells: KeptCells) -> StudyResult:
    """As it was judged where it was kept: without its cells and pictures."""
    record, made = read_json(folder / RESULT, KEPT_HINT), read_facts(folder)["made"]
    machines = Counter(
        filter(
            None,
            (
                machine_words(line.get("outcome", {}).get(MACHINE, {}))
                for line in cells.lines.values()
            ),
        )
    )
    words = [f"{machine} ({count} cell{'s' * (count > 1)})" for machine, count in machines.items()]
    try:
        return StudyResult.model_validate(
            {**record, "made": made | ({"machine": words[0]} if len(words) == 1 else {})}
        )
    except (TypeError, ValidationError):
        raise BadInput(f"{folder / RESULT} is not the result of a study", KEPT_HINT) from None


@contextlib.contextmanager
def _in_words(folder: Path) -> Iterator[None]:
    """Whatever a kept study holds, judging it ends in words: anybody can seal anything."""
    try:
        yield
    except FulcrumError:
        raise
    except UNFIT as error:
        place = traceback.extract_tb(sys.exc_info()[2])[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        raise BadInput(
            f"{folder} could not be judged: {type(error).__name__} ({str(error)[:200]}) in {where}",
            f"it holds what no study writes, {KEPT_HINT}; if it does so untouched, that is a fault"
            " of ours: please tell us",
        ) from error


def require_asked(folders: Sequence[Path], user_files: Mapping[str, str]) -> None:
    """Files of one's own that no study was run with would be ignored."""
    asked = (
        {name for folder in folders for name in read_facts(folder)["user_files"]}
        if user_files
        else set()
    )
    if strange := sorted(user_files.keys() - asked):
        raise BadInput(
            f"no study here was run with {_file_names(strange)}",
            "leave it out; they were run with"
            f" {_file_names(sorted(asked)) or 'no file of one’s own'}",
        )


def _file_names(modules: Sequence[str]) -> str:
    """'my_lever.py' of fulcrum_user_my_lever_0123456789ab."""
    names = (
        name.removeprefix(PREFIX).rpartition("_")[0] if name.startswith(PREFIX) else name
        for name in modules
    )
    return ", ".join(f"{name.removesuffix('.py')}.py" for name in names)


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where two plain values differ: numbers by more than another machine's rounding, all else at
    all."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from differences(
                before.get(name), after.get(name), f"{path}.{name}" if path else str(name)
            )
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif _number(before) and _number(after):
        if not math.isclose(before, after, rel_tol=CLOSE, abs_tol=1e-12):
            yield f"{path}: kept {before:g}, found {after:g}"
    elif before != after:
        yield f"{path}: kept {_short(before)}, found {_short(after)}"


def _without_words(value: Any, coded: bool, path: str = "") -> Any:
    """A result without its sentences, and without its codes where what it is compared with has
    none."""
    if isinstance(value, list):
        return [_without_words(one, coded, path) for one in value]
    if not isinstance(value, dict):
        return value
    below = {name: f"{path}.{name}" if path else name for name in value}
    kept = [name for name in value if below[name] not in WORDS and (coded or name != "codes")]
    return {name: _without_words(value[name], coded, below[name]) for name in kept}


def _number(value: Any) -> bool:
    """One that a float can hold: integers have no end."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and (isinstance(value, float) or abs(value) <= sys.float_info.max)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def named(lines: Sequence[str]) -> str:
    """The first few of many lines."""
    more = f"\n  and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    return "\n".join(f"  {line}" for line in lines[:NAMED]) + more
