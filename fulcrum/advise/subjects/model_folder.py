"""A pipeline or a single model in diffusers' format: its parts, their classes, configurations and stored tensors."""

from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.advise.subjects.stored_tensors import StoredTensors, json_of, read_tensors_of

INDEX, CONFIG = "model_index.json", "config.json"
TRAINED = ("", "transformer", "transformer_2", "unet", "prior", "decoder")  # parts; the others are frozen as a rule
CONFIGS = (CONFIG, "scheduler_config.json", "tokenizer_config.json")


class ModelPart(NamedTuple):
    name: str  # vae, transformer; empty of a single model
    declared: str  # the class that the pipeline's index names
    own: str  # the class that its own configuration names
    config: dict[str, Any]
    tensors: StoredTensors


class ModelFolder(NamedTuple):
    path: Path
    pipeline: str  # the pipeline's class; empty of a single model
    parts: list[ModelPart]

    def part(self, *names: str) -> ModelPart | None:
        return next((one for one in self.parts if one.name in names), None)


def is_model_folder(folder: Path) -> bool:
    return (folder / INDEX).is_file() or ((folder / CONFIG).is_file() and bool(_class(json_of(folder / CONFIG))))


def read_model_folder(folder: Path, values: int = 0, rate: float | None = None) -> ModelFolder:
    index = json_of(folder / INDEX)
    if not index:
        return ModelFolder(folder, "", [_part(folder, "", "", values, rate)])
    parts = [
        _part(folder / name, name, str(known[1]), values, rate)
        for name, known in index.items()
        if isinstance(known, list) and len(known) == 2 and known[1] and (folder / name).is_dir()
    ]
    return ModelFolder(folder, str(index.get("_class_name", "")), parts)


def _part(folder: Path, name: str, declared: str, values: int, rate: float | None) -> ModelPart:
    config = next((found for file in CONFIGS if (found := json_of(folder / file))), {})
    return ModelPart(name, declared, _class(config), config, read_tensors_of(folder, values, rate))


def _class(config: dict[str, Any]) -> str:
    known = config.get("architectures")
    return str(config.get("_class_name") or (known[0] if isinstance(known, list) and known else ""))
