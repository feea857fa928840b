"""Rule: averaged weights (EMA) are kept in bf16."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import LOW, Script, dotted, source_of
from fulcrum.advise.subjects.stored_tensors import LOW as LOW_STORED
from fulcrum.advise.subjects.stored_tensors import StoredTensors


def _copied(value: ast.DictComp | ast.ListComp) -> str:
    """The network of `{name: weight.clone() for name, weight in net.state_dict().items()}`; none where it is cast."""
    whole = dotted(value.generators[0].iter)
    match = re.match(r"(.+)\.(state_dict|parameters|named_parameters)\(\)", whole)
    text = ast.unparse(value.value if isinstance(value, ast.DictComp) else value.elt)
    return match[1] if match and not re.search(r"float|double|\.to\(|dtype", text) else ""


class AverageInBf16(AuditRule):
    id = "average-in-bf16"
    family = "precision"
    severity = "error"
    also = "warning in checkpoints"
    gain = 0.15
    why = (
        "an average with decay 0.9999 moves by a ten-thousandth of the difference per step; bf16 rounds that to "
        "nothing, and it stays where it began"
    )
    size = "the averaged weights stop following: at worst they are the initial ones"
    source = "arithmetic: bf16 has 8 significant bits"
    fix = "copy the fp32 weights into the average, and keep it in fp32"

    def in_script(self, script: Script) -> Sightings:
        low = {cast.name for cast in script.casts if cast.formats & LOW and cast.formats <= LOW}
        for cast in script.casts:
            if "ema" in cast.name.lower().split("_") + cast.name.lower().split(".") and cast.formats <= LOW:
                yield Sighting(script.at(cast.node), f"the average is stored in low precision: {source_of(cast.node)}")
        for call in script.named(
            "EMAModel", "ModelEmaV2", "ModelEmaV3", "AveragedModel", "ExponentialMovingAverage", "EMA", "deepcopy"
        ):
            first = call.args[0] if call.args else None
            name = dotted(first).replace(".parameters()", "") if first is not None else ""
            if name in low and ("deepcopy" not in dotted(call.func) or "ema" in script.context(call)):
                yield Sighting(script.at(call), f"the average is a copy of `{name}`, which is stored in low precision")
        for average, values in script.assignments.items():
            for value in values if re.search(r"(?i)(^|[._])(ema|shadow)($|[._])", average.replace("_", ".")) else ():
                if isinstance(value, ast.DictComp | ast.ListComp) and (name := _copied(value)) in low:
                    yield Sighting(script.at(value), f"the average is a copy of `{name}`, which is stored in low precision")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(^|[._])ema\w*(\.|_)(\w+_)?dtype$"):
            if entry.text.removeprefix("torch.") in ("bf16", "bfloat16", "fp16", "float16"):
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        words = ("ema", "ema_model", "model_ema", "averaged")
        low = [
            one
            for one in tensors.tensors
            if one.format in LOW_STORED and set(words) & {*one.name.lower().split("."), one.file.stem.lower()}
        ]
        if low:
            yield Sighting(low[0].name, f"{len(low)} tensors of the average are stored in {low[0].format}", "", "warning")
