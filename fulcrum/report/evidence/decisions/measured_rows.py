"""What kept studies found, as rows of fulcrum/levers/measured.json: one for each lever that was changed alone."""

from collections.abc import Collection, Sequence
from typing import Any

from fulcrum.levers.catalog import CATALOG
from fulcrum.report.evidence.decisions.decision import Decision, all_decisions
from fulcrum.report.evidence.decisions.known_studies import LONGER, TABLE, Studies, ordered

ADDED_ALONE = (TABLE, "resolution", "emoji", "recaption", "late")  # studies that add levers to a plain recipe
LOST, RESTORED = "short_captions", "recaptioned"  # in one study: how much of what the first costs the second gives back
DIGITS = 4
KEY_DIGITS = 8  # of a training's key: enough to tell thousands apart, and the table stays small


def rows(studies: Studies, science: int) -> list[dict[str, Any]]:
    """In the order of the catalogue; trainings that two studies share are counted once. Of a study that is not finished
    only what its looks have decided: such an arm gets no more seeds."""
    alone, seen = list[tuple[str, Decision]](), set[tuple[str, frozenset[str]]]()
    for name, result in ordered(studies).items():
        if result.fraction is None and any(name == kind or name.startswith(f"{kind}_") for kind in ADDED_ALONE):
            for one in filter(_ended, all_decisions(name, result)):
                lever = lever_of(one)
                if lever and not one.is_among(keys for known, keys in seen if known == lever):
                    seen.add((lever, one.keys))
                    alone.append((lever, one))
    places = {name: place for place, name in enumerate(CATALOG.levers)}
    made = [row_of(lever, one, science) for lever, one in sorted(alone, key=lambda pair: places[pair[0]])]
    back, longer = comes_back(studies), trained_on(studies)
    return [_with_note(_with_longer(row, longer), back) for row in made if row is not None]


def trained_on(studies: Studies) -> dict[tuple[str, str], tuple[int, str]]:
    """(recipe, what was added) -> images, and what became of it there: of the study with a longer training."""
    result = studies.get(LONGER)
    if result is None or result.state != "finished":
        return {}
    ends = [one for one in all_decisions(LONGER, result) if lever_of(one) and one.effect]
    return {
        (result.plan.baseline, _added(one)[0]): (
            result.plan.images,
            f"{one.change}, {one.verdict} ({one.pairs} pairs, study {LONGER})",
        )
        for one in ends
    }


def _with_longer(row: dict[str, Any], longer: dict[tuple[str, str], tuple[int, str]]) -> dict[str, Any]:
    images, words = longer.get((row["recipe"], row["arm"]), (0, ""))
    if images <= row["images"] or row["settings"]:
        return row
    return row | {
        "note": "; ".join(filter(None, (row["note"], f"with {images / row['images']:g} times the images {words}")))
    }


def comes_back(studies: Studies) -> tuple[str, str]:
    """Recipe of the study that held both against long captions, and the share in words; empty where there is none."""
    for name, result in studies.items():
        arms = {one.arm.phrase.split(" + ")[-1]: one for one in all_decisions(name, result) if result.is_base(one.base)}
        lost, left = (arms[arm].gain if arm in arms else None for arm in (LOST, RESTORED))
        if lost is not None and left is not None and lost < 0.0 and result.state == "finished":
            pairs = min(arms[LOST].pairs, arms[RESTORED].pairs)
            words = f"of what {LOST} cost, {1 - left / lost:.0%} comes back with {RESTORED} ({pairs} pairs, study {name})"
            return result.plan.baseline, words
    return "", ""


def _with_note(row: dict[str, Any], back: tuple[str, str]) -> dict[str, Any]:
    about = row["arm"] in (LOST, RESTORED) and row["recipe"] == back[0]
    return row | {"note": "; ".join(filter(None, (row["note"], back[1])))} if about else row


def _ended(decision: Decision) -> bool:
    by_look = bool(decision.result.plan.looks) and decision.verdict in ("better", "worse", "tie")
    return decision.result.state == "finished" or by_look


def merged(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], science: int) -> list[dict[str, Any]]:
    """The rows of this version of the science are the new ones; those of other versions stay as they are."""
    return [*new, *(row for row in old if row["science"] != science)]


def lever_of(decision: Decision, levers: Collection[str] = CATALOG.levers) -> str:
    """The lever that an arm has and its base has not; empty where it is not exactly one of those that are known, or where
    it stands in for another: held against that one its effect is none of being added."""
    added = [] if set(decision.base.phrase.split(" + ")) - set(decision.arm.phrase.split(" + ")) else _added(decision)
    name = added[0].partition("(")[0].strip() if len(added) == 1 and " @ " not in added[0] else ""
    return name if name in levers else ""


def _added(decision: Decision) -> list[str]:
    base = decision.base.phrase.split(" + ")
    return [word for word in decision.arm.phrase.split(" + ") if word not in base]


def row_of(lever: str, decision: Decision, science: int) -> dict[str, Any] | None:
    """What was found of a lever that was added alone; None where there is no number."""
    effect, plan = decision.effect, decision.result.plan
    if effect is None or effect.mean is None or effect.low is None or effect.high is None:
        return None
    settings = decision.arm.phrase.split(" + ")[-1].partition("(")[2].rstrip(")")
    scale = f"scale {decision.arm.scale}" if decision.arm.scale else ""
    notes = [
        settings,
        _beside(decision),
        scale,
        *(note for note in decision.remarks if not note.startswith("compared with ")),
    ]
    return {
        "lever": lever,
        "recipe": plan.baseline,
        "science": science,
        "metric": effect.metric,
        **{name: _rounded(value) for name, value in (("change", effect.mean), ("low", effect.low), ("high", effect.high))},
        "pairs": effect.n,
        "verdict": effect.verdict,
        "date": decision.result.made.date[:10],
        "note": "; ".join(note.replace("|", "/") for note in notes if note),
        "arm": _added(decision)[0],
        "base": decision.base.phrase,
        "settings": [*plan.settings, *_scale_settings(decision)],
        "images": plan.images,
        "plan": plan.hash,
        "time": None if decision.time is None else _rounded(decision.time),
        "flops": None if decision.flops is None else _rounded(decision.flops),
        "alike": decision.judged_alike,
        "keys": " ".join(sorted({key[:KEY_DIGITS] for key in decision.keys})),
    }


def _beside(decision: Decision) -> str:
    """What the lever was added to, where that is no plain baseline."""
    return "" if decision.result.is_base(decision.base) else f"added to {decision.base.phrase}"


def _scale_settings(decision: Decision) -> tuple[str, ...]:
    """What the arm's scale sets beside the plan's own settings."""
    return next((one.settings for one in decision.result.scales if one.name == decision.arm.scale), ())


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
