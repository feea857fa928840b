"""Rule: the autoencoder loses what the pictures show."""

from statistics import median
from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings

if TYPE_CHECKING:
    from fulcrum.advise.subjects.codec_trial import CodecTrial

POOR = 25.0  # dB; Stable Diffusion 1's autoencoder reaches about that on photographs of 256 px, newer ones 30 and more


class ReconstructionPoor(AuditRule):
    id = "reconstruction-poor"
    family = "tokenizer"
    gain = 0.3
    effort = "rework"
    why = "what the autoencoder cannot give back, no denoiser can draw: fine text, faces and patterns first"
    size = "FID 18.2 with FLUX.1's autoencoder, 12.1 with FLUX.2's (loaded through another class: A20)"
    source = "PRX Part 2"
    lever = "flux2_codec"
    fix = "take an autoencoder with more channels, tune its decoder on pictures of yours, or train in pixels"

    def in_codec_trial(self, trial: "CodecTrial") -> Sightings:
        middle = median(trial.psnr)
        if middle < POOR:
            worst = min(range(len(trial.psnr)), key=lambda row: trial.psnr[row])
            yield Sighting(
                trial.names[worst],
                f"half of {len(trial.psnr)} pictures come back with {middle:.1f} dB or less, this one with "
                f"{trial.psnr[worst]:.1f}",
            )
