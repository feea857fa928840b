"""Rule: fewer samples than the metric's features need."""

import ast
import re
from typing import TYPE_CHECKING

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, is_constant, keyword, source_of
from fulcrum.advise.subjects.text_limits import constant_of

if TYPE_CHECKING:
    from fulcrum.advise.subjects.planned_study import PlannedStudy

WIDTH = 2048  # of Inception's features
NAMES = re.compile(
    r"(fid|eval|metric|frechet|valid)\w*[._](num_|n_|max_)?(samples|images)$|(^|[._])(num|n)_(fid|eval)_(samples|images)$|(^|[._])fid_(num_)?samples$"
)
EXACT = ("frechet", "fid")


def _counted(script: Script, loop: ast.For | ast.While) -> float | None:
    """The number of samples at which a loop is left: `n += len(images)`, and `if n >= 500: break`."""
    counters = {
        dotted(node.target)
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and re.search(r"^len\(|shape\[0\]|size\(0\)|batch_?size", ast.unparse(node.value))
    }
    for node in ast.walk(loop):
        if isinstance(node, ast.If) and any(isinstance(one, ast.Break | ast.Return) for one in node.body):
            test = node.test
            above = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Gt | ast.GtE)
            if isinstance(test, ast.Compare) and above and dotted(test.left) in counters:
                return constant_of(script, test.comparators[0])
    return None


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
        for update in script.named("update"):
            home = dotted(update.func).rpartition(".")[0]
            frechet = any("FrechetInceptionDistance" in ast.unparse(made) for made in script.assignments.get(home, ()))
            drawn = is_constant(keyword(update, "real"), False)
            for loop in script.loops(update)[:1] if frechet and drawn else ():
                if (most := _counted(script, loop)) is not None and most < WIDTH:
                    yield Sighting(script.at(update), f"{source_of(update)} ends after some {most:,.0f} samples")

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
