"""Rule: the projector of an alignment term is itself stored and trained in bf16."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import LOW, Script, source_of

NAMES = ("projector", "proj_head", "align", "repa")


class ProjectorInBf16(AuditRule):
    id = "projector-in-bf16"
    family = "precision"
    gain = 0.05
    why = "the projector is trained like the model: stored in bf16 it loses small updates, and the term is blamed for it"
    size = "no number published; the study that warned of bf16 storage had this fault itself"
    source = "docs/published.md, A17"
    published = "A17"
    fix = "keep the projector in fp32 and cast what it is given: projector(h.float())"

    def in_script(self, script: Script) -> Sightings:
        for cast in script.casts:
            if cast.formats & LOW and any(name in cast.name.lower() for name in NAMES) and not _is_tensor(cast.name):
                yield Sighting(script.at(cast.node), f"`{cast.name}` is stored in low precision: {source_of(cast.node)}")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"projector\w*(\.|_)(\w+_)?dtype$"):
            if entry.text.removeprefix("torch.") in ("bf16", "bfloat16", "fp16", "float16"):
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}", f"set {config.setting(entry, 'fp32')}")


def _is_tensor(name: str) -> bool:
    """`aligned`, `repa_target`: what a projector gives, not what it is."""
    return any(word in name.lower() for word in ("target", "feature", "loss", "token", "aligned", "weight", "states"))
