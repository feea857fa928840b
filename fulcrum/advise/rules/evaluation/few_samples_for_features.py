"""Rule: fewer samples than the metric's features need."""

import re
from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy

WIDTH = 2048  # of Inception's features
NAMES = re.compile(
    r"(fid|eval|metric|frechet|valid)\w*[._](num_|n_|max_)?(samples|images)$|(^|[._])(num|n)_(fid|eval)_(samples|images)$|(^|[._])fid_(num_)?samples$"
)
EXACT = ("frechet", "fid")


class FewSamplesForFeatures(AuditRule):
    id = "few-samples-for-features"
    family = "evaluation"
    gain = 0.4
    why = (
        "a Fréchet distance fits a covariance of 2,048 features: with fewer samples it is singular, and the bias is "
        "larger than what arms differ by"
    )
    size = "below 2,048 samples the number says little; at 10,000 it is still biased, but alike for all arms"
    source = "arXiv:1911.07023"
    fix = "draw at least 10,000 for FID, or use KID or CMMD, which are unbiased at any count"

    def in_script(self, script: Script) -> Sightings:
        for option in script.options:
            if (
                re.search(r"(fid|eval)\w*_(samples|images)$|^num_(fid|eval)_\w+$", option.name)
                and script.mentions(r"fid$|frechet")
                and isinstance(option.default, int)
                and 0 < option.default < WIDTH
            ):
                yield Sighting(script.at(option.node), f"--{option.name} is {option.default:,} by default")

    def in_config(self, config: ConfigFile) -> Sightings:
        if not config.mentions(r"(^|[._\W])(fid|frechet)"):
            return
        for entry in config.entries:
            if NAMES.search(entry.path) and entry.number is not None and 0 < entry.number < WIDTH:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} for a Fréchet distance",
                    f"set {config.setting(entry, 10000)}",
                )

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        plan = study.plan
        if any(word in plan.primary for word in EXACT) and plan.samples < 256:
            yield Sighting("samples", f"{plan.samples} pictures for {plan.primary}", "write: samples = 512 or more")
