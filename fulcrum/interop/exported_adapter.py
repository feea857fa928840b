"""What learned beside a run's denoiser, as the folder of a LoRA adapter that peft puts beside the same layers of diffusers.

peft reads adapter_config.json and the tensors; loaders of diffusers, in classes that have them, take the tensors with their
prefix and find the config in the file's metadata.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from fulcrum.files.atomic import atomic_path, write_atomic
from fulcrum.model.adapter import BESIDE, is_beside
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec

ADAPTER_CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model"  # of every name in a file of peft's
IN_FILE = "lora_adapter_metadata"  # where diffusers looks for the config
PARTS = {"down": "lora_A", "up": "lora_B"}


def require_adapter(run: RunSpec) -> None:
    """Refuse a run whose pictures an adapter alone would not change into what they are."""
    if run.model.learned.kind != "low_rank":
        raise BadInput("this run has no adapter: it was trained without lora", "leave --adapter out to export it whole")
    if run.encode.codec.trained:
        raise BadInput(
            "the codec of this run was trained too, and no adapter holds it", "leave --adapter out: the whole is exported"
        )


def base_of(run: RunSpec) -> str:
    """What the adapter stands beside, in words."""
    start: Any = run.start
    if start.kind == "trunk":
        return f"the run {start.run} (fulcrum export {start.run[:8]} base), whose weights are {start.weights_sha256[:16]}"
    return f"the pipeline {Path(start.path).name}" if start.kind == "diffusers" else f"the start '{start.kind}'"


def base_line(run: RunSpec) -> str:
    """Python that names the pipeline to put it beside: as it was called where it was trained, or to be filled in."""
    start: Any = run.start
    if start.kind == "trunk":
        return f'base = "FOLDER"  # change this: the folder that `fulcrum export {start.run[:8]} FOLDER` writes'
    path = getattr(start, "path", "")
    name = path.removeprefix("hub:") if path.startswith("hub:") else Path(path).name or "FOLDER"
    text = json.dumps(name).replace("`", "\\u0060")  # a name cannot end the card's block of code
    what = "what it was trained beside"
    return f"base = {text}  # " + (what if path.startswith("hub:") else f"change this to where the pipeline lies: {what}")


def export_adapter(weights: Mapping[str, Tensor], run: RunSpec, folder: Path) -> None:
    """Write the config and the tensors, from weights as a run keeps them: not merged."""
    learned: Any = run.model.learned
    layers = [name.removesuffix(f"{BESIDE}down") for name in weights if name.endswith(f"{BESIDE}down")]
    config = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": learned.rank,
        "lora_alpha": learned.alpha or learned.rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "target_modules": sorted(layers),  # whole names: peft would take a part for every layer that ends with it
    }
    tensors = {}
    for name, value in weights.items():
        layer, _, part = name.partition(BESIDE)
        if is_beside(name) and part in PARTS:
            tensors[f"{PREFIX}.{layer}.{PARTS[part]}.weight"] = value.detach().float().cpu().contiguous()
    told = {f"{PREFIX}.{name}": config[name] for name in ("r", "lora_alpha", "lora_dropout", "bias", "target_modules")}
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder / TENSORS) as aside:
        save_file(tensors, aside, metadata={"format": "pt", IN_FILE: json.dumps(told, sort_keys=True)})
    write_atomic(folder / ADAPTER_CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")
