"""Rule: a gradient scaler with bf16."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, is_constant, keyword


class GradScalerWithBf16(AuditRule):
    id = "grad-scaler-with-bf16"
    family = "precision"
    severity = "note"
    gain = 0.01
    why = (
        "bf16 has the range of fp32, so nothing underflows: the scaler only adds skipped steps and a state that a "
        "resume must not forget"
    )
    size = "no quality; steps that are skipped for nothing"
    source = "torch.amp documentation: scaling is for float16"
    fix = "remove the GradScaler, or give it enabled=(dtype == torch.float16)"

    def in_script(self, script: Script) -> Sightings:
        formats = {
            one
            for call in script.named("autocast")
            for one in script.formats(keyword(call, "dtype") or (call.args[1] if len(call.args) > 1 else None))
        }
        if formats != {"bf16"}:
            return
        for call in script.named("GradScaler"):
            enabled = keyword(call, "enabled")
            if enabled is None or is_constant(enabled, True):
                yield Sighting(script.at(call), "a GradScaler beside torch.autocast in bfloat16")

    def in_config(self, config: ConfigFile) -> Sightings:
        bf16 = any("bf16" in entry.text or "bfloat16" in entry.text for entry in config.find(r"precision|dtype|amp"))
        for entry in config.find(r"(^|[._])(use_)?grad(ient)?_scal(er|ing)(\.enabled)?$"):
            if entry.on and bf16:
                yield Sighting(
                    config.at(entry), f"{entry.path} = {entry.value} beside bf16", f"set {config.setting(entry, False)}"
                )
