"""Rule: Adam's eps is large enough to decide the step."""

import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, keyword, number
from fulcrum.spec.run import RunSpec

LARGEST = 1e-6


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class AdamEpsLarge(AuditRule):
    id = "adam-eps-large"
    family = "schedule"
    gain = 0.05
    why = (
        "where the root of the second moment is below eps, Adam is plain gradient descent with a tiny rate; gradients"
        " of large diffusion models are that small"
    )
    size = "no number published; the published Muon arm moved it as well (A8)"
    source = "docs/published.md, A8"
    fix = "eps=1e-8 or smaller: the published baseline has 1e-15"

    def in_script(self, script: Script) -> Sightings:
        for call in script.optimizers:
            eps = number(keyword(call, "eps"))
            if eps is not None and eps >= LARGEST and "adam" in dotted(call.func).lower():
                yield Sighting(script.at(call), f"{dotted(call.func)} has eps={eps:g}")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(optim\w*|adam\w*)[._](\w+[._])?eps(ilon)?$|^adam_epsilon$"):
            if entry.number is not None and entry.number >= LARGEST:
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}", f"set {entry.leaf} to 1e-8 or smaller")

        for entry in config.find(r"(^|[._])optimizer_args$"):  # kohya's: a list of texts
            eps = re.search(r"\beps\s*=\s*([-+.\deE]+)", str(entry.value))
            kind = config.first(r"(^|[._])optimizer(_type)?$")
            if eps and kind is not None and "adam" in kind.text and (_number(eps[1]) or 0.0) >= LARGEST:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} with {kind.value}",
                    f"write eps=1e-8 or smaller in {entry.leaf}",
                )

    def in_run(self, run: RunSpec) -> Sightings:
        eps = getattr(run.optim.rule, "eps", 0.0)
        if eps >= LARGEST:
            yield Sighting("optim.rule.eps", f"eps is {eps:g}", "--set optim.rule.eps=1e-15")
