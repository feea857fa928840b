"""All rules of the audit in one list, and how they are applied."""

import io
import re
import tokenize
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fulcrum.advice.published import OwnEvidence
from fulcrum.advice.rule import SEVERITIES, AuditRule, Fault, Sighting, Sightings
from fulcrum.advice.rules_captions import (
    CaptionsBoilerplate,
    CaptionsControlCharacters,
    CaptionsDuplicated,
    CaptionsMixedLanguages,
    CaptionsShort,
    CaptionsTruncated,
    CaptionsUnlikePictures,
    PromptsUnlikeCaptions,
    SamplesBroken,
    TextLengthUnequal,
)
from fulcrum.advice.rules_design import (
    ArmChangesNothing,
    ArmIsCompound,
    ArmRefused,
    BooleanAsText,
    CachingUnequal,
    DefaultNotThere,
    DosesUnequal,
    EpochNotSet,
    ErrorsSwallowed,
    OptimizerArmMovesMore,
    OutputsShared,
    PowerLow,
    SeedNotInOrder,
    SeedsUnpaired,
    SettingReadByNobody,
    TooFewPairs,
)
from fulcrum.advice.rules_evaluation import (
    FewSamplesForFeatures,
    GuidanceUnequal,
    KernelBlindToDiversity,
    MetricRange,
    NoiseSharedBySamples,
    ReferenceInTraining,
    ResizeWithoutSmoothing,
    SamplesPerProcess,
    TeacherIsJudge,
    ValidationDrawsAnew,
)
from fulcrum.advice.rules_precision import (
    AutocastTooWide,
    AverageInBf16,
    ClipOfScaledGradients,
    Fp16WithoutScaler,
    FsdpCastsInputs,
    GradScalerWithBf16,
    LossInBf16,
    NormInBf16,
    OptimizerStateInBf16,
    ProjectorInBf16,
    RotaryInBf16,
    SoftmaxInBf16,
    TimeInBf16,
    UpdatesRoundAway,
    ValuesNotFinite,
    WeightsInBf16,
)
from fulcrum.advice.rules_schedule import (
    AdamEpsLarge,
    AlignmentNeverOff,
    AverageLongerThanTraining,
    GradientsNeverCleared,
    IrepaNormalisesFeatures,
    LeftInEvalMode,
    NoWarmup,
    PerceptualWithoutPicture,
    RoutingWithFewTokens,
    ShiftWithoutResolution,
    WeightsOnlyCheckpoint,
)
from fulcrum.advice.rules_tokenizer import (
    ChannelsMismatch,
    CodecClassMismatch,
    CodecRange,
    LatentDeviation,
    LatentScaleMissing,
    LatentScaleTyped,
    ReconstructionPoor,
)
from fulcrum.spec.errors import BadInput, nearest

# --------------------------------------------------------------------------------------------------
# All rules of the audit, in an explicit list: nothing registers itself.


RULES: tuple[AuditRule, ...] = (
    AutocastTooWide(),
    AverageInBf16(),
    ClipOfScaledGradients(),
    Fp16WithoutScaler(),
    FsdpCastsInputs(),
    GradScalerWithBf16(),
    LossInBf16(),
    NormInBf16(),
    OptimizerStateInBf16(),
    ProjectorInBf16(),
    RotaryInBf16(),
    SoftmaxInBf16(),
    TimeInBf16(),
    UpdatesRoundAway(),
    ValuesNotFinite(),
    WeightsInBf16(),
    CaptionsBoilerplate(),
    CaptionsControlCharacters(),
    CaptionsDuplicated(),
    CaptionsMixedLanguages(),
    CaptionsShort(),
    CaptionsTruncated(),
    CaptionsUnlikePictures(),
    PromptsUnlikeCaptions(),
    SamplesBroken(),
    TextLengthUnequal(),
    ChannelsMismatch(),
    CodecClassMismatch(),
    CodecRange(),
    LatentDeviation(),
    LatentScaleMissing(),
    LatentScaleTyped(),
    ReconstructionPoor(),
    AdamEpsLarge(),
    AlignmentNeverOff(),
    AverageLongerThanTraining(),
    GradientsNeverCleared(),
    IrepaNormalisesFeatures(),
    LeftInEvalMode(),
    NoWarmup(),
    PerceptualWithoutPicture(),
    RoutingWithFewTokens(),
    ShiftWithoutResolution(),
    WeightsOnlyCheckpoint(),
    FewSamplesForFeatures(),
    GuidanceUnequal(),
    KernelBlindToDiversity(),
    MetricRange(),
    NoiseSharedBySamples(),
    ReferenceInTraining(),
    ResizeWithoutSmoothing(),
    SamplesPerProcess(),
    TeacherIsJudge(),
    ValidationDrawsAnew(),
    ArmChangesNothing(),
    ArmIsCompound(),
    ArmRefused(),
    BooleanAsText(),
    CachingUnequal(),
    DefaultNotThere(),
    DosesUnequal(),
    EpochNotSet(),
    ErrorsSwallowed(),
    OptimizerArmMovesMore(),
    OutputsShared(),
    PowerLow(),
    SeedNotInOrder(),
    SeedsUnpaired(),
    SettingReadByNobody(),
    TooFewPairs(),
)
BY_ID = {rule.id: rule for rule in RULES}


# --------------------------------------------------------------------------------------------------
# Holds every rule against a subject and makes faults of what they see.


# most gain of a sighting that is milder than its rule: whether it matters here is a guess
UNSURE = 0.1
# what could not be looked at counts as a fault: nothing is passed over silently
NO_RULE = "unreadable"


def chosen_rules(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[AuditRule, ...]:
    """All rules; where some are named, only these; never those to skip."""
    only, skip = set(only), set(skip)
    for name in (*only, *skip):
        if name not in BY_ID:
            raise BadInput(f"no rule is called '{name}'", nearest(name, BY_ID))
    return tuple(rule for rule in RULES if (not only or rule.id in only) and rule.id not in skip)


class Judge:
    """Makes faults of what rules see."""

    def __init__(self, evidence: OwnEvidence, rules: tuple[AuditRule, ...] = RULES) -> None:
        self.evidence, self.rules = evidence, rules

    def faults(
        self, look: Callable[[AuditRule], Sightings], place: Callable[[Sighting], str]
    ) -> list[Fault]:
        """What every rule saw; one that fails on what it never met is named, and the others look
        on."""
        faults = list[Fault]()
        for rule in self.rules:
            try:
                faults += [self.fault(rule, one, place(one)) for one in look(rule)]
            except Exception as error:
                why = (
                    f"the rule {rule.id} failed: {type(error).__name__}: {error}; this should not"
                    " happen: please report it"
                )
                faults.append(unreadable(place(Sighting("1", "")), why))
        return faults

    def fault(self, rule: AuditRule, one: Sighting, place: str) -> Fault:
        published = (rule.source,) if rule.source else ()
        milder = one.severity is not None and SEVERITIES.index(one.severity) < SEVERITIES.index(
            rule.severity
        )
        return Fault(
            rule.id,
            rule.family,
            one.severity or rule.severity,
            place,
            one.seen,
            rule.why,
            rule.size,
            (*published, *self.evidence.of(rule.lever)),
            one.fix or rule.fix,
            min(rule.gain, UNSURE) if milder else rule.gain,
            rule.effort,
        )


def unreadable(place: str, why: str) -> Fault:
    return Fault(
        NO_RULE,
        "design",
        "error",
        place,
        why,
        "what cannot be read cannot be audited",
        "not known",
        (),
        "mend it, or name the other files",
        0.5,
        "line",
    )


# --------------------------------------------------------------------------------------------------
# `# fulcrum: ignore[rule] reason`: a person's word that a fault is none, on its line or alone on
# the line above.


COMMENT = re.compile(r"#\s*fulcrum:\s*ignore\[([^\]]*)\]\s*(.*)$")
# it wants to answer something
MEANT = re.compile(r"(?i)#\s*fulcrum\s*[:=]?\s*(ignored?|noqa|disabled?|skip|suppress)\b")
FORM = "# fulcrum: ignore[rule] reason"


class Ignore(NamedTuple):
    rules: tuple[str, ...]
    reason: str
    place: str  # file:line of the comment
    lines: tuple[str, ...]  # file:line that it speaks of
    unread: str = ""  # the comment, where its form is not known


class Ignores(NamedTuple):
    comments: tuple[Ignore, ...]

    @classmethod
    def joined(cls, several: "Iterable[Ignores]") -> "Ignores":
        return cls(tuple(comment for one in several for comment in one.comments))

    def applied(
        self, faults: list[Fault], again: bool = False
    ) -> tuple[list[Fault], list[tuple[str, str, str]]]:
        """Faults that stay, and those that a comment answers; a comment without a reason or of no
        rule is a fault of its own, told once."""
        stay, gone = list[Fault](), list[tuple[str, str, str]]()
        for fault in faults:
            reason = next(
                (
                    one.reason
                    for one in self.comments
                    if one.reason and fault.rule in one.rules and fault.place in one.lines
                ),
                "",
            )
            if reason:
                gone.append((fault.rule, fault.place, reason))
            else:
                stay.append(fault)
        return stay + ([] if again else self._faults()), gone

    def _faults(self) -> list[Fault]:
        faults = []
        for one in self.comments:
            if one.unread:
                faults.append(
                    _wrong(
                        one.place,
                        f"`{one.unread[:60]}` answers no fault: it names no rule",
                        f"write: {FORM}",
                    )
                )
                continue
            unknown = [rule for rule in one.rules if rule not in BY_ID]
            if unknown:
                faults.append(
                    _wrong(
                        one.place, f"no rule is called '{unknown[0]}'", nearest(unknown[0], BY_ID)
                    )
                )
            if not one.reason:
                faults.append(
                    _wrong(one.place, "a fault is ignored without a reason", f"write why: {FORM}")
                )
        return faults


def ignores_in(source: str, name: str) -> Ignores:
    comments = []
    lines = source.splitlines()
    for number, column, text in _comments(source, name):
        match = COMMENT.search(text)
        rules = tuple(rule.strip() for rule in match[1].split(",") if rule.strip()) if match else ()
        if match and rules:
            alone = not lines[number - 1][:column].strip()
            spoken_of = (f"{name}:{number}", *([f"{name}:{number + 1}"] if alone else []))
            comments.append(Ignore(rules, match[2].strip(), f"{name}:{number}", spoken_of))
        elif MEANT.search(text):
            comments.append(Ignore((), "", f"{name}:{number}", (), text.strip()))
    return Ignores(tuple(comments))


def _comments(source: str, name: str) -> list[tuple[int, int, str]]:
    """Line, column and text of every comment; in Python a text that only looks like one is none."""
    if not name.endswith(".py"):
        places = [
            (number, line.find("#"), line) for number, line in enumerate(source.splitlines(), 1)
        ]
        return [(number, column, line[column:]) for number, column, line in places if column >= 0]
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    # it was parsed, so this is a tokenizer's whim: nothing is ignored
    except (tokenize.TokenError, SyntaxError):
        return []
    return [(*token.start, token.string) for token in tokens if token.type == tokenize.COMMENT]


def _wrong(place: str, seen: str, fix: str) -> Fault:
    return Fault(
        "ignore-comment",
        "design",
        "warning",
        place,
        seen,
        "a comment that answers nothing hides nothing",
        "none",
        (),
        fix,
        0.01,
        "line",
    )


# --------------------------------------------------------------------------------------------------
# The table of all rules that docs/audit.md shows, written from the rules themselves.


BEGIN, END = (
    "<!-- rules: written by `fulcrum audit --rules`, held by a test -->",
    "<!-- end of the rules -->",
)
LOOKS = {
    "in_script": "scripts",
    "in_config": "configurations",
    "in_family": "arms",
    "in_project": "projects",
    "in_run": "runs",
    "in_plan": "plans",
    "in_tensors": "checkpoints",
    "in_folder": "model folders",
    "in_captions": "data sets",
    "in_pairs": "scored pairs",
    "in_codec_trial": "an autoencoder on pictures",
    "in_step": "a probed step",
}


def looks_at(rule: AuditRule) -> list[str]:
    """What a rule knows how to judge: the methods that it overrides."""
    return [
        word
        for method, word in LOOKS.items()
        if getattr(type(rule), method) is not getattr(AuditRule, method)
    ]


def severities(rule: AuditRule) -> str:
    return f"{rule.severity}; {rule.also}" if rule.also else rule.severity


def rule_lines() -> str:
    """The rules for a terminal, where a table of six columns cannot be read."""
    lines = [f"{len(RULES)} rules; what each costs and how it is mended: docs/audit.md, or --json"]
    for rule in RULES:
        lines += [
            "",
            f"{rule.id}  {severities(rule)}  ({rule.family}: {', '.join(looks_at(rule))})",
            f"   {rule.why}",
        ]
    return "\n".join(lines)


def rule_table() -> str:
    """For the page, in Markdown."""
    lines = [
        "| rule | severity | looks at | why | expected size | fix |",
        "|---|---|---|---|---|---|",
    ]
    family = ""
    for rule in RULES:
        if rule.family != family:
            family = rule.family
            lines.append(f"| **{family}** | | | | | |")
        size = f"{rule.size} ({rule.source})" if rule.source else rule.size
        name = f'<a id="{rule.id}"></a>`{rule.id}`'  # the anchor is what SARIF's helpUri leads to
        cells = (name, severities(rule), ", ".join(looks_at(rule)), rule.why, size, rule.fix)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
