"""Rule: arms write into one folder."""

import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import OUTPUTS, ConfigFamily
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.config_sweep import names_in, swept_names

LOGS = re.compile(r"(^|[._])(logs?|logging)($|[._])")


class OutputsShared(AuditRule):
    id = "outputs-shared"
    family = "design"
    severity = "error"
    gain = 1.0
    why = "arms or jobs of a sweep that write into one folder overwrite each other's checkpoints, and go on from them"
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
                if shared and not LOGS.search(path):
                    overwrites = any("overwrite" in name and str(on).lower() == "true" for name, on in arm.values.items())
                    also = ", and overwriting is allowed" if overwrites else ""
                    yield Sighting(
                        arm.at(path),
                        f"the arm writes to {path} = {value!r}, as the baseline does{also}",
                    )

    def in_config(self, config: ConfigFile) -> Sightings:
        """A sweep: one file, many jobs. Its folder must name, directly or through other values, what tells jobs apart."""
        swept = swept_names(config)
        for entry in config.find(OUTPUTS.pattern) if swept else ():
            names = names_in(config, entry)
            if names is None or entry.path.startswith("hydra.") or LOGS.search(entry.path):
                continue
            missing = [one for one in swept if not any(name == one or name.startswith(f"{one}.") for name in names)]
            if missing:
                resume = next((one for one in config.find(r"resume") if not one.off), None)
                also = f"; {resume.path} = {resume.value} goes on from another job's weights" if resume else ""
                yield Sighting(
                    config.at(entry),
                    f"jobs of the sweep that differ in {', '.join(missing)} write to {entry.path} = {entry.value!r}{also}",
                    f"name what is swept in the folder: {entry.value}/{'/'.join('${' + one + '}' for one in missing)}",
                )
