"""Rule: arms write into one folder."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import OUTPUTS, ConfigFamily


class OutputsShared(AuditRule):
    id = "outputs-shared"
    family = "design"
    severity = "error"
    gain = 1.0
    why = "arms that inherit the baseline's folder overwrite its checkpoints, and each other's"
    size = "18 of 29 published arms destroy the baseline"
    source = "docs/published.md, A5"
    published = "A5"
    fix = "put the arm's name into the folder: save_folder: out/${run_name}, and forbid overwriting"

    def in_family(self, family: ConfigFamily) -> Sightings:
        former = {
            path: value for path, value in family.baseline.values.items() if OUTPUTS.search(path) and isinstance(value, str)
        }
        for arm in family.arms:
            for path, value in former.items():
                shared = arm.values.get(path) == value and "{" not in value
                logs = "log" in path.rpartition(".")[2]
                if shared and not logs:
                    overwrites = any("overwrite" in name and str(on).lower() == "true" for name, on in arm.values.items())
                    also = ", and overwriting is allowed" if overwrites else ""
                    yield Sighting(
                        f"{arm.config.path.name}:{arm.line(path)}",
                        f"the arm writes to {path} = {value!r}, as the baseline does{also}",
                    )
