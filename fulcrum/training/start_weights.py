"""The weights that a run starts from: fresh, an earlier run's, a folder's or a pipeline's."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fulcrum.files.paths import at_home
from fulcrum.files.sealed import read_json
from fulcrum.networks.fillers import FolderCodec, FolderText, Pixels
from fulcrum.networks.pretrained.folder import HUB, absolute, config_of, locate
from fulcrum.spec.edit import inside, put_all
from fulcrum.spec.errors import BadInput, RunFailed, shown
from fulcrum.spec.run import RunSpec, System
from fulcrum.training import checkpoint
from fulcrum.training.average import drawn_parts
from fulcrum.training.build import Context, backbone_of
from fulcrum.training.checkpoint import weights_hash
from fulcrum.training.fillers import START_PARTS, DiffusersStart
from fulcrum.training.flow.fillers import Velocity, XPrediction
from fulcrum.training.interop.diffusers import require_fit, tensors
from fulcrum.training.interop.export import INDEX
from fulcrum.training.model.adapter import is_beside
from fulcrum.training.model.fillers import NoCondition, Resolution
from fulcrum.training.model.parameters import draw, fan_in
from fulcrum.training.run_folder import RunFolder, require_parts

# --------------------------------------------------------------------------------------------------
# What a trained run draws with: read from its newest checkpoint, and held against the result that
# the run wrote.


AGAIN = (
    "its last checkpoint was removed, replaced or damaged: 'fulcrum runs rm' it and train it again"
)


def trained_weights(folder: RunFolder, averaged: bool = True) -> dict[str, Any]:
    """What a run draws with, of the newest checkpoint: see `drawn_parts`. Not `averaged`: its last
    weights in any case."""
    if not folder.path.is_dir():
        raise BadInput(f"there is no run at {folder.path}", "list the runs with: fulcrum runs list")
    require_parts(folder.about())
    checkpoints, result = checkpoint.listing(folder.checkpoints), folder.result()
    if not checkpoints and result is not None:
        raise RunFailed(
            f"the run {folder.path.name} is finished, and its checkpoints are gone", AGAIN
        )
    if not checkpoints:
        raise BadInput(f"the run {folder.path.name} has no checkpoint yet", "train it first")
    try:
        saved = checkpoint.load(checkpoints[-1])
    except RunFailed as error:
        raise RunFailed(
            error.message,
            (
                AGAIN
                if result is not None
                else "train it further: it goes on from the checkpoint before"
            ),
        ) from error
    if saved.key != folder.path.name:
        raise RunFailed(
            f"the checkpoint in {folder.path} belongs to the run {saved.key}",
            "it was copied there: remove the run with 'fulcrum runs rm' and train it again",
        )
    weights = drawn_parts(saved.parts)
    if result is not None and weights_hash(weights) != result.get("weights_sha256"):
        raise RunFailed(
            f"the newest checkpoint of {folder.path.name} does not hold the weights that the run"
            " ended with",
            AGAIN,
        )
    return weights if averaged else drawn_parts({"model": saved.parts["model"]})


# --------------------------------------------------------------------------------------------------
# The weights that a run begins from when they are not fresh: an earlier run's, those of a folder,
# or a stand-in's.


def trunk_weights(folder: Path, weights_sha256: str) -> dict[str, Tensor]:
    """What an earlier run ended with, checked against the hash that the new run's description
    holds."""
    weights = trained_weights(RunFolder(folder))
    held = weights_hash(weights)
    if held != weights_sha256:
        raise BadInput(
            f"the run {folder.name} holds other weights ({held[:12]}) than this run starts from"
            f" ({weights_sha256[:12]})",
            "train the trunk again, or start from what it holds now",
        )
    return weights


def require_diffusers_fit(path: str, run: RunSpec) -> None:
    """Refuse a folder whose weights do not fit the run's denoiser, from the files' headers
    alone."""
    with torch.device("meta"):
        backbone = backbone_of(Context(run, 0, System()))
    require_fit(locate(path, START_PARTS), backbone)


def diffusers_weights(path: str) -> dict[str, Tensor]:
    """In fp32, as every denoiser begins here; storing in another type is the run's decision."""
    weights = {name: value.float() for name, value in tensors(locate(path, START_PARTS)).items()}
    for name, value in weights.items():
        if not value.isfinite().all():
            raise BadInput(
                f"the weights that this run would begin from are not finite: '{name}' in {path}"
                " holds nan or infinity",
                "they were damaged or never trained well: begin from another model, or an earlier"
                " state of this one",
            )
    return weights


def stand_in_weights(ctx: Context) -> dict[str, Tensor]:
    """Every tensor of the denoiser from (seed, its name), uniform within what a layer of the
    model's width begins with."""
    with torch.device("meta"):
        own = backbone_of(ctx).state_dict()
    within = fan_in(ctx.run.model.width)
    return {
        name: draw(name, value.shape, within, ctx.seed)
        for name, value in own.items()
        if not is_beside(name)
    }


# --------------------------------------------------------------------------------------------------
# A run that begins from a whole PRX pipeline of diffusers: weights and sizes of the denoiser,
# codec, text encoder.


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
    """model_index.json of a pipeline's folder or hub id; None where the path names a denoiser
    alone."""
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


def begun_from(
    run: RunSpec, path: str, index: dict[str, Any], chosen: Collection[str] = ()
) -> RunSpec:
    """The run with what the pipeline brings; `chosen` are paths that a person set, which stay as
    they are.

    What must fit and does not is said by `require_fit`, before anything is made. How pictures are
    sampled stays the run's.
    """
    path = absolute(path)
    config = config_of(locate(path, START_PARTS))
    pixels = index["_class_name"] == "PRXPixelPipeline"
    edits: list[tuple[str, Any]] = [
        (slot, config[word]) for word, slot in SIZES.items() if config.get(word) is not None
    ]
    edits += [
        ("model.condition", Resolution() if config.get("resolution_embeds") else NoCondition())
    ]
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
        raise BadInput(
            f"{INDEX} says noise_scale = {shown(str(scale)[:40])}, expected a number",
            "it was changed by hand",
        )
    return float(scale)


def _chosen(slot: str, chosen: Collection[str]) -> bool:
    return any(inside(slot, (one,)) or inside(one, (slot,)) for one in chosen)
