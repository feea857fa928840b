"""A run that begins from a whole PRX pipeline of diffusers: weights and sizes of the denoiser, codec, text encoder."""

from collections.abc import Collection
from typing import Any

from fulcrum.files.paths import at_home
from fulcrum.files.sealed import read_json
from fulcrum.flow.fillers import Velocity, XPrediction
from fulcrum.interop.exported_pipeline import INDEX
from fulcrum.model.fillers import NoCondition, Resolution
from fulcrum.networks.fillers import FolderCodec, FolderText, Pixels
from fulcrum.networks.pretrained.folder import HUB, absolute, config_of, locate
from fulcrum.spec.edit import inside, put_all
from fulcrum.spec.errors import BadInput, shown
from fulcrum.spec.run import RunSpec
from fulcrum.train.fillers import START_PARTS, DiffusersStart

PIPELINES = ("PRXPipeline", "PRXPixelPipeline")
PIXEL_NOISE = 2.0  # of PRXPixelPipeline, where its folder does not say
SIZES = {  # diffusers' word -> our slot
    "hidden_size": "model.width",
    "depth": "model.depth",
    "num_heads": "model.heads",
    "patch_size": "model.patch",
    "mlp_ratio": "model.mlp_ratio",
    "bottleneck_size": "model.bottleneck",
    "theta": "model.theta",
}


def pipeline_index(path: str) -> dict[str, Any] | None:
    """model_index.json of a pipeline's folder or hub id; None where the path names a denoiser alone."""
    own = at_home(path)
    named = HUB.fullmatch(path.removeprefix("hub:"))
    if own.is_dir():
        file = own / INDEX
    elif path.startswith("hub:") and named is not None and named["part"] is None:
        file = locate(path, START_PARTS).parent / INDEX
    else:
        return None
    if not file.is_file():
        return None
    index = read_json(file, "expected what a pipeline's save_pretrained writes")
    if index.get("_class_name") not in PIPELINES:
        raise BadInput(
            f"{file} describes a {index.get('_class_name')}, another family of models",
            "a run can begin from: " + ", ".join(PIPELINES),
        )
    return index


def begun_from(run: RunSpec, path: str, index: dict[str, Any], chosen: Collection[str] = ()) -> RunSpec:
    """The run with what the pipeline brings; `chosen` are paths that a person set, which stay as they are.

    What must fit and does not is said by `require_fit`, before anything is made. How pictures are sampled stays the run's.
    """
    path = absolute(path)
    config = config_of(locate(path, START_PARTS))
    pixels = index["_class_name"] == "PRXPixelPipeline"
    edits: list[tuple[str, Any]] = [(slot, config[word]) for word, slot in SIZES.items() if config.get(word) is not None]
    edits += [("model.condition", Resolution() if config.get("resolution_embeds") else NoCondition())]
    edits += [("flow.predict", XPrediction() if pixels else Velocity())]
    edits += [("flow.noise_scale", _noise_scale(index) if pixels else 1.0)]
    if pixels:
        edits.append(("encode.codec", Pixels()))
    elif _has(index, "vae"):
        edits.append(("encode.codec", FolderCodec.model_validate({"path": path})))
    if _has(index, "text_encoder"):
        limit = {"max_tokens": index["prompt_max_tokens"]} if index.get("prompt_max_tokens") else {}
        edits.append(("encode.text", FolderText.model_validate({"path": path, **limit})))
    edits.append(("start", DiffusersStart(path=path)))
    return put_all(run, [(slot, value) for slot, value in edits if not _chosen(slot, chosen)])


def _has(index: dict[str, Any], part: str) -> bool:
    named = index.get(part) or [None]
    if not isinstance(named, list):
        raise BadInput(
            f"{INDEX} says {part} = {shown(str(named)[:40])}, expected [library, class]",
            "it was changed by hand: take the folder as save_pretrained wrote it",
        )
    return bool(named[0])


def _noise_scale(index: dict[str, Any]) -> float:
    scale = index.get("noise_scale", PIXEL_NOISE)
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise BadInput(f"{INDEX} says noise_scale = {shown(str(scale)[:40])}, expected a number", "it was changed by hand")
    return float(scale)


def _chosen(slot: str, chosen: Collection[str]) -> bool:
    return any(inside(slot, (one,)) or inside(one, (slot,)) for one in chosen)
