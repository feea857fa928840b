"""Rule: the latents' scale is typed in, and is another autoencoder's."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script

# scale -> whose it is; names that have another one
SCALES = {0.18215: "Stable Diffusion 1 and 2", 0.13025: "SDXL", 0.3611: "FLUX.1", 1.5305: "Stable Diffusion 3"}
FAMILIES = (
    (re.compile(r"(?i)flux[._-]?1|flux-?(dev|schnell)"), 0.3611),
    (re.compile(r"(?i)sdxl|stable-diffusion-xl"), 0.13025),
    (re.compile(r"(?i)stable-diffusion-(3|v3)|sd3"), 1.5305),
)


class LatentScaleTyped(AuditRule):
    id = "latent-scale-typed"
    family = "tokenizer"
    severity = "error"
    gain = 0.2
    why = (
        "the denoiser expects latents of deviation about one; with another's scale they have twice or half of it, and"
        " the noise schedule is another"
    )
    size = "a shifted noise schedule; no number published"
    source = "the configurations of the autoencoders"
    fix = "latents = (latents - vae.config.shift_factor) * vae.config.scaling_factor"

    def in_script(self, script: Script) -> Sightings:
        texts = [
            node.value
            for node in script.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200
        ]
        own = {scale for pattern, scale in FAMILIES for text in texts if pattern.search(text)}
        typed = {node.value for node in script.nodes if isinstance(node, ast.Constant) and node.value in SCALES}
        for node in script.nodes if len(typed) == 1 else ():  # a table of several knows whose is whose
            value = node.value if isinstance(node, ast.Constant) and isinstance(node.value, float) else None
            if value in SCALES and own and value not in own:
                yield Sighting(
                    script.at(node), f"{value} is the scale of {SCALES[value]}, and the script loads another autoencoder"
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        texts = [entry.text for entry in config.entries if isinstance(entry.value, str)]
        own = {scale for pattern, scale in FAMILIES for text in texts if pattern.search(text)}
        for entry in config.find(r"scal(e|ing)_factor$|latent_scale$"):
            if entry.number in SCALES and own and entry.number not in own:
                yield Sighting(
                    config.at(entry), f"{entry.path} = {entry.value} is the scale of {SCALES[entry.number or 0]}"
                )
