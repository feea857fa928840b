"""Rule: the pictures that a metric compares with were trained on."""

import re
from collections import Counter

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import CaptionSet
from fulcrum.advise.subjects.config_file import ConfigFile

PATH = re.compile(r"(^|[._])(path|dir|folder|root|data_dir|dataset|name|local|remote)$")


class ReferenceInTraining(AuditRule):
    id = "reference-in-training"
    family = "evaluation"
    severity = "error"
    gain = 0.5
    effort = "edit"
    why = "a model that repeats its training pictures then has the best score of all"
    size = "memorising is rewarded"
    source = "arithmetic: a distance to what was learned by heart is zero"
    fix = "hold pictures out before training: fulcrum data import --hold-out 0.05 --group FIELD"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        trained = Counter(one.sha for one in captions.samples if one.split in ("train", ""))
        held = [one for one in captions.samples if one.split in ("validation", "reference") and one.sha in trained]
        if held:
            yield Sighting(held[0].name, f"{len(held):,} held-out pictures are also in the training split, bit for bit")

    def in_config(self, config: ConfigFile) -> Sightings:
        paths = [
            entry
            for entry in config.entries
            if isinstance(entry.value, str) and PATH.search(entry.path) and "/" in entry.value
        ]
        reference = [entry for entry in paths if re.search(r"reference|fid|real_images|eval", entry.path)]
        trained = {entry.value.rstrip("/"): entry for entry in paths if "train" in entry.path}
        for entry in reference:
            if entry.value.rstrip("/") in trained and "train" not in entry.path:
                yield Sighting(
                    config.at(entry), f"{entry.path} and {trained[entry.value.rstrip('/')].path} are both {entry.value}"
                )
