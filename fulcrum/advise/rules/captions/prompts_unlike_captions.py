"""Rule: pictures are judged by prompts unlike the captions that were trained on."""

import re
from statistics import median
from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import CaptionSet
from fulcrum.advise.subjects.config_family import ConfigFamily
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.spec.run import RunSpec

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy

JUDGED = r"eval|valid|sampl|prompt|test"
UNLIKE = 2.0  # times as many words in the median caption
MIN_CAPTIONS = 8  # captions on a side, below which a median says nothing
LENGTHS = re.compile(r"(?i)short|long|medium|detailed|brief|tags|alt")


class PromptsUnlikeCaptions(AuditRule):
    id = "prompts-unlike-captions"
    family = "captions"
    also = "note in a plan of ours, whose report says it of the arm"
    gain = 0.5
    effort = "edit"
    why = (
        "a model that was trained on short captions and is judged on long prompts is judged on words that it has "
        "never read: part of the effect may be the mismatch"
    )
    size = "part of the published study's largest effect, FID 18.2 to 36.8"
    source = "docs/published.md, A9"
    published = "A9"
    lever = "short_captions"
    fix = "judge with prompts of the trained kind too, and tell both: short_captions(prompts=matched)"

    def in_run(self, run: RunSpec) -> Sightings:
        trained, judged = getattr(run.data.caption, "style", None), getattr(run.sample.prompts, "style", None)
        if trained and judged and trained != judged:
            yield Sighting(
                "sample.prompts",
                f"trained on {trained} captions, judged by {judged} prompts",
                f"--set \"sample.prompts=one_style(style='{trained}')\"",
            )

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        unlike = [(arm, label) for arm in study.arms for label in arm.labels if label.code == "prompts-unlike-captions"]
        for arm, label in unlike[:1] if study.plan.design == "fractional" else unlike:  # combinations repeat it
            yield Sighting(arm.name, f"the arm {label.text}", severity="note")  # its report says so too

    def in_captions(self, captions: CaptionSet) -> Sightings:
        """Held-out captions are the prompts that pictures are judged by."""
        for name in captions.names:
            trained, held_out = (
                [
                    len(text.split())
                    for one in captions.samples
                    if (one.split in ("", "train")) == wanted
                    for text in one.captions.get(name, ())
                ]
                for wanted in (True, False)
            )
            if min(len(trained), len(held_out)) < MIN_CAPTIONS:
                continue
            mine, yours = max(median(trained), 1), max(median(held_out), 1)
            if not 1 / UNLIKE < mine / yours < UNLIKE:
                yield Sighting(
                    name,
                    f"half of the captions '{name}' that are trained on have {mine:g} words or fewer, of the held-out ones "
                    f"{yours:g}",
                    "hold out pictures with captions of the same kind, or judge by both kinds and tell both",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        entries = [
            entry for entry in config.find(r"caption") if isinstance(entry.value, str) and LENGTHS.search(entry.value)
        ]
        judged = [entry for entry in entries if re.search(JUDGED, entry.path)]
        trained = [entry for entry in entries if entry not in judged]
        for mine in trained:
            for yours in judged:
                if _length(mine.text) != _length(yours.text):
                    yield Sighting(
                        config.at(yours), f"trained on {mine.path} = {mine.value}, judged on {yours.path} = {yours.value}"
                    )

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            moved = [change for change in arm.changes if "caption" in change.path and isinstance(change.after, str)]
            trained = [change for change in moved if not re.search(JUDGED, change.path)]
            judged = [
                value
                for path, value in arm.values.items()
                if re.search(JUDGED, path) and re.search(r"caption|prompt", path) and isinstance(value, str)
            ]
            also = [change for change in moved if re.search(r"captioner|caption\w*model|caption\w*source", change.path)]
            own = {entry.path for entry in arm.config.entries}
            for change in trained:
                unlike = [
                    value
                    for value in judged
                    if LENGTHS.search(value) and LENGTHS.search(change.after) and _length(value) != _length(change.after)
                ]
                told_alone = change.path in own and any(re.search(JUDGED, path) and "caption" in path for path in own)
                if unlike and not told_alone:  # what the file itself says of both is told by in_config
                    yield Sighting(
                        arm.at(change.path),
                        f"the arm trains on {change.after!r} captions and is judged by {unlike[0]!r} prompts",
                    )
            if also and len(trained) > len(also):
                yield Sighting(
                    arm.at(also[0].path),
                    f"the arm changes the length of captions and who wrote them: {also[0]}",
                )


def _length(value: str) -> str:
    match = LENGTHS.search(value)
    return match[0].lower() if match else ""
