"""Rule: the timestep or noise level in bf16."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import LOW, Script, dotted, keyword, source_of
from fulcrum.advise.subjects.step_trace import StepTrace
from fulcrum.spec.run import RunSpec

NAME = re.compile(r"^(t|time|times|timesteps?|sigmas?|noise_levels?)$")
MAKES = re.compile(r"(^|_)(sigmas?|timesteps?)$")


class TimeInBf16(AuditRule):
    id = "time-in-bf16"
    family = "precision"
    gain = 0.08
    why = (
        "near 1 bf16 holds only every 256th: the network is told another time than the noise was mixed at, most of "
        "all where pictures take shape"
    )
    size = "times near 1 are off by up to 1/512; no number published"
    source = "docs/published.md, A18"
    lever = "bf16_op(op=time)"
    fix = "keep t and sigma in fp32 to the time embedding, mix x_t in fp32, and cast only what goes into the products"

    def in_script(self, script: Script) -> Sightings:
        noisy = script.mentions(r"timestep|sigma|noise|diffusion|flow_match")  # elsewhere `t` is any tensor
        for cast in script.casts if noisy else ():
            anything = any(isinstance(one, ast.Lambda) for one in script.around(cast.node))  # lambda t: t.half()
            if NAME.match(cast.name.lower().rpartition(".")[2]) and cast.formats & LOW and not anything:
                yield Sighting(
                    script.at(cast.node),
                    f"{source_of(cast.node)} rounds the time to {' or '.join(sorted(cast.formats & LOW))}",
                )
        for call in script.calls:
            end = dotted(call.func).rpartition(".")[2].lower()
            formats = script.formats(keyword(call, "dtype"))
            if MAKES.search(end) and formats & LOW:
                yield Sighting(
                    script.at(call), f"{source_of(call)} gives noise levels in {' or '.join(sorted(formats & LOW))}"
                )

    def in_run(self, run: RunSpec) -> Sightings:
        if run.precision.time == "bf16":
            yield Sighting("precision.time", "the denoiser is told the time in bf16", "--set precision.time=fp32")

    def in_step(self, step: StepTrace) -> Sightings:
        for operation in step.of("time"):
            if operation.low:
                yield Sighting(operation.place, f"the time went through {operation.operation} as {operation.formats}")
