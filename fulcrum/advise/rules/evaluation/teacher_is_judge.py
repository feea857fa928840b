"""Rule: the teacher and the judge are of one family."""

import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile

FAMILIES = ("dino", "clip", "siglip", "inception")


class TeacherIsJudge(AuditRule):
    id = "teacher-is-judge"
    family = "evaluation"
    severity = "note"
    gain = 0.1
    effort = "edit"
    why = (
        "a model that was drawn towards a network's features is then judged by the same features: it gains there more"
        " than pictures do"
    )
    size = "published: REPA with DINOv3 gains 23 % on DINO-MMD, 15 % on CMMD, 20 % on FID"
    source = "PRX Part 2"
    fix = "judge by a network of another family as well, and let that one decide"

    def in_config(self, config: ConfigFile) -> Sightings:
        teachers = [entry for entry in config.find(r"teacher|repa|align") if isinstance(entry.value, str)]
        judges = [entry for entry in config.find(r"metric|eval|judge|fid|mmd") if entry not in teachers]
        for teacher in teachers:
            name = next((one for one in FAMILIES if one in teacher.text), "")
            for judge in judges if name else ():
                others = [
                    other
                    for other in judges
                    if not re.search(name, f"{other.path} {other.text}")
                    and re.search(r"fid|inception|clip|cmmd|kid", f"{other.path} {other.text}")
                ]
                if re.search(name, f"{judge.path} {judge.text}") and not others:
                    yield Sighting(
                        config.at(judge), f"{teacher.path} = {teacher.value}, and {judge.path} is the only judge"
                    )
                    return
