"""Rule: many tokens, and times that are not shifted towards noise."""

import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.config_tokens import image_tokens
from fulcrum.advise.subjects.model_folder import ModelFolder
from fulcrum.spec.run import RunSpec

MANY = 1024
UNSHIFTED = 256  # tokens, at which published trainings do without
# A shift of times: by its own name (timestep_shift, discrete_flow_shift), or below what is about them (flow.shift).
OF_TIMES = re.compile(r"(time|flow|sigma|noise|sched|diffusion|objective|sampl)\w*[._]?(\w+\.)*shift$|^shift$")


class ShiftWithoutResolution(AuditRule):
    id = "shift-without-resolution"
    family = "schedule"
    severity = "note"
    also = "warning where a run is trained and drawn with unlike shifts"
    gain = 0.1
    why = (
        "the more pixels a picture has, the more noise it takes to hide it: without a shift most training times are "
        "too easy at high resolution"
    )
    size = "Stable Diffusion 3 and PRX shift by about 3 at 1024 px; no clean number published"
    source = "arXiv:2403.03206"
    lever = "shifted_time"
    fix = '--set "flow.time=logit_normal(shift=3.0)" --set sample.shift=3.0'

    def in_run(self, run: RunSpec) -> Sightings:
        shift = getattr(run.flow.time, "shift", None)
        if run.tokens >= MANY and shift == 1.0:
            yield Sighting("flow.time", f"{run.tokens:,} tokens and no shift of the times")
        if shift is not None and shift != run.sample.shift:
            yield Sighting(
                "sample.shift",
                f"trained with times shifted by {shift:g}, drawn with {run.sample.shift:g}",
                f"--set sample.shift={shift:g}",
                "warning",
            )

    def in_config(self, config: ConfigFile) -> Sightings:
        """Only where it is said that nothing is shifted: a trainer's own default is not known."""
        shifts = (entry for entry in config.find(r"(^|[._]|[a-z])shift$") if OF_TIMES.search(entry.path))
        stated = [entry for entry in shifts if not isinstance(entry.value, bool)]
        tokens = image_tokens(config, usual_stride=True)
        otherwise = any(
            not entry.off for entry in config.find(r"(dynamic|auto)_?shift|resolution_\w*shift|shift_?(by|with)_?res")
        )
        otherwise |= any("flux_shift" in entry.text for entry in config.find(r"timestep_sampling$"))  # kohya's, by size
        # Logit-normal times with another mean than 0 are shifted by that.
        otherwise |= any(
            entry.number not in (None, 0.0) for entry in config.find(r"logit_?mean$|density\.mean$|(^|[._])p_mean$")
        )
        if (
            stated
            and tokens is not None
            and tokens >= MANY
            and all(entry.number in (0.0, 1.0) for entry in stated)  # SimpleTuner's 0 is off
            and not otherwise
        ):
            shift = (tokens / UNSHIFTED) ** 0.5
            yield Sighting(
                config.at(stated[0]),
                f"{stated[0].path} = {stated[0].value} at about {tokens:,.0f} tokens",
                f"shift by about {shift:.1f} (root of {tokens:,.0f} / {UNSHIFTED} tokens), in training and in drawing",
            )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        scheduler, vae, denoiser = folder.part("scheduler"), folder.part("vae"), folder.part("transformer")
        if not (scheduler and denoiser) or "FlowMatch" not in (scheduler.declared or scheduler.own):
            return
        side, patch = denoiser.config.get("sample_size"), denoiser.config.get("patch_size", 1)
        shift, dynamic = scheduler.config.get("shift", 1.0), scheduler.config.get("use_dynamic_shifting", False)
        if (
            isinstance(side, int)
            and isinstance(patch, int)
            and (side // patch) ** 2 >= MANY
            and shift == 1.0
            and not dynamic
            and vae
        ):
            yield Sighting(
                "scheduler/scheduler_config.json",
                f"{(side // patch) ** 2:,} tokens and shift 1",
                "set shift to about 3, or use_dynamic_shifting",
            )
