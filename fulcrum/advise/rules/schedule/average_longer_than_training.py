"""Rule: an average of the weights that remembers longer than the training lasts."""

import ast
from math import log

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.hand_made_average import hand_made
from fulcrum.advise.subjects.python_script import Script, keyword
from fulcrum.advise.subjects.text_limits import constant_of
from fulcrum.advise.subjects.training_loop import trained_steps
from fulcrum.spec.run import RunSpec

SHARE = 0.3  # of the training, that a half-life may take


class AverageLongerThanTraining(AuditRule):
    id = "average-longer-than-training"
    family = "schedule"
    severity = "error"
    gain = 0.3
    why = (
        "a fixed decay belongs to a number of steps: 0.9999 halves in 6,931 updates, and in a short training the "
        "average is still the initial weights"
    )
    size = "EMA 0.999 every 10 steps is 90 % initialisation after 1,000 steps"
    source = "arithmetic"
    lever = "ema"
    fix = "choose the decay by its half-life: 0.5 ** (1 / (0.07 * steps)), or warm it up: EMAModel(use_ema_warmup=True)"

    def in_script(self, script: Script) -> Sightings:
        steps = trained_steps(script)
        for call in script.named("EMAModel", "ExponentialMovingAverage", "EMA") if steps else ():
            given = keyword(call, "decay")
            decay = None if given is None else constant_of(script, given)
            warmed = keyword(call, "use_ema_warmup", "inv_gamma", "update_after_step") is not None
            if not warmed:
                yield from _too_long(script, call, decay, steps)
        for call, decay in hand_made(script) if steps else ():
            yield from _too_long(script, call, decay, steps)

    def in_config(self, config: ConfigFile) -> Sightings:
        decay = config.first(r"(^|[._])ema\w*[._]?(decay|smoothing|beta)$")
        steps = config.batches(r"(^|[._])(max_train_steps|max_steps|total_steps|train_steps|max_duration|num_steps)$")
        every = config.batches(r"(^|[._])ema\w*[._](update_)?(interval|every|update_every)$") or 1.0
        warmed = any(not entry.off for entry in config.find(r"(^|[._])ema.*warmup"))
        if (
            decay
            and decay.number
            and steps
            and 0 < decay.number < 1
            and not warmed
            and _half_life(decay.number) * every > SHARE * steps
        ):
            yield Sighting(
                config.at(decay),
                f"{decay.path} = {decay.value} halves in {_half_life(decay.number) * every:,.0f} of {steps:,.0f} steps",
            )

    def in_run(self, run: RunSpec) -> Sightings:
        half_life = getattr(run.average, "half_life", 0.0)
        if half_life > SHARE:
            yield Sighting(
                "average.half_life", f"the average halves in {half_life:.0%} of the budget", "--set average.half_life=0.07"
            )


def _too_long(script: Script, call: ast.Call, decay: float | None, steps: float | None) -> Sightings:
    if decay and steps and _half_life(decay) > SHARE * steps:
        updates = 0.07 * steps
        yield Sighting(
            script.at(call),
            f"decay {decay:g} halves in {_half_life(decay):,.0f} updates, and the training has {steps:,.0f} steps as "
            f"written",
            f"a decay of {0.5 ** (1 / updates):.4g} halves in {updates:,.0f} of {steps:,.0f} steps; or warm it up",
        )


def _half_life(decay: float) -> float:
    return log(0.5) / log(decay) if 0 < decay < 1 else 0.0
