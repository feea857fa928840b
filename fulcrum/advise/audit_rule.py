"""What a rule of the audit is: its facts, and one method for each kind of thing that it knows how to look at."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from fulcrum.advise.fault import Effort, Severity

if TYPE_CHECKING:
    from fulcrum.advise.subjects.caption_set import CaptionSet
    from fulcrum.advise.subjects.codec_trial import CodecTrial
    from fulcrum.advise.subjects.config_family import ConfigFamily
    from fulcrum.advise.subjects.config_file import ConfigFile
    from fulcrum.advise.subjects.model_folder import ModelFolder
    from fulcrum.advise.subjects.pair_trial import PairTrial
    from fulcrum.advise.subjects.planned_study import PlannedStudy
    from fulcrum.advise.subjects.python_script import Script
    from fulcrum.advise.subjects.step_trace import StepTrace
    from fulcrum.advise.subjects.stored_tensors import StoredTensors
    from fulcrum.advise.subjects.training_project import TrainingProject
    from fulcrum.spec.run import RunSpec

Family = Literal["precision", "captions", "tokenizer", "schedule", "evaluation", "design"]


class Sighting(NamedTuple):
    """What a rule saw; `fix` and `severity` where this sighting deserves another than the rule's own."""

    place: str  # a line of a script or configuration, a slot, a tensor, an arm
    seen: str
    fix: str = ""
    severity: Severity | None = None


Sightings = Iterable[Sighting]


class AuditRule:
    """Subclasses state the facts and override the methods for what they can judge; the others see nothing."""

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
    lever: ClassVar[str] = ""  # of ours, whose studies say more of the size; settings that are named must be the arm's
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
