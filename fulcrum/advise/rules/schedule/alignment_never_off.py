"""Rule: alignment with a teacher is never switched off."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.spec.run import RunSpec

LONG = 200_000  # steps after which the published study says to switch it off


class AlignmentNeverOff(AuditRule):
    id = "alignment-never-off"
    family = "schedule"
    severity = "note"
    gain = 0.05
    why = "a teacher helps while the denoiser learns what pictures are, and holds it back once it knows better"
    size = (
        "said without a number: off after about 200,000 steps; others stop after a tenth of the training. Told of "
        "trainings beyond 200,000 steps only"
    )
    source = "PRX Part 2; arXiv:2505.16792 (HASTE)"
    lever = "repa"
    fix = "repa(until=0.5), or a stage without the term"

    def in_run(self, run: RunSpec) -> Sightings:
        steps = run.budget.images / run.budget.batch
        for term in run.terms:
            if (
                term.kind == "alignment"
                and getattr(term, "until", 1.0) >= 1.0
                and getattr(term, "schedule", "") != "cosine"
                and steps > LONG
            ):
                yield Sighting(
                    f"terms.{term.name}",
                    f"alignment stays on for all {steps:,.0f} steps",
                    f"--set terms.{term.name}.until=0.5",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        weight = config.first(r"(repa|align\w*|proj)[._](\w+_)?(weight|coeff|lambda|coef)$")
        steps = config.batches(r"(^|[._])(max_train_steps|max_steps|total_steps|train_steps|max_duration)$")
        ends = config.find(r"(repa|align\w*|proj).*(until|end|stop|off|schedule|decay|early_stop)")
        if weight and weight.number and steps and steps > LONG and not ends:
            yield Sighting(config.at(weight), f"{weight.path} = {weight.value} for all {steps:,.0f} steps")
