"""Audit rules about captions."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

from fulcrum.advice.caption_sets import SHOWN, CaptionSet, data_command
from fulcrum.advice.configs import ConfigFamily, ConfigFile, Entry
from fulcrum.advice.rule import AuditRule, Sighting, Sightings
from fulcrum.advice.scripts import Script, TextLimit, limits_in_config, limits_in_script
from fulcrum.spec.run import RunSpec

if TYPE_CHECKING:
    from fulcrum.advice.caption_sets import PairTrial
    from fulcrum.advice.steps import PlannedStudy


# --------------------------------------------------------------------------------------------------
# Rule: captions that begin with the same empty words.


SHARE, WORDS = 0.3, 3
EMPTY = (
    "image",
    "picture",
    "photo",
    "photograph",
    "shows",
    "depicts",
    "features",
    "captures",
    "sorry",
    "cannot",
    "unable",
    "illustration",
)


class CaptionsBoilerplate(AuditRule):
    id = "captions-boilerplate"
    family = "captions"
    severity = "note"
    gain = 0.05
    effort = "edit"
    why = (
        "'The image shows' is no part of a prompt: it takes tokens, and prompts without it are"
        " unlike what was trained on"
    )
    size = "no number published"
    fix = "strip it when captions are written, or ask the captioner to begin with the subject"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        texts = captions.texts()
        openings = Counter(" ".join(text.lower().split()[:WORDS]) for text in texts)
        common = [
            (opening, times)
            for opening, times in openings.most_common(5)
            if any(word in opening.split() for word in EMPTY)
        ]
        times = sum(times for _, times in common)
        if len(texts) >= 20 and times > SHARE * len(texts):
            yield Sighting(
                captions.path,
                f"{times / len(texts):.0%} of the captions begin with "
                f"{', '.join(repr(opening) for opening, _ in common[:3])}",
            )


# --------------------------------------------------------------------------------------------------
# Rule: captions with control characters, markup or broken encoding.


BROKEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u202a-\u202e\ufeff\ufffd]|Ã[\x80-\xbf¤¶¼©¨]|</"
    "?[a-z]{1,8}>|&[a-z]{2,6};"
)


class CaptionsControlCharacters(AuditRule):
    id = "captions-control-characters"
    family = "captions"
    gain = 0.02
    effort = "edit"
    why = (
        "a tokenizer splits them into bytes that no prompt will ever hold; they are a sign of text"
        " that was decoded wrongly"
    )
    size = "no number published"
    fix = "decode as UTF-8 and strip markup before the import"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        bad = [
            one.name
            for one in captions.samples
            if any(BROKEN.search(text) for texts in one.captions.values() for text in texts)
        ]
        if bad:
            yield Sighting(
                bad[0],
                f"{len(bad):,} samples have captions with control characters, markup or broken"
                f" letters: {', '.join(map(repr, bad[:SHOWN]))}",
            )


# --------------------------------------------------------------------------------------------------
# Rule: many pictures share one caption.


DUPLICATED_SHARE = 0.2


class CaptionsDuplicated(AuditRule):
    id = "captions-duplicated"
    family = "captions"
    gain = 0.2
    effort = "rework"
    why = "a caption that many pictures share tells the network nothing that sets them apart"
    size = "as short captions in the worst case: a caption for all is a class label"
    source = "see captions-short"
    fix = "recaption these pictures, or take out repeated pictures: fulcrum data import --once"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        first = [next(iter(one.captions.values()))[0] for one in captions.samples if one.captions]
        counts = Counter(first)
        shared = sum(times for times in counts.values() if times > 1)
        if len(first) >= 20 and shared > DUPLICATED_SHARE * len(first):
            text, times = counts.most_common(1)[0]
            yield Sighting(
                captions.path,
                f"{shared / len(first):.0%} of the pictures share their caption with another;"
                f" {times:,} have {text[:60]!r}",
                "recaption these pictures, or take out repeated ones: "
                + (
                    data_command("filter", captions.path, "once", "--duplicates", "0")
                    if captions.stored
                    else captions.import_command("--once")
                ),
            )


# --------------------------------------------------------------------------------------------------
# Rule: captions of several languages in one data set, or in one file.


FOREIGN_SHARE = 0.05
# else held-out pictures stay, whatever their prompts are
ENGLISH = ("--language", "en", "--held-out")
COMMON = {
    "English": {"the", "a", "of", "with", "and", "in", "on", "is"},
    "German": {"der", "die", "das", "ein", "eine", "mit", "und", "auf", "einem", "einer"},
    "French": {"le", "la", "les", "un", "une", "avec", "et", "sur", "dans", "des"},
    "Spanish": {"el", "los", "las", "una", "con", "y", "sobre", "del", "en"},
}
SCRIPTS = {
    "Chinese or Japanese": (0x3040, 0x9FFF),
    "Cyrillic": (0x0400, 0x04FF),
    "Arabic": (0x0600, 0x06FF),
    "Korean": (0xAC00, 0xD7AF),
}


class CaptionsMixedLanguages(AuditRule):
    id = "captions-mixed-languages"
    family = "captions"
    gain = 0.1
    effort = "edit"
    why = (
        "most text encoders know one language well: the others' captions are noise, and a file with"
        " several is read as one long prompt"
    )
    size = "no number published"
    fix = (
        "keep one language, or give each its own caption column: fulcrum data import --caption"
        " long=caption_en"
    )

    def in_captions(self, captions: CaptionSet) -> Sightings:
        languages = [language(text) for text in captions.texts()]
        counts = Counter(one for one in languages if one)
        if not counts:
            return
        (first, most), *others = counts.most_common()
        rest = sum(times for _, times in others)
        if rest > FOREIGN_SHARE * (most + rest):
            yield Sighting(
                captions.path,
                f"{rest / (most + rest):.0%} of the captions are not {first} but "
                f"{', '.join(name for name, _ in others[:3])}",
                (
                    f"keep one language: {data_command('filter', captions.path, 'en', *ENGLISH)}"
                    if captions.stored
                    else f"import them ({captions.import_command()}), then keep one language: "
                    + data_command("filter", f"{captions.path.rstrip('/')}_store", "en", *ENGLISH)
                ),
            )


def language(text: str) -> str:
    """A guess from the letters, then from the commonest short words; empty where neither tells."""
    letters = [ord(letter) for letter in text if letter.isalpha()]
    for name, (low, high) in SCRIPTS.items():
        if letters and sum(low <= letter <= high for letter in letters) > 0.3 * len(letters):
            return name
    words = set(text.lower().replace(",", " ").replace(".", " ").split())
    scores = {name: len(words & common) for name, common in COMMON.items()}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] >= 2 and list(scores.values()).count(scores[best]) == 1 else ""


# --------------------------------------------------------------------------------------------------
# Rule: captions that say little.


# words, of the median caption; the published short ones had about ten, the long ones a paragraph
FEWEST = 12


class CaptionsShort(AuditRule):
    id = "captions-short"
    family = "captions"
    severity = "error"
    gain = 0.5
    effort = "rework"
    why = (
        "what a caption does not say cannot be asked for later, and the network must guess it while"
        " it trains: the largest effect of the published study"
    )
    size = "FID 18.2 with long captions, 36.8 with short ones (judged on long prompts: A9)"
    source = "PRX Part 2"
    lever = "short_captions"
    fix = (
        "recaption with a vision-language model (fulcrum caption), long captions first, mixed"
        " lengths at the end"
    )

    def in_captions(self, captions: CaptionSet) -> Sightings:
        if captions.samples:
            name = "long" if "long" in captions.names else captions.names[0]
            words = median(len(text.split()) for text in captions.texts(name))
            if words < FEWEST:
                where = captions.path.rstrip("/") + ("" if captions.stored else "_store")
                write = shlex.join(["fulcrum", "caption", where, f"{where}_recap", "--model"])
                first = "" if captions.stored else f"{captions.import_command()}, then "
                yield Sighting(
                    name,
                    f"half of the captions '{name}' have {words:g} words or fewer",
                    f"let a vision-language model write them: {first}{write} FOLDER",
                )

    def in_run(self, run: RunSpec) -> Sightings:
        if getattr(run.data.caption, "style", "") == "short":
            yield Sighting(
                "data.caption",
                "trained on short captions",
                "--set \"data.caption=one_style(style='long')\", or the lever mixed_captions",
            )


# --------------------------------------------------------------------------------------------------
# Rule: captions that the text encoder cuts off.


PER_WORD = 1.3  # tokens of an English word, about, with CLIP's and T5's vocabularies
TRUNCATED_SHARE = 0.05
# Statistics of captions that somebody wrote down: p50 to p95, median, mean. A maximum or p99 above
# the limit is no fault.
SUMMARY_NAME = re.compile(
    r"(^|[._])(p_?(5|6|7|8|9)[05]|q_?(5|6|7|8|9)[05]|median|mean|avg|average)($|[._])"
)


class CaptionsTruncated(AuditRule):
    id = "captions-truncated"
    family = "captions"
    gain = 0.1
    effort = "edit"
    why = (
        "what stands behind the text encoder's last token is never read: long captions cost their"
        " writing and teach nothing"
    )
    size = "the share of captions that lose their end is told with the fault"
    source = "CLIP reads 77 tokens"
    fix = (
        "use an encoder that reads more (T5: 512), or shorter captions with what matters first; say"
        " what yours reads: --tokens 256"
    )

    def in_captions(self, captions: CaptionSet) -> Sightings:
        texts = captions.texts()
        long = sum(tokens(text) > captions.limit for text in texts)
        if texts and long > TRUNCATED_SHARE * len(texts):
            yield Sighting(
                captions.path,
                f"{long / len(texts):.0%} of {len(texts):,} captions are longer than"
                f" {captions.limit} tokens (estimated at {PER_WORD} a word)",
            )

    def in_config(self, config: ConfigFile) -> Sightings:
        """Lengths that the configuration itself records, beside the limit that it sets."""
        limits = [limit for limit in limits_in_config(config) if not limit.judged]
        recorded = [
            (entry, length) for entry in config.entries if (length := _recorded(entry)) is not None
        ]
        # of several encoders the one that reads most
        limit = max(limits, key=lambda one: one.tokens, default=None)
        over = [
            (entry, length)
            for entry, length in recorded
            if limit is not None and length > limit.tokens
        ]
        if limit is not None and over:
            entry = over[0][0]
            yield Sighting(
                limit.place,
                f"{limit.seen}, and captions are recorded as longer: {entry.path} = {entry.value}"
                f" (line {entry.line})",
            )


def _recorded(entry: Entry) -> float | None:
    """A usual length of captions in tokens, where this is one."""
    if (
        entry.number is None
        or not re.search(r"caption|text|prompt", entry.path)
        or not SUMMARY_NAME.search(entry.path)
    ):
        return None
    words = "word" in entry.path
    return entry.number * PER_WORD if words else entry.number if "token" in entry.path else None


def tokens(text: str) -> float:
    """About as many as a subword vocabulary makes of it; scripts without spaces have about one a
    letter."""
    wide = sum(ord(letter) > 0x2E80 for letter in text)
    return PER_WORD * len(text.split()) + wide + 2


# --------------------------------------------------------------------------------------------------
# Rule: captions that fit another picture as well as their own.


# of pairs; wrong captions win every second time, so a tenth of them are twice as many wrong ones
UNLIKE_SHARE = 0.1
DEVIATIONS = 1.64  # below a half, that chance leaves one time in twenty
MAX_PAIRS_SHOWN = 3


class CaptionsUnlikePictures(AuditRule):
    id = "captions-unlike-pictures"
    family = "captions"
    also = "note where the scorer tells no better than chance"
    gain = 0.1
    effort = "edit"
    why = (
        "a caption that says what its picture does not show teaches the network to ignore words:"
        " some of these pictures have another's caption, or one that would fit many"
    )
    size = "no number published; the page of our lever has what we measured"
    lever = "caption_filter"
    fix = (
        "drop the worst pairs (fulcrum data filter --score world --drop 0.1), or write captions"
        " anew (fulcrum caption)"
    )

    def in_pairs(self, pairs: "PairTrial") -> Sightings:
        misfits, count = pairs.misfits, len(pairs.pairs)
        if not misfits or len(misfits) <= UNLIKE_SHARE * count:
            return
        seen = (
            f"by {pairs.scorer} {len(misfits)} of {count} captions fit another picture as well as"
            " their own"
        )
        if pairs.warning or len(misfits) > count / 2 - DEVIATIONS * sqrt(count) / 2:
            yield Sighting(
                misfits[0].name,
                f"{seen}, as chance would have it: the scorer does not know such pictures, or"
                " almost no caption is right",
                "look at some pairs yourself, or ask a scorer that knows such pictures: --score"
                " clip=FOLDER",
                "note",
            )
            return
        few = "; ".join(f"{one.name}: {one.caption[:60]!r}" for one in misfits[:MAX_PAIRS_SHOWN])
        scored = ("--score", pairs.scorer, "--drop", "0.1")
        yield Sighting(
            misfits[0].name,
            f"{seen}. A wrong one does so every second time: about {2 * len(misfits) / count:.0%}"
            f" may be wrong: {few}",
            (
                f"drop the worst pairs: {data_command('filter', pairs.data, 'fitting', *scored)}"
                if pairs.stored
                else (
                    f"import them ({data_command('import', pairs.data, 'store')}), then drop the"
                    " worst pairs: "
                )
                + data_command("filter", f"{pairs.data.rstrip('/')}_store", "fitting", *scored)
            ),
        )


# --------------------------------------------------------------------------------------------------
# Rule: pictures are judged by prompts unlike the captions that were trained on.


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
        "a model that was trained on short captions and is judged on long prompts is judged on"
        " words that it has never read: part of the effect may be the mismatch"
    )
    size = "part of the published study's largest effect, FID 18.2 to 36.8"
    source = "docs/published.md, A9"
    published = "A9"
    lever = "short_captions"
    fix = (
        "judge with prompts of the trained kind too, and tell both: short_captions(prompts=matched)"
    )

    def in_run(self, run: RunSpec) -> Sightings:
        trained, judged = (
            getattr(run.data.caption, "style", None),
            getattr(run.sample.prompts, "style", None),
        )
        if trained and judged and trained != judged:
            yield Sighting(
                "sample.prompts",
                f"trained on {trained} captions, judged by {judged} prompts",
                f"--set \"sample.prompts=one_style(style='{trained}')\"",
            )

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        unlike = [
            (arm, label)
            for arm in study.arms
            for label in arm.labels
            if label.code == "prompts-unlike-captions"
        ]
        # combinations repeat it
        for arm, label in unlike[:1] if study.plan.design == "fractional" else unlike:
            # its report says so too
            yield Sighting(arm.name, f"the arm {label.text}", severity="note")

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
                    f"half of the captions '{name}' that are trained on have {mine:g} words or"
                    f" fewer, of the held-out ones {yours:g}",
                    "hold out pictures with captions of the same kind, or judge by both kinds and"
                    " tell both",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        entries = [
            entry
            for entry in config.find(r"caption")
            if isinstance(entry.value, str) and LENGTHS.search(entry.value)
        ]
        judged = [entry for entry in entries if re.search(JUDGED, entry.path)]
        trained = [entry for entry in entries if entry not in judged]
        for mine in trained:
            for yours in judged:
                if _length(mine.text) != _length(yours.text):
                    yield Sighting(
                        config.at(yours),
                        f"trained on {mine.path} = {mine.value}, judged on {yours.path} ="
                        f" {yours.value}",
                    )

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            moved = [
                change
                for change in arm.changes
                if "caption" in change.path and isinstance(change.after, str)
            ]
            trained = [change for change in moved if not re.search(JUDGED, change.path)]
            judged = [
                value
                for path, value in arm.values.items()
                if re.search(JUDGED, path)
                and re.search(r"caption|prompt", path)
                and isinstance(value, str)
            ]
            also = [
                change
                for change in moved
                if re.search(r"captioner|caption\w*model|caption\w*source", change.path)
            ]
            own = {entry.path for entry in arm.config.entries}
            for change in trained:
                unlike = [
                    value
                    for value in judged
                    if LENGTHS.search(value)
                    and LENGTHS.search(change.after)
                    and _length(value) != _length(change.after)
                ]
                told_alone = change.path in own and any(
                    re.search(JUDGED, path) and "caption" in path for path in own
                )
                # what the file itself says of both is told by in_config
                if unlike and not told_alone:
                    yield Sighting(
                        arm.at(change.path),
                        f"the arm trains on {change.after!r} captions and is judged by"
                        f" {unlike[0]!r} prompts",
                    )
            if also and len(trained) > len(also):
                yield Sighting(
                    arm.at(also[0].path),
                    f"the arm changes the length of captions and who wrote them: {also[0]}",
                )


def _length(value: str) -> str:
    match = LENGTHS.search(value)
    return match[0].lower() if match else ""


# --------------------------------------------------------------------------------------------------
# Rule: samples of a data set that cannot be used.


class SamplesBroken(AuditRule):
    id = "samples-broken"
    family = "captions"
    also = "error where no sample is left"
    gain = 0.02
    why = (
        "a loader that skips them shrinks batches silently; one that does not stops in the middle"
        " of the night"
    )
    size = "as many samples as are named"
    source = "docs/published.md, A19"
    fix = (
        "mend or remove them, or let the import leave them out and count them: fulcrum data import"
        " --bad quarantine"
    )

    def in_captions(self, captions: CaptionSet) -> Sightings:
        if captions.broken:
            few = "; ".join(f"{name}: {why}" for name, why in captions.broken[:SHOWN])
            yield Sighting(
                captions.broken[0][0],
                f"{len(captions.broken):,} samples cannot be used: {few}",
                (
                    f"fulcrum doctor {shlex.quote(captions.path)} says what of the store is"
                    " damaged: import the pictures again"
                    if captions.stored
                    else "mend or remove them, or leave them out, counted and named: "
                    + captions.import_command("--bad", "quarantine")
                ),
                None if captions.samples else "error",
            )


# --------------------------------------------------------------------------------------------------
# Rule: texts are cut or padded to one length in training, and to another where pictures are judged.


class TextLengthUnequal(AuditRule):
    id = "text-length-unequal"
    family = "captions"
    gain = 0.1
    why = (
        "padding takes part in joint attention where it is not masked, and a longer limit lets"
        " words through that training has cut off: pictures are judged under texts of a shape that"
        " was never trained on"
    )
    size = "no number published"
    fix = "one constant for both: the length that the text encoder is given in training"

    def in_script(self, script: Script) -> Sightings:
        # A library's file has many lengths for many callers; a training's has one model.
        return _unequal(limits_in_script(script)) if script.trains else ()

    def in_config(self, config: ConfigFile) -> Sightings:
        return _unequal(limits_in_config(config))


def _unequal(limits: Sequence[TextLimit]) -> Sightings:
    """Judged limits that no limit of training for the same reader equals; one for each reader."""
    for reader in dict.fromkeys(limit.reader for limit in limits):
        trained = [limit for limit in limits if limit.reader == reader and not limit.judged]
        unlike = [
            limit
            for limit in limits
            if limit.reader == reader
            and limit.judged
            and all(limit.tokens != one.tokens for one in trained)
        ]
        if trained and unlike:
            yield Sighting(
                unlike[0].place,
                f"{unlike[0].seen} reads {unlike[0].tokens:g} tokens where pictures are judged, and"
                f" training reads {trained[0].tokens:g} ({trained[0].seen}, line"
                f" {trained[0].place})",
            )
