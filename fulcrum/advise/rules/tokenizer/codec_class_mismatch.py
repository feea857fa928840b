"""Rule: an autoencoder is loaded through another one's class."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.model_folder import ModelFolder
from fulcrum.advise.subjects.python_script import Script, dotted, source_of
from fulcrum.advise.subjects.stored_tensors import matching

# What a repository or folder is called -> the class that reads it.
OWN = (
    (re.compile(r"(?i)flux[._-]?2"), "AutoencoderKLFlux2"),
    (re.compile(r"(?i)dc-?ae"), "AutoencoderDC"),
    (re.compile(r"(?i)qwen-?image"), "AutoencoderKLQwenImage"),
)
CLASSES = ("AutoencoderKL", "AutoencoderKLFlux2", "AutoencoderDC", "AutoencoderKLQwenImage", "AutoencoderTiny")


class CodecClassMismatch(AuditRule):
    id = "codec-class-mismatch"
    family = "tokenizer"
    severity = "error"
    gain = 0.4
    why = (
        "another class reads the tensors it knows and drops the rest, the batch-norm statistics for one: the latents "
        "are of another space"
    )
    size = "the published FLUX.2 arm (FID 12.1 against 18.2) is of such a space"
    source = "docs/published.md, A20"
    published = "A20"
    lever = "flux2_codec"
    fix = (
        "load it through its own class: AutoencoderKLFlux2 for FLUX.2, AutoencoderDC for DC-AE; or "
        "AutoModel.from_pretrained"
    )

    def in_script(self, script: Script) -> Sightings:
        for call in script.named(*(f"{name}.from_pretrained" for name in CLASSES)):
            used = dotted(call.func).split(".")[-2]
            for text in _texts(script, call):
                wanted = _own(text)
                if wanted and wanted != used and used != "AutoencoderTiny":
                    yield Sighting(script.at(call), f"{source_of(call)} reads {text!r}", f"use {wanted}.from_pretrained")
                    break

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.entries:
            if entry.value not in CLASSES or entry.value == "AutoencoderTiny":
                continue
            folder = entry.path.rpartition(".")[0]
            for other in config.entries:
                wanted = (
                    _own(other.text) if other.path.rpartition(".")[0] == folder and isinstance(other.value, str) else ""
                )
                if wanted and wanted != entry.value and other is not entry and other.value not in CLASSES:
                    yield Sighting(
                        config.at(entry),
                        f"{entry.path} = {entry.value} reads {other.path} = {other.value}",
                        f"set {config.setting(entry, wanted)}",
                    )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        for part in folder.parts:
            if part.declared and part.own and part.declared != part.own and part.name == "vae":
                yield Sighting(
                    part.name,
                    f"model_index.json loads it as {part.declared}, its own config.json says {part.own}",
                    f"write {part.own} into model_index.json",
                )
            used = part.declared or part.own
            norms = matching(part.tensors.tensors, "bn.running_mean")
            if used == "AutoencoderKL" and norms:
                yield Sighting(
                    part.name or "vae",
                    f"{norms[0].name} is there, and AutoencoderKL has no place for it",
                    "load it as AutoencoderKLFlux2",
                )


def _texts(script: Script, call: ast.Call) -> list[str]:
    parts = [
        part for argument in (*call.args, *(one.value for one in call.keywords)) for part in script.meanings(argument, 2)
    ]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def _own(text: str) -> str:
    return next((name for pattern, name in OWN if pattern.search(text)), "")
