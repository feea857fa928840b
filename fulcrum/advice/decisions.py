"""Training decisions as the kept studies judged them, and the table that ships with the levers."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fulcrum.judge import schema, sentences
from fulcrum.judge.figures import floors
from fulcrum.judge.schema import ArmResult, Effect, StudyResult
from fulcrum.judge.tables import mean_sd
from fulcrum.levers.catalog import CATALOG

# --------------------------------------------------------------------------------------------------
# Which studies the evidence page knows by the names of their folders, what each asks, and which
# were not run yet.


Studies = Mapping[str, StudyResult]  # name of its folder -> what a kept study found
TABLE = "replication"  # how the names begin of studies that change one decision at a time
# what asks the same on a larger recipe, and on pictures that others drew
AGAIN = ("replication_pocket", "emoji")
LONGER = "skeptic_budget"  # what trains both sides longer
RECIPE = "spark"  # of the ranking: decisions on another recipe stand in a section of their own


class Asked(NamedTuple):
    folder: str  # the name, or how names begin where there may be several
    question: str


ASKED = (
    Asked(
        "replication",
        "every row of the published table that needs no other, one decision at a time",
    ),
    Asked(
        "replication_bases",
        "rows that need another decision first: a codec trained along, rounding at random",
    ),
    Asked("replication_synthetic", "real pictures instead of synthetic ones"),
    Asked("replication_mislabels", "filtering captions where some were planted wrong"),
    Asked("replication_rates", "optimizer and storage, each at a learning rate of its own"),
    Asked(
        "replication_pocket", "the largest effects, and the opposite ones, again on a larger recipe"
    ),
    Asked("resolution", "routing at few and at many tokens"),
    Asked("resolution_objective", "x-prediction against velocity at few and at many tokens"),
    Asked(
        "late",
        "changes that come late: alignment switched off, a curated end, every token at the end",
    ),
    Asked(
        "stack",
        "the best decisions together: one left out at a time, and all of them at equal time",
    ),
    Asked("fraction", "which decisions compound: several at once, in few combinations"),
    Asked("emoji", "the largest effects on pictures that no one here drew"),
    Asked("skeptic_judge", "the largest effects as another judge sees them"),
    Asked("skeptic_seeds", "the largest effects on other seeds"),
    Asked("skeptic_guidance", "the largest effects without guidance"),
    Asked("skeptic_rate", "the largest effects at a constant learning rate"),
    Asked("skeptic_budget", "the largest effects after twice the images"),
)
SEVERAL = ("resolution", "late", "stack", "fraction")  # there may be several: late, late_trunk


def ordered(studies: Studies) -> dict[str, StudyResult]:
    """The studies in the order in which the page asks for them; those that it does not know come
    last, by name."""
    places = {asked.folder: place for place, asked in enumerate(ASKED)}

    def place(name: str) -> tuple[int, str]:
        known = (
            name
            if name in places
            else next((one for one in SEVERAL if name.startswith(f"{one}_")), name)
        )
        return places.get(known, len(places)), name

    return {name: studies[name] for name in sorted(studies, key=place)}


def missing(studies: Studies) -> list[Asked]:
    """What was not run yet."""
    return [asked for asked in ASKED if not any(_is(name, asked) for name in studies)]


def _is(name: str, asked: Asked) -> bool:
    return name == asked.folder or (asked.folder in SEVERAL and name.startswith(f"{asked.folder}_"))


def in_table(name: str, result: StudyResult) -> bool:
    """Does a study change one decision at a time on the recipe of the ranking?"""
    alone = result.fraction is None and not result.scales
    return alone and name.startswith(TABLE) and result.plan.baseline.split(" + ")[0] == RECIPE


# --------------------------------------------------------------------------------------------------
# A training decision as one study judged it: its effect, what it was held against, what it costs,
# what to know of it.


# times per step that differ by less are called equal: arms of equal FLOPs were seen to scatter by
# as much
SAME_TIME = 0.05
# and some by as much as this: a price by time is told where the difference is at least twice as
# large
TIMING_ERROR = 0.1
# a verdict -> how the page says it
SAID = {"inconclusive": "undecided", "waiting": "no answer yet"}


class Decision(NamedTuple):
    study: str
    result: StudyResult
    arm: ArmResult

    @property
    def effect(self) -> Effect | None:
        """On the study's primary metric at equal images; None: it was not compared."""
        return self.result.effect(self.arm.name, self.result.primary.name)

    def by(self, metric: str) -> Effect | None:
        """On another metric, at equal images; None: it has no number there."""
        effect = self.result.effect(self.arm.name, metric)
        return None if effect is None or effect.mean is None else effect

    @property
    def margin(self) -> str:
        """The least change that matters, in words."""
        return schema.plain(self.result.plan.smallest_effect)

    @property
    def removed(self) -> float | None:
        """The share of the baseline's distance to real pictures that it removes; None without such
        an end of the scale."""
        metric = self.result.primary
        own, base = (mean_sd(arm, metric.name)[0] for arm in (self.arm, self.base))
        if metric.ceiling is None or own is None or base is None or base == metric.ceiling:
            return None
        return 1.0 - (metric.ceiling - own) / (metric.ceiling - base)

    @property
    def is_slight(self) -> bool:
        """Is what is left of it, without the flattery of having been picked out, less than would
        matter?"""
        effect = self.effect
        return (
            effect is not None
            and effect.shrunk is not None
            and abs(effect.shrunk) < self.result.plan.smallest_effect
        )

    @property
    def name(self) -> str:
        """'Short captions (prompts=matched)'; 'Muon, own rates' where both sides had their learning
        rates searched; 'Caption filter, with mislabelled=0.2' where both sides had a setting that
        is not the recipe's."""
        name = re.sub(r"(?<=\w)\(", " (", sentences.plain(self.arm))
        name = f"{name}, own rates" if self.result.sweeps else name
        return ", ".join([name, *(f"with {_last_part(setting)}" for setting in self.circumstances)])

    @property
    def circumstances(self) -> list[str]:
        """Settings of the study that hold on both sides: the decision is then judged where the
        recipe is another one."""
        changed = {change.path for change in self.arm.diff}
        return [
            setting
            for setting in self.result.plan.settings
            if setting.partition("=")[0] not in changed
        ]

    @property
    def base(self) -> ArmResult:
        return self.result.base_of(self.arm)

    @property
    def verdict(self) -> str:
        verdict = sentences.verdict_of(self.result, self.arm)
        return SAID.get(verdict, verdict)

    @property
    def decided(self) -> bool:
        return self.verdict in sentences.DECIDED

    @property
    def gain(self) -> float | None:
        """The effect, signed so that more is better whatever the metric."""
        return (
            None
            if self.effect is None or self.effect.mean is None
            else self._signed(self.effect.mean)
        )

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        effect = self.effect
        if effect is None or effect.low is None or effect.high is None:
            return None
        one, other = sorted((self._signed(effect.low), self._signed(effect.high)))
        return one, other

    def _signed(self, value: float) -> float:
        return value if self.result.primary.better == "higher" else -value

    @property
    def change(self) -> str:
        return (
            schema.change(self.effect.mean, self.effect.low, self.effect.high)
            if self.effect
            else schema.NONE
        )

    @property
    def pairs(self) -> int:
        return self.effect.n if self.effect else 0

    @property
    def time(self) -> float | None:
        """Time per image over that of what it is compared with."""
        return self._over_base("time_ratio")

    @property
    def flops(self) -> float | None:
        return self._over_base("flops_ratio")

    def _over_base(self, field: str) -> float | None:
        own, base = (getattr(arm.cost, field) for arm in (self.arm, self.base))
        base = 1.0 if self.result.is_base(self.base) else base
        return own / base if own and base else None

    @property
    def keys(self) -> frozenset[str]:
        """Of its trainings and its baseline's."""
        return frozenset(cell.key for arm in (self.arm, self.base) for cell in arm.cells)

    def is_among(self, seen: Iterable[frozenset[str]]) -> bool:
        """Were all its trainings seen already? Of a study that is kept without its cells none
        were."""
        return bool(self.keys) and any(self.keys <= keys for keys in seen)

    @property
    def remarks(self) -> list[str]:
        """What must stand beside the verdict."""
        other = (
            [f"every arm with {', '.join(self.result.plan.settings)}"]
            if self.result.plan.settings
            else []
        )
        together = ["several decisions at once"] if self.arm.compound else []
        unlike = (
            []
            if self.judged_alike
            else ["judged by other prompts than its baseline, so it is named in no conclusion"]
        )
        return [
            *other,
            *schema.remarks(self.result, self.arm),
            *self.arm.labels,
            *unlike,
            *self._drawn,
            *together,
            *self.bounds,
        ]

    @property
    def _drawn(self) -> list[str]:
        """Said where pictures are drawn in another way too: the effect is that of training and
        drawing together."""
        paths = [change.path for change in self.arm.diff if change.path.startswith("sample.")]
        paths = [path for path in paths if not path.startswith("sample.prompts")]
        return [f"its pictures are drawn in another way too: {', '.join(paths)}"] if paths else []

    @property
    def judged_alike(self) -> bool:
        """By the same prompts as its baseline; else its effect is not one of quality alone."""
        return not any(change.path.startswith("sample.prompts") for change in self.arm.diff)

    @property
    def held_against(self) -> str:
        """What else than the recipe as it is, judged as it is: such an effect is not one to be
        ranked among the others. Empty: that recipe."""
        if not self.result.is_base(self.base):
            return sentences.plain(self.base)
        if self.result.plan.settings:
            return (
                f"{self.result.plan.baseline} with"
                f" {', '.join(map(_last_part, self.result.plan.settings))}"
            )
        return "" if self.judged_alike else f"{self.result.plan.baseline}, judged by other prompts"

    @property
    def bounds(self) -> list[str]:
        """Said where an arm stands at an end of the metric's scale: further it cannot go, its
        effect's size is a bound."""
        metric, mean = self.result.primary, mean_sd(self.arm, self.result.primary.name)[0]
        margin, known = self.result.plan.smallest_effect, floors(self.result.primary)
        if self.gain is None or mean is None:
            return []
        if known and self._signed(mean - known[0].value) <= margin:
            floor = f"{known[0].name} gets {schema.plain(known[0].value)}"
            return [f"at the metric's floor ({floor}): how much worse cannot be told"]
        if metric.ceiling is not None and abs(mean - metric.ceiling) <= margin:
            ceiling = f"real pictures get {schema.plain(metric.ceiling)}"
            return [f"at the metric's ceiling ({ceiling}): how much better cannot be told"]
        return []

    @property
    def worth(self) -> str:
        """What a change in quality costs or saves in time per image, in one digit: times are known
        no better; '–' where there is nothing to say."""
        gain, time = self.gain, self.time
        if gain is None or time is None or self.verdict not in ("better", "worse", "tie"):
            return schema.NONE
        dearer = time - 1.0
        if self.verdict == "better":
            return self._price(dearer)
        if dearer >= -TIMING_ERROR:
            return schema.NONE
        if self.verdict == "tie":
            return f"as good, {schema.ratio(time)} the time"
        return (
            f"{self._per_tenth(-dearer)} per −10 % time" if dearer < -2 * TIMING_ERROR else "faster"
        )

    def _price(self, dearer: float) -> str:
        if dearer < -TIMING_ERROR:
            return "free, and faster"
        if dearer <= TIMING_ERROR:
            return "free" if dearer <= SAME_TIME else "hardly dearer"
        return (
            f"{self._per_tenth(dearer)} per +10 % time" if dearer > 2 * TIMING_ERROR else "dearer"
        )

    def _per_tenth(self, share: float) -> str:
        assert self.effect is not None and self.effect.mean is not None
        size = self.effect.mean * 0.1 / share
        return schema.signed(size, max(0, -math.floor(math.log10(abs(size)))) if size else 0)

    def at_equal_time(self, metric: str) -> Effect | None:
        """The same comparison with time held equal, where curves were read and times differ by more
        than their error: else it is that error which the number tells. It is exploratory. None:
        there is none."""
        if self.time is None or abs(self.time - 1.0) <= TIMING_ERROR:
            return None
        rows = [
            row
            for row in self.result.effects_of(self.arm)
            if (row.metric, row.unit) == (metric, "time")
        ]
        return next((row for row in rows if row.mean is not None), None)


def _last_part(setting: str) -> str:
    """'mislabelled=0.2' of 'data.source.mislabelled=0.2'."""
    path, _, value = setting.partition("=")
    return f"{path.rpartition('.')[2]}={value}"


def all_decisions(name: str, result: StudyResult) -> list[Decision]:
    return [Decision(name, result, arm) for arm in result.compared]


def best_first(decisions: Iterable[Decision]) -> list[Decision]:
    """What has no number comes last."""
    return sorted(decisions, key=lambda one: (one.gain is None, -(one.gain or 0.0)))


def named(decisions: Iterable[Decision], root: str) -> Decision | None:
    """The first decision of an arm's name; `stochastic_rounding` also finds `stochastic_rounding on
    bf16_storage`."""
    rows = list(decisions)
    exact = [one for one in rows if one.arm.root == root]
    added = [one for one in rows if one.arm.root.startswith(f"{root} on ")]
    return next(iter([*exact, *added]), None)


# --------------------------------------------------------------------------------------------------
# Decisions of the ranking that another study asked again: what became of their directions, their
# order and their sizes.


AskedAgain = tuple[Decision, Decision]  # as another study found it, and as it stands in the ranking


def asked_again(own: Iterable[Decision], rows: Iterable[Decision]) -> list[AskedAgain]:
    """Decisions of another study that have a number there and in the ranking."""
    ranked = list(rows)
    both = [(one, before) for one in own if (before := named(ranked, one.arm.root)) is not None]
    return [
        (one, before) for one, before in both if one.gain is not None and before.gain is not None
    ]


def same_way(asked: Iterable[AskedAgain]) -> tuple[int, int]:
    """How many are decided in both, and how many of these go the same way."""
    decided = [(one, before) for one, before in asked if one.decided and before.decided]
    return len(decided), sum(one.verdict == before.verdict for one, before in decided)


def same_order(asked: Sequence[AskedAgain]) -> tuple[int, int]:
    """How many pairs of decisions there are, and how many stand in the same order in both, better
    above worse."""
    places = [(a, b) for place, a in enumerate(asked) for b in asked[place + 1 :]]
    kept = sum(
        ((a[0].gain or 0) > (b[0].gain or 0)) == ((a[1].gain or 0) > (b[1].gain or 0))
        for a, b in places
    )
    return len(places), kept


class TrainedLonger(NamedTuple):
    """What became of gains where both sides saw more images."""

    times: float  # as many images
    gains: int  # of the ranking that were asked again
    shrunk: list[AskedAgain]  # those that are less than half as large


def trained_longer(studies: Studies, rows: Iterable[Decision]) -> TrainedLonger | None:
    """None: it was not asked, or has no answer yet."""
    ranked, result = list(rows), studies.get(LONGER)
    if result is None or not ranked or result.state != "finished":
        return None
    asked = asked_again(all_decisions(LONGER, result), ranked)
    gained = [(one, before) for one, before in asked if before.verdict == "better"]
    shrunk = [
        (one, before) for one, before in gained if (one.gain or 0.0) < (before.gain or 0.0) / 2
    ]
    return TrainedLonger(result.plan.images / ranked[0].result.plan.images, len(gained), shrunk)


# --------------------------------------------------------------------------------------------------
# What kept studies found, as rows of fulcrum/levers/measured.json: one for each lever that was
# changed alone.


# studies that add levers to a plain recipe
ADDED_ALONE = (TABLE, "resolution", "emoji", "recaption", "late")
# in one study: how much of what the first costs the second gives back
LOST, RESTORED = "short_captions", "recaptioned"
DIGITS = 4
KEY_DIGITS = 8  # of a training's key: enough to tell thousands apart, and the table stays small


def rows(studies: Studies, science: int) -> list[dict[str, Any]]:
    """In the order of the catalogue; trainings that two studies share are counted once. Of a study
    that is not finished only what its looks have decided: such an arm gets no more seeds."""
    alone, seen = list[tuple[str, Decision]](), set[tuple[str, frozenset[str]]]()
    for name, result in ordered(studies).items():
        if result.fraction is None and any(
            name == kind or name.startswith(f"{kind}_") for kind in ADDED_ALONE
        ):
            for one in filter(_ended, all_decisions(name, result)):
                lever = lever_of(one)
                if lever and not one.is_among(keys for known, keys in seen if known == lever):
                    seen.add((lever, one.keys))
                    alone.append((lever, one))
    places = {name: place for place, name in enumerate(CATALOG.levers)}
    made = [
        row_of(lever, one, science)
        for lever, one in sorted(alone, key=lambda pair: places[pair[0]])
    ]
    back, longer = comes_back(studies), trained_on(studies)
    return [_with_note(_with_longer(row, longer), back) for row in made if row is not None]


def trained_on(studies: Studies) -> dict[tuple[str, str], tuple[int, str]]:
    """(recipe, what was added) -> images, and what became of it there: of the study with a longer
    training."""
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


def _with_longer(
    row: dict[str, Any], longer: dict[tuple[str, str], tuple[int, str]]
) -> dict[str, Any]:
    images, words = longer.get((row["recipe"], row["arm"]), (0, ""))
    if images <= row["images"] or row["settings"]:
        return row
    return row | {
        "note": "; ".join(
            filter(None, (row["note"], f"with {images / row['images']:g} times the images {words}"))
        )
    }


def comes_back(studies: Studies) -> tuple[str, str]:
    """Recipe of the study that held both against long captions, and the share in words; empty where
    there is none."""
    for name, result in studies.items():
        arms = {
            one.arm.phrase.split(" + ")[-1]: one
            for one in all_decisions(name, result)
            if result.is_base(one.base)
        }
        lost, left = (arms[arm].gain if arm in arms else None for arm in (LOST, RESTORED))
        if lost is not None and left is not None and lost < 0.0 and result.state == "finished":
            pairs = min(arms[LOST].pairs, arms[RESTORED].pairs)
            words = (
                f"of what {LOST} cost, {1 - left / lost:.0%} comes back with {RESTORED} ({pairs}"
                f" pairs, study {name})"
            )
            return result.plan.baseline, words
    return "", ""


def _with_note(row: dict[str, Any], back: tuple[str, str]) -> dict[str, Any]:
    about = row["arm"] in (LOST, RESTORED) and row["recipe"] == back[0]
    return row | {"note": "; ".join(filter(None, (row["note"], back[1])))} if about else row


def _ended(decision: Decision) -> bool:
    by_look = bool(decision.result.plan.looks) and decision.verdict in ("better", "worse", "tie")
    return decision.result.state == "finished" or by_look


def merged(
    old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], science: int
) -> list[dict[str, Any]]:
    """The rows of this version of the science are the new ones; those of other versions stay as
    they are."""
    return [*new, *(row for row in old if row["science"] != science)]


def lever_of(decision: Decision, levers: Collection[str] = CATALOG.levers) -> str:
    """The lever that an arm has and its base has not; empty where it is not exactly one of those
    that are known, or where it stands in for another: held against that one its effect is none of
    being added."""
    added = (
        []
        if set(decision.base.phrase.split(" + ")) - set(decision.arm.phrase.split(" + "))
        else _added(decision)
    )
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
        **{
            name: _rounded(value)
            for name, value in (("change", effect.mean), ("low", effect.low), ("high", effect.high))
        },
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
    return next(
        (one.settings for one in decision.result.scales if one.name == decision.arm.scale), ()
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
