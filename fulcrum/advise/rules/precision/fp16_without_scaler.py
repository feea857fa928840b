"""Rule: training in fp16 without a gradient scaler."""

import ast

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.python_script import Script, dotted, is_constant, keyword

SCALES_ITSELF = r"^(accelerator|accelerate|deepspeed|lightning|fabric|composer|gradscaler|grad_scaler|scaler)$"


class Fp16WithoutScaler(AuditRule):
    id = "fp16-without-scaler"
    family = "precision"
    severity = "error"
    gain = 0.3
    why = "gradients below 6e-8 become zero in fp16, and those of a diffusion model are often that small"
    size = "training stalls or turns into NaN"
    source = "torch.amp documentation"
    fix = "use dtype=torch.bfloat16, or scale: scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"

    def in_script(self, script: Script) -> Sightings:
        if script.mentions(SCALES_ITSELF):
            return
        for call in script.named("autocast"):
            device = call.args[0] if call.args else keyword(call, "device_type")
            own = dotted(call.func).startswith("torch.cuda") or is_constant(device, "cuda")  # whose default is fp16
            given = keyword(call, "dtype") or (call.args[1] if len(call.args) > 1 else None)
            half = script.formats(given) == {"fp16"} if given is not None else own
            if half and not is_constant(keyword(call, "enabled"), False) and _goes_backward(script, call):
                what = "in float16" if given is not None else "without a dtype, which on CUDA means float16"
                yield Sighting(script.at(call), f"torch.autocast {what}, and no GradScaler")


def _goes_backward(script: Script, call: ast.Call) -> bool:
    """Is it around training, not around drawing pictures?"""
    home = script.function(call) or script.tree
    return any(isinstance(node, ast.Call) and dotted(node.func).endswith("backward") for node in ast.walk(home))
