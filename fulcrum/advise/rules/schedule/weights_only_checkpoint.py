"""Rule: checkpoints hold weights only, so a training that stops cannot go on."""

import ast

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, source_of

SAVES = ("torch.save", "save_file", "save_pretrained", "save_model")
WHOLE = (
    "save_state",
    "save_checkpoint",
    "dcp.save",
    "async_save",
    "Trainer",
    "Checkpointer",
    "CheckpointManager",
    "ModelCheckpoint",
)


class WeightsOnlyCheckpoint(AuditRule):
    id = "weights-only-checkpoint"
    family = "schedule"
    gain = 0.1
    effort = "edit"
    why = (
        "without the optimizer's moments, the position in the data and the random state, a resume is another "
        "training: its loss jumps, or it begins anew"
    )
    size = "a training that is stopped is lost"
    source = "docs/published.md, A6"
    published = "A6"
    fix = (
        "save model, optimizer, schedule, step and random state together (accelerator.save_state does), and resume "
        "from the newest by itself"
    )

    def in_script(self, script: Script) -> Sightings:
        if not script.trains or script.named(*WHOLE) or script.mentions("deepspeed|lightning"):
            return
        if any(_is_optimizer_state(script, call) for call in script.named("state_dict")) or script.mentions(
            "optimizer_state|optim_state|get_state_dict"
        ):
            return
        inside = [call for call in script.named(*SAVES) if script.loops(call) and not _is_picture(call)]
        if inside:
            yield Sighting(
                script.at(inside[0]), f"{source_of(inside[0])} while it trains, and no optimizer state is saved anywhere"
            )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(^|[._])(save_)?weights_only$|(^|[._])save_optimizer(_state)?$"):
            if entry.off if "optimizer" in entry.leaf else entry.on:
                resume = config.first(r"auto_?resume")
                also = " and nothing resumes by itself" if resume is None or resume.off else ""
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}{also}")


def _is_optimizer_state(script: Script, call: ast.Call) -> bool:
    """By its name, or because what it is called on was made as an optimizer."""
    name = dotted(call.func).rpartition(".")[0]
    return "opt" in name.lower() or any(value in script.optimizers for value in script.assignments.get(name, ()))


def _is_picture(call: ast.Call) -> bool:
    return any(word in ast.unparse(call).lower() for word in ("latents", "embeds", "samples", "image"))
