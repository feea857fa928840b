"""Rule: Adam starts at its full learning rate."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.spec.run import RunSpec


class NoWarmup(AuditRule):
    id = "no-warmup"
    family = "schedule"
    severity = "note"
    gain = 0.02
    why = "Adam's first steps have the full size whatever the gradient is, before its moments know anything"
    size = "no number published"
    fix = "warm up over the first one to five percent of the steps: lr_warmup_steps, --set optim.warmup=0.01"

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(^|[._])(lr_)?warmup(_steps|_ratio|_iters|_fraction)?$"):
            starts_over = config.find(r"lora|resume|finetune|network_module|pretrained")
            if entry.number == 0 and not starts_over:
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")

    def in_run(self, run: RunSpec) -> Sightings:
        if run.optim.warmup == 0 and run.start.kind == "fresh":
            yield Sighting("optim.warmup", "no warm-up, from fresh weights", "--set optim.warmup=0.01")
