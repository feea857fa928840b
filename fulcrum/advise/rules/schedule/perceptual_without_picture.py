"""Rule: a perceptual loss without a predicted picture."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile

PICTURES = ("x", "x0", "x_0", "sample", "x_prediction", "x-prediction", "original_sample", "data", "image")


class PerceptualWithoutPicture(AuditRule):
    id = "perceptual-without-picture"
    family = "schedule"
    severity = "error"
    gain = 1.0
    why = (
        "LPIPS and feature losses compare pictures: a velocity or a noise is none, and the released code stopped at "
        "the first step"
    )
    size = "the training cannot run as it is written, or compares noise"
    source = "docs/published.md, A13"
    published = "A13"
    fix = "predict the picture (prediction_type: sample), or turn the prediction into one before the loss"

    def in_config(self, config: ConfigFile) -> Sightings:
        predicts = config.first(r"(^|[._])(prediction(_type)?|predict|parameteri[sz]ation|objective|target)$")
        for entry in config.find(r"(lpips|perceptual)\w*([._](weight|coeff|lambda|enabled))?$"):
            if (
                (entry.on or (entry.number or 0) > 0)
                and predicts
                and isinstance(predicts.value, str)
                and predicts.text not in PICTURES
            ):
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value} with {predicts.path} = {predicts.value}")
