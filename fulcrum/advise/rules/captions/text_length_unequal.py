"""Rule: texts are cut or padded to one length in training, and to another where pictures are judged."""

from collections.abc import Sequence

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script
from fulcrum.advise.subjects.text_limits import TextLimit, limits_in_config, limits_in_script


class TextLengthUnequal(AuditRule):
    id = "text-length-unequal"
    family = "captions"
    gain = 0.1
    why = (
        "padding takes part in joint attention where it is not masked, and a longer limit lets words through that "
        "training has cut off: pictures are judged under texts of a shape that was never trained on"
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
            if limit.reader == reader and limit.judged and all(limit.tokens != one.tokens for one in trained)
        ]
        if trained and unlike:
            yield Sighting(
                unlike[0].place,
                f"{unlike[0].seen} reads {unlike[0].tokens:g} tokens where pictures are judged, and training reads "
                f"{trained[0].tokens:g} ({trained[0].seen}, line {trained[0].place})",
            )
