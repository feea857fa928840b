"""Rule: FSDP's mixed precision casts the timestep and the rotary table at the door of a block."""

import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import LOW, Script, dotted, is_constant, keyword, source_of

TIMES = (
    r"^(timesteps?|sigmas?|t_emb|temb|rope|rotary\w*|freqs_cis|time_embed\w*|time_in|noise_scheduler|flow_match\w*|diffusion\w*"
    r"|flux\w*|double_blocks|unet\w*|dit|latents?)$"
)
READS_WORDS = re.compile(r"encoder|t5|clip|text")  # whole numbers are not cast


class FsdpCastsInputs(AuditRule):
    id = "fsdp-casts-inputs"
    family = "precision"
    severity = "error"
    also = "warning where the dtype is not known"
    gain = 0.1
    why = (
        "a policy with param_dtype=bf16 casts every floating input of the wrapped module, the time and the rotary "
        "table included: near 1 a time is rounded to 1/256"
    )
    size = "no number published"
    source = "docs/published.md, A18"
    published = "A18"
    fix = "MixedPrecisionPolicy(param_dtype=torch.bfloat16, cast_forward_inputs=False), and cast at the linears"

    def in_script(self, script: Script) -> Sightings:
        if not script.mentions(TIMES):
            return  # a language model's inputs are whole numbers, which are not cast
        for call in script.named("MixedPrecisionPolicy", "MixedPrecision"):
            own = dotted(call.func).rpartition(".")[2]
            switch = "cast_forward_inputs" if own == "MixedPrecisionPolicy" else "cast_root_forward_inputs"
            dtype = keyword(call, "param_dtype") or (call.args[0] if call.args else None)
            formats = script.formats(dtype)
            if dtype is None or formats == {"fp32"} or is_constant(keyword(call, switch), False):
                continue
            if not READS_WORDS.search(script.context(call)):
                seen = f"{source_of(call)} leaves {switch} at True"
                yield Sighting(script.at(call), seen, f"add {switch}=False", None if formats & LOW else "warning")

    def in_config(self, config: ConfigFile) -> Sightings:
        low = [
            entry
            for entry in config.find(r"fsdp.*(param_dtype|mixed_precision)(\.param_dtype)?$")
            if entry.text.removeprefix("torch.") in ("bf16", "bfloat16", "fp16", "default", "pure")
        ]
        kept = any(entry.off for entry in config.find(r"fsdp.*cast_(root_)?forward_inputs$"))
        if low and not kept:
            yield Sighting(
                config.at(low[0]),
                f"{low[0].path} = {low[0].value}, and no cast_forward_inputs: false",
                "add cast_forward_inputs: false",
            )
