"""A rule of the audit and the faults that it reports."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

from fulcrum.spec.errors import BadInput, nearest

if TYPE_CHECKING:
    from fulcrum.advice.caption_sets import CaptionSet, PairTrial
    from fulcrum.advice.configs import ConfigFamily, ConfigFile
    from fulcrum.advice.scripts import Script, TrainingProject
    from fulcrum.advice.steps import PlannedStudy, StepTrace
    from fulcrum.advice.tensors import CodecTrial, ModelFolder, StoredTensors
    from fulcrum.spec.run import RunSpec


# --------------------------------------------------------------------------------------------------
# A fault: what a rule saw where, why it matters, what it may cost, what to do; and in which order
# faults are told.


Severity = Literal["note", "warning", "error"]
Effort = Literal["line", "edit", "rework"]
SEVERITIES: tuple[str, ...] = get_args(Severity)  # from the mildest
NEVER = "never"
# one line; some lines or settings; new data, or training again
EFFORT = {"line": 1.0, "edit": 3.0, "rework": 10.0}


class Fault(NamedTuple):
    """One place where one rule saw something."""

    rule: str
    family: str
    severity: Severity
    place: str  # file:line, a tensor, a slot of a run, an arm
    seen: str
    why: str
    size: str  # what it may cost, in words
    #: where that size comes from: published, and from studies of one's own
    evidence: tuple[str, ...]
    fix: str
    gain: float  # expected gain of mending it, 0 to 1: docs/decisions/0042-audit.md
    effort: Effort

    @property
    def priority(self) -> float:
        """Expected gain per effort."""
        return self.gain / EFFORT[self.effort]

    def plain(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "evidence": list(self.evidence),
            "priority": round(self.priority, 4),
        }


def stacked(faults: Iterable[Fault]) -> list[Fault]:
    """The priority stack: most gain per effort first; of equals the graver, then by place."""
    return sorted(
        faults,
        key=lambda one: (-one.priority, -SEVERITIES.index(one.severity), one.rule, one.place),
    )


def at_least(faults: Iterable[Fault], severity: str) -> list[Fault]:
    """Those of this severity and above; of `never`, none."""
    if severity == NEVER:
        return []
    if severity not in SEVERITIES:
        raise BadInput(
            f"no severity is called '{severity}'", nearest(severity, (*SEVERITIES, NEVER))
        )
    return [one for one in faults if SEVERITIES.index(one.severity) >= SEVERITIES.index(severity)]


# --------------------------------------------------------------------------------------------------
# What a rule of the audit is: its facts, and one method for each kind of thing that it knows how to
# look at.


Family = Literal["precision", "captions", "tokenizer", "schedule", "evaluation", "design"]


class Sighting(NamedTuple):
    """What a rule saw; `fix` and `severity` where this sighting deserves another than the rule's
    own."""

    place: str  # a line of a script or configuration, a slot, a tensor, an arm
    seen: str
    fix: str = ""
    severity: Severity | None = None


Sightings = Iterable[Sighting]


class AuditRule:
    """Subclasses state the facts and override the methods for what they can judge; the others see
    nothing."""

    id: ClassVar[str]
    family: ClassVar[Family]
    severity: ClassVar[Severity] = "warning"
    also: ClassVar[str] = ""  # another severity than that, and where: a Sighting may have its own
    why: ClassVar[str]
    size: ClassVar[str]  # what the fault may cost, in words
    source: ClassVar[str] = ""  # where that size is from
    fix: ClassVar[str]
    gain: ClassVar[float]  # 0 to 1; docs/decisions/0042-audit.md says what the numbers mean
    effort: ClassVar[Effort] = "line"
    #: of ours, whose studies say more of the size; settings that are named must be the arm's
    lever: ClassVar[str] = ""
    published: ClassVar[str] = ""  # the numbers of docs/published.md that it answers to

    def in_script(self, script: "Script") -> Sightings:
        return ()

    def in_config(self, config: "ConfigFile") -> Sightings:
        return ()

    def in_family(self, family: "ConfigFamily") -> Sightings:
        """Configurations that are compared with each other."""
        return ()

    def in_project(self, project: "TrainingProject") -> Sightings:
        """Scripts and configurations that belong together."""
        return ()

    def in_run(self, run: "RunSpec") -> Sightings:
        """A run of ours."""
        return ()

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        """A study of ours, before it runs."""
        return ()

    def in_tensors(self, tensors: "StoredTensors") -> Sightings:
        """A checkpoint."""
        return ()

    def in_folder(self, folder: "ModelFolder") -> Sightings:
        """A pipeline or model in diffusers' format."""
        return ()

    def in_captions(self, captions: "CaptionSet") -> Sightings:
        """A data set."""
        return ()

    def in_pairs(self, pairs: "PairTrial") -> Sightings:
        """Some pictures and captions, scored."""
        return ()

    def in_codec_trial(self, trial: "CodecTrial") -> Sightings:
        """An autoencoder on pictures of the user's."""
        return ()

    def in_step(self, step: "StepTrace") -> Sightings:
        """One step of a user's module, watched."""
        return ()
