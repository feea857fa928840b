"""A training decision as one study judged it: its effect, what it was held against, what it costs, what to know of it."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from fulcrum.judge import schema as certainty
from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.figures import floors
from fulcrum.judge.schema import ArmResult, Effect, StudyResult
from fulcrum.judge.tables import mean_sd

SAME_TIME = 0.05  # times per step that differ by less are called equal: arms of equal FLOPs were seen to scatter by as much
TIMING_ERROR = 0.1  # and some by as much as this: a price by time is told where the difference is at least twice as large
SAID = {"inconclusive": "undecided", "waiting": "no answer yet"}  # a verdict -> how the page says it


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
        return number.plain(self.result.plan.smallest_effect)

    @property
    def removed(self) -> float | None:
        """The share of the baseline's distance to real pictures that it removes; None without such an end of the scale."""
        metric = self.result.primary
        own, base = (mean_sd(arm, metric.name)[0] for arm in (self.arm, self.base))
        if metric.ceiling is None or own is None or base is None or base == metric.ceiling:
            return None
        return 1.0 - (metric.ceiling - own) / (metric.ceiling - base)

    @property
    def is_slight(self) -> bool:
        """Is what is left of it, without the flattery of having been picked out, less than would matter?"""
        effect = self.effect
        return effect is not None and effect.shrunk is not None and abs(effect.shrunk) < self.result.plan.smallest_effect

    @property
    def name(self) -> str:
        """'Short captions (prompts=matched)'; 'Muon, own rates' where both sides had their learning rates searched;
        'Caption filter, with mislabelled=0.2' where both sides had a setting that is not the recipe's."""
        name = re.sub(r"(?<=\w)\(", " (", sentences.plain(self.arm))
        name = f"{name}, own rates" if self.result.sweeps else name
        return ", ".join([name, *(f"with {_last_part(setting)}" for setting in self.circumstances)])

    @property
    def circumstances(self) -> list[str]:
        """Settings of the study that hold on both sides: the decision is then judged where the recipe is another one."""
        changed = {change.path for change in self.arm.diff}
        return [setting for setting in self.result.plan.settings if setting.partition("=")[0] not in changed]

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
        return None if self.effect is None or self.effect.mean is None else self._signed(self.effect.mean)

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
        return number.change(self.effect.mean, self.effect.low, self.effect.high) if self.effect else number.NONE

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
        """Were all its trainings seen already? Of a study that is kept without its cells none were."""
        return bool(self.keys) and any(self.keys <= keys for keys in seen)

    @property
    def remarks(self) -> list[str]:
        """What must stand beside the verdict."""
        other = [f"every arm with {', '.join(self.result.plan.settings)}"] if self.result.plan.settings else []
        together = ["several decisions at once"] if self.arm.compound else []
        unlike = [] if self.judged_alike else ["judged by other prompts than its baseline, so it is named in no conclusion"]
        return [
            *other,
            *certainty.remarks(self.result, self.arm),
            *self.arm.labels,
            *unlike,
            *self._drawn,
            *together,
            *self.bounds,
        ]

    @property
    def _drawn(self) -> list[str]:
        """Said where pictures are drawn in another way too: the effect is that of training and drawing together."""
        paths = [change.path for change in self.arm.diff if change.path.startswith("sample.")]
        paths = [path for path in paths if not path.startswith("sample.prompts")]
        return [f"its pictures are drawn in another way too: {', '.join(paths)}"] if paths else []

    @property
    def judged_alike(self) -> bool:
        """By the same prompts as its baseline; else its effect is not one of quality alone."""
        return not any(change.path.startswith("sample.prompts") for change in self.arm.diff)

    @property
    def held_against(self) -> str:
        """What else than the recipe as it is, judged as it is: such an effect is not one to be ranked among the others.
        Empty: that recipe."""
        if not self.result.is_base(self.base):
            return sentences.plain(self.base)
        if self.result.plan.settings:
            return f"{self.result.plan.baseline} with {', '.join(map(_last_part, self.result.plan.settings))}"
        return "" if self.judged_alike else f"{self.result.plan.baseline}, judged by other prompts"

    @property
    def bounds(self) -> list[str]:
        """Said where an arm stands at an end of the metric's scale: further it cannot go, its effect's size is a bound."""
        metric, mean = self.result.primary, mean_sd(self.arm, self.result.primary.name)[0]
        margin, known = self.result.plan.smallest_effect, floors(self.result.primary)
        if self.gain is None or mean is None:
            return []
        if known and self._signed(mean - known[0].value) <= margin:
            floor = f"{known[0].name} gets {number.plain(known[0].value)}"
            return [f"at the metric's floor ({floor}): how much worse cannot be told"]
        if metric.ceiling is not None and abs(mean - metric.ceiling) <= margin:
            ceiling = f"real pictures get {number.plain(metric.ceiling)}"
            return [f"at the metric's ceiling ({ceiling}): how much better cannot be told"]
        return []

    @property
    def worth(self) -> str:
        """What a change in quality costs or saves in time per image, in one digit: times are known no better; '–' where
        there is nothing to say."""
        gain, time = self.gain, self.time
        if gain is None or time is None or self.verdict not in ("better", "worse", "tie"):
            return number.NONE
        dearer = time - 1.0
        if self.verdict == "better":
            return self._price(dearer)
        if dearer >= -TIMING_ERROR:
            return number.NONE
        if self.verdict == "tie":
            return f"as good, {number.ratio(time)} the time"
        return f"{self._per_tenth(-dearer)} per −10 % time" if dearer < -2 * TIMING_ERROR else "faster"

    def _price(self, dearer: float) -> str:
        if dearer < -TIMING_ERROR:
            return "free, and faster"
        if dearer <= TIMING_ERROR:
            return "free" if dearer <= SAME_TIME else "hardly dearer"
        return f"{self._per_tenth(dearer)} per +10 % time" if dearer > 2 * TIMING_ERROR else "dearer"

    def _per_tenth(self, share: float) -> str:
        assert self.effect is not None and self.effect.mean is not None
        size = self.effect.mean * 0.1 / share
        return number.signed(size, max(0, -math.floor(math.log10(abs(size)))) if size else 0)

    def at_equal_time(self, metric: str) -> Effect | None:
        """The same comparison with time held equal, where curves were read and times differ by more than their error: else
        it is that error which the number tells. It is exploratory. None: there is none."""
        if self.time is None or abs(self.time - 1.0) <= TIMING_ERROR:
            return None
        rows = [row for row in self.result.effects_of(self.arm) if (row.metric, row.unit) == (metric, "time")]
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
    """The first decision of an arm's name; `stochastic_rounding` also finds `stochastic_rounding on bf16_storage`."""
    rows = list(decisions)
    exact = [one for one in rows if one.arm.root == root]
    added = [one for one in rows if one.arm.root.startswith(f"{root} on ")]
    return next(iter([*exact, *added]), None)
