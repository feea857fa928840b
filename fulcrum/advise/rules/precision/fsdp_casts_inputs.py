"""Rule: FSDP's mixed precision casts the timestep and the rotary table at the door of a block."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import LOW, Script, is_constant, keyword, source_of

TIMES = (
    r"^(timesteps?|sigmas?|t_emb|temb|rope|rotary\w*|freqs_cis|time_embed\w*|noise_scheduler|flow_match\w*|diffusion\w*)$"
)


class FsdpCastsInputs(AuditRule):
    id = "fsdp-casts-inputs"
    family = "precision"
    severity = "error"
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
            switch = (
                "cast_forward_inputs"
                if script_name(source_of(call)) == "MixedPrecisionPolicy"
                else "cast_root_forward_inputs"
            )
            dtype = keyword(call, "param_dtype") or (call.args[0] if call.args else None)
            if script.formats(dtype) & LOW and not is_constant(keyword(call, switch), False):
                yield Sighting(
                    script.at(call), f"{source_of(call)} leaves {switch} at its default, True", f"add {switch}=False"
                )

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


def script_name(call: str) -> str:
    return call.partition("(")[0].rpartition(".")[2]
