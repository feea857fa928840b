"""Rule: latents whose deviation is far from one."""

from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.run import RunSpec

if TYPE_CHECKING:
    from fulcrum.advise.subjects.codec_trial import CodecTrial

LOW, HIGH = 0.6, 1.6


class LatentDeviation(AuditRule):
    id = "latent-deviation"
    family = "tokenizer"
    gain = 0.1
    effort = "edit"
    why = (
        "noise has deviation one: latents of another deviation shift the noise schedule, and what looks like a better"
        " autoencoder may be a better schedule"
    )
    size = "no number published"
    fix = "normalise by the statistics of your own pictures, or shift the times by the deviation: --set flow.noise_scale"

    def in_codec_trial(self, trial: "CodecTrial") -> Sightings:
        if not LOW <= trial.deviation <= HIGH:
            least, most = min(trial.channels), max(trial.channels)
            seen = (
                f"latents of these pictures have a deviation of {trial.deviation:.2f} (channels {least:.2f} to {most:.2f})"
            )
            yield Sighting(
                trial.codec, seen, "set scaling_factor and shift_factor from the statistics of your own pictures"
            )

    def in_run(self, run: RunSpec) -> Sightings:
        if run.encode.codec.stride == 1:  # pixels in [-1, 1] are what they are; recipes for them shift the times
            return
        try:
            deviation = run.encode.codec.deviation(run.data.source)
        except (FulcrumError, OSError):  # a folder that is elsewhere
            return
        scale = run.flow.noise_scale
        if deviation is not None and not LOW * scale <= deviation <= HIGH * scale:
            yield Sighting("encode.codec", f"latents have a deviation of {deviation:g} where the noise has {scale:g}")
